"""Observed shapes as comments in the source: what is shown, what is written, and what is left alone."""

import ast
import importlib.util
import itertools
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from shapetrace import ShapetraceError, record
from shapetrace.annotation import annotate, patch_folder, write_annotations, write_patch
from shapetrace.cli import main
from shapetrace.packages import package_of
from shapetrace.render.listing import render_listing

SOURCE = '''\
import torch
from torch import nn


def halve(given):
    parts = given.chunk(2, dim=-1)
    return parts


class Block(nn.Module):
    def forward(
        self,
        x,
        mask,  # True = hidden
        bias, scale=1.0,
        shift=None,
    ):
        """Text with # in it."""
        q, k = halve(x)
        y = torch.cat(
            [q, k],
            dim=-1,
        )
        self.cached = y
        z = y + \\
            1
        text = """
        # no comment"""; w = z + 1
        v = f"{w.ndim} # no comment" and w * 2 \x20
        u = v.relu()  # noqa: E501
        t = u.reshape(  # rows
            u.size(0), -1
        )
        u += 1
        u.masked_fill_(mask, 0)
        for piece in u.split(2):
            last = piece
        both = [last + 1, last + 2]
        many = list(y.unbind(-1))
        store = {"a key\\n": last * 2}
        if (n := last.sum()) > 1e9: pass
        a = n + 1; b = n + 2
        return y + bias, store


class Never(nn.Module):
    def forward(self, x):
        y = x + 1
        return y


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()
        self.never = Never()

    def forward(self, x):
        y, _ = self.block(x, x > 0, x[0])
        z, _ = self.block(x[:2], x[:2] > 0, bias=x[0])
        return y[:2] @ z.mT
'''

ANNOTATED = '''\
import torch
from torch import nn


def halve(given):
    parts = given.chunk(2, dim=-1)  # parts.0 (3, 4, 3) | (2, 4, 3), parts.1 (3, 4, 3) | (2, 4, 3)
    return parts


class Block(nn.Module):
    def forward(
        self,
        x,  # (3, 4, 6) | (2, 4, 6)
        mask,  # True = hidden
        bias, scale=1.0,  # bias (4, 6)
        shift=None,
    ):
        """Text with # in it."""
        q, k = halve(x)  # q (3, 4, 3) | (2, 4, 3), k (3, 4, 3) | (2, 4, 3)
        y = torch.cat(
            [q, k],
            dim=-1,
        )  # (3, 4, 6) | (2, 4, 6)
        self.cached = y  # (3, 4, 6) | (2, 4, 6)
        z = y + \\
            1  # (3, 4, 6) | (2, 4, 6)
        text = """
        # no comment"""; w = z + 1  # (3, 4, 6) | (2, 4, 6)
        v = f"{w.ndim} # no comment" and w * 2 \x20  # (3, 4, 6) | (2, 4, 6)
        u = v.relu()  # noqa: E501
        t = u.reshape(  # rows
            u.size(0), -1
        )
        u += 1  # (3, 4, 6) | (2, 4, 6)
        u.masked_fill_(mask, 0)  # (3, 4, 6) | (2, 4, 6)
        for piece in u.split(2):  # (2, 4, 6) | (1, 4, 6)
            last = piece  # (2, 4, 6) | (1, 4, 6)
        both = [last + 1, last + 2]  # both.0 (1, 4, 6) | (2, 4, 6), both.1 (1, 4, 6) | (2, 4, 6)
        many = list(y.unbind(-1))  # many.0 ... many.5 (3, 4) | (2, 4)
        store = {"a key\\n": last * 2}  # store.a key\\n (1, 4, 6) | (2, 4, 6)
        if (n := last.sum()) > 1e9: pass  # ()
        a = n + 1; b = n + 2  # a (), b ()
        return y + bias, store  # out.0 (3, 4, 6) | (2, 4, 6)


class Never(nn.Module):
    def forward(self, x):
        y = x + 1
        return y


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()
        self.never = Never()

    def forward(self, x):  # (3, 4, 6)
        y, _ = self.block(x, x > 0, x[0])  # y (3, 4, 6), _.a key\\n (1, 4, 6)
        z, _ = self.block(x[:2], x[:2] > 0, bias=x[0])  # z (2, 4, 6), _.a key\\n (2, 4, 6)
        return y[:2] @ z.mT  # (2, 4, 4)
'''

LISTING = """\
model.py

halve
 5  def halve(given):
 6      parts = given.chunk(2, dim=-1)  # parts.0 (3, 4, 3), parts.1 (3, 4, 3)
 7      return parts

Toy.forward
12      def forward(self, x, unused=None):  # x (3, 4, 6)
13          left, right = halve(x)          # left (3, 4, 3), right (3, 4, 3)
14
15          kept = left + right  # a sum    # (3, 4, 3)
16          return kept"""

NUMBERS = itertools.count()


def load(path, name="Model"):
    """The class of that name in the file, freshly imported."""
    spec = importlib.util.spec_from_file_location(f"annotated_{next(NUMBERS)}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def trace_of(path, name="Model"):
    return record(load(path, name)(), torch.ones(3, 4, 6).cumsum(-1))


@pytest.fixture
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.py").write_text(SOURCE)
    return tmp_path / "model.py"


TOY = '''\
from torch import nn


# a helper
def halve(given):
    parts = given.chunk(2, dim=-1)
    return parts


class Toy(nn.Module):
    """Halves."""
    def forward(self, x, unused=None):
        left, right = halve(x)

        kept = left + right  # a sum
        return kept
'''


def test_every_kind_of_line_is_annotated_or_left_alone(model):
    files = annotate(trace_of(model))
    assert [file.name for file in files] == ["model.py"]
    write_annotations(files)
    assert model.read_text() == ANNOTATED


def test_a_second_run_changes_nothing(model):
    write_annotations(annotate(trace_of(model)))
    before = model.stat()
    files = annotate(trace_of(model))
    assert (files[0].comments, write_patch(files[0])) == ({}, b"")
    write_annotations(files)
    after = model.stat()
    assert (after.st_mtime_ns, after.st_ino, model.read_text()) == (before.st_mtime_ns, before.st_ino, ANNOTATED)


def test_the_listing(model):
    model.write_text(TOY)
    assert render_listing(annotate(trace_of(model, "Toy"))).plain == LISTING


def test_the_listing_of_an_annotated_file_says_nothing_twice(model):
    model.write_text(TOY)
    write_annotations(annotate(trace_of(model, "Toy")))
    listed = render_listing(annotate(trace_of(model, "Toy"))).plain.splitlines()
    assert listed[4] == " 6      parts = given.chunk(2, dim=-1)  # parts.0 (3, 4, 3), parts.1 (3, 4, 3)"
    assert listed[9] == "13          left, right = halve(x)  # left (3, 4, 3), right (3, 4, 3)"


def test_several_recordings_are_one_annotation(model):
    model.write_text(TOY)
    toy = load(model, "Toy")()
    files = annotate(record(toy, torch.ones(2, 4)), record(toy, torch.ones(2, 4)), record(toy, torch.ones(3, 4)))
    assert files[0].comments == {
        6: "parts.0 (2, 2) | (3, 2), parts.1 (2, 2) | (3, 2)",
        12: "x (2, 4) | (3, 4)",
        13: "left (2, 2) | (3, 2), right (2, 2) | (3, 2)",
    }


def test_a_module_narrows_it(model):
    trace = trace_of(model)
    (file,) = annotate(trace, module="block")
    assert [(function.name, modules) for function, modules in file.functions] == [
        ("halve", ()),
        ("Block.forward", ("block",)),
    ]
    (whole,) = annotate(trace)
    assert [function.name for function, _ in whole.functions] == ["halve", "Block.forward", "Model.forward"]
    with pytest.raises(ShapetraceError, match="no module `blok` in this model"):
        annotate(trace, module="blok")


@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize(
    ("cookie", "encoding"),
    [("", "utf-8"), ("", "utf-8-sig"), ("# -*- coding: latin-1 -*-\n", "latin-1")],
    ids=["utf8", "bom", "latin1"],
)
def test_bytes_that_are_not_comments_stay(model, end, cookie, encoding):
    text = (
        f"{cookie}from torch import nn\n\n\nclass Model(nn.Module):\n\tdef forward(self, é):\n\t\t\n"
        "\t\tü = {'é': é + 1, 'ö\\u0131': é}  \n\x0c\n\t\ttext = '''\n# no \x0b comment\n'''\n\t\treturn é.sum()"
    )
    appended = {
        "\tdef forward(self, é):": "  # (3, 4, 6)",
        "\t\tü = {'é': é + 1, 'ö\\u0131': é}  ": "  # ü.é (3, 4, 6)",
        "\t\treturn é.sum()": "  # ()",
    }
    model.write_bytes(text.replace("\n", end).encode(encoding))
    write_annotations(annotate(trace_of(model)))
    expected = end.join(line + appended.get(line, "") for line in text.split("\n"))
    assert model.read_bytes() == expected.encode(encoding)


def test_a_name_that_the_encoding_cannot_write(model):
    model.write_text(
        "# coding: latin-1\nfrom torch import nn\nclass Model(nn.Module):\n"
        "  def forward(self, x):\n    a = {chr(0x17f): x + 1, 'b': x * 2}\n"
    )
    assert annotate(trace_of(model))[0].comments[5] == "a.\\u017f (3, 4, 6), a.b (3, 4, 6)"


def test_several_files_each_with_its_heading(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "layers").mkdir()
    (tmp_path / "layers" / "inner_of_annotated.py").write_text(
        "from torch import nn\nclass Inner(nn.Module):\n    def forward(self, x):\n        return x * 2\n"
    )
    (tmp_path / "outer.py").write_text(
        "from torch import nn\nfrom layers.inner_of_annotated import Inner\nclass Model(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.inner = Inner()\n"
        "    def forward(self, x):\n        return self.inner(x) + 1\n"
    )
    files = annotate(trace_of(tmp_path / "outer.py"))
    assert render_listing(files).plain == (
        "outer.py\n\nModel.forward\n7      def forward(self, x):         # (3, 4, 6)\n"
        "8          return self.inner(x) + 1  # (3, 4, 6)\n\n"
        f"layers{os.sep}inner_of_annotated.py\n\nInner.forward  inner\n"
        "3      def forward(self, x):  # (3, 4, 6)\n4          return x * 2       # (3, 4, 6)"
    )
    monkeypatch.chdir(tmp_path / "layers")
    assert [file.name for file in files] == ["outer.py", "inner_of_annotated.py"]  # no folder above this one


def test_code_of_no_file_is_not_available():
    space = {}
    exec("def forward(self, x):\n    y = x + 1\n    return y", space)
    files = annotate(record(type("Toy", (nn.Module,), space)(), torch.ones(2)))
    assert render_listing(files).plain == "<string>  not available: its code is in no file"
    write_annotations(files)
    assert write_patch(files[0]) == b""


def test_an_inner_function_goes_with_the_one_around_it(model):
    model.write_text(
        "from torch import nn\nclass Model(nn.Module):\n    def forward(self, x):\n        def double(given):\n"
        "            twice = given * 2\n            return twice\n        return double(x + 1)\n"
    )
    (file,) = annotate(trace_of(model))
    assert [function.name for function, _ in file.functions] == ["Model.forward"]
    assert file.comments == {3: "(3, 4, 6)", 4: "(3, 4, 6)", 5: "(3, 4, 6)"}


INSTALLED = "from torch import nn\nclass Theirs(nn.Module):\n    def forward(self, x):\n        return x * 2\n"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A package of an environment, and a model of the user's own that uses it."""
    monkeypatch.chdir(tmp_path)
    package = tmp_path / "lib" / "site-packages" / "theirs_of_annotated"
    package.mkdir(parents=True)
    monkeypatch.syspath_prepend(package.parent)
    (package / "__init__.py").write_text(INSTALLED)
    (tmp_path / "mine.py").write_text(
        "from torch import nn\nfrom theirs_of_annotated import Theirs\nclass Model(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.theirs = Theirs()\n"
        "    def forward(self, x):\n        return self.theirs(x) + 1\n"
    )
    yield package / "__init__.py"
    sys.modules.pop("theirs_of_annotated", None)


def test_an_installed_package_is_shown_only_where_the_model_is_its_own(installed, tmp_path):
    assert [file.name for file in annotate(trace_of(tmp_path / "mine.py"))] == ["mine.py"]
    (file,) = annotate(trace_of(installed, "Theirs"))
    assert [function.name for function, _ in file.functions] == ["Theirs.forward"]


def test_an_installed_package_is_never_written(installed, tmp_path):
    files = annotate(trace_of(installed, "Theirs"))
    with pytest.raises(ShapetraceError, match="belongs to an installed package, theirs_of_annotated; nothing is writt"):
        write_annotations(files)
    (tmp_path / "link.py").symlink_to(installed)  # nor where it has another name
    with pytest.raises(ShapetraceError, match=r"`link.py` belongs to an installed package"):
        write_annotations(annotate(trace_of(tmp_path / "link.py", "Theirs")))
    assert installed.read_text() == INSTALLED


def test_packages():
    folder = os.path.dirname(os.path.dirname(torch.__file__))
    assert package_of(torch.__file__) == os.path.dirname(torch.__file__)
    assert package_of(pytest.__file__) == os.path.dirname(pytest.__file__)
    assert package_of(f"{folder}{os.sep}one_file.py") == f"{folder}{os.sep}one_file.py"
    assert package_of(str(Path(__file__).parent.parent / "shapetrace" / "gpt2" / "mlp.py")).endswith("shapetrace")
    assert package_of(os.__file__) == os.__file__
    assert package_of(__file__) == ""


def test_where_one_file_cannot_be_written_none_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = {name: TOY.replace("Toy", name) for name in ("One", "Two")}
    traces = []
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
        traces.append(trace_of(tmp_path / f"{name}.py", name))
    (tmp_path / "Two.py").chmod(0o444)
    with pytest.raises(ShapetraceError, match=r"`Two.py` is not writable; nothing is written"):
        write_annotations(annotate(*traces))
    assert {name: (tmp_path / f"{name}.py").read_text() for name in texts} == texts
    assert sorted(path.name for path in tmp_path.glob("*.py")) == ["One.py", "Two.py"]


def test_a_result_that_would_be_another_program_is_not_written(model, monkeypatch):
    files = annotate(trace_of(model))
    monkeypatch.setattr("shapetrace.annotation.layout.Layout.append", lambda self, comments: b"x = 1\n")
    with pytest.raises(ShapetraceError, match=r"comments in `model.py` would change what it does; nothing is written"):
        write_annotations(files)
    assert model.read_text() == SOURCE


def test_where_a_later_file_fails_the_ones_before_are_as_they_were(tmp_path, monkeypatch):
    texts = {name: TOY.replace("Toy", name) for name in ("One", "Two", "Three")}
    traces = []
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
        traces.append(trace_of(tmp_path / f"{name}.py", name))
    files = annotate(*traces)
    write = os.replace

    def replace_until_the_disk_is_full(source, target):
        if Path(target).name == "Three.py":
            raise OSError(28, "No space left on device")
        write(source, target)

    monkeypatch.setattr(os, "replace", replace_until_the_disk_is_full)
    with pytest.raises(ShapetraceError, match=r"cannot write `.*Three.py`: No space left on device"):
        write_annotations(files)
    assert {name: (tmp_path / f"{name}.py").read_text() for name in texts} == texts


@pytest.mark.parametrize("tool", [["patch", "-p1"], ["git", "apply"]], ids=["patch", "git"])
def test_a_patch_of_files_outside_the_current_folder(tmp_path, monkeypatch, tool):
    folders = [tmp_path / "one", tmp_path / "two" / "inner"]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "model.py").write_text(TOY)
    files = annotate(*(trace_of(folder / "model.py", "Toy") for folder in folders))
    monkeypatch.chdir(tmp_path / "one")
    assert [patch_folder(files[:1]), patch_folder(files)] == [str(tmp_path / "one"), str(tmp_path)]
    monkeypatch.chdir(tmp_path / "two")
    assert patch_folder(files[:1]) == str(tmp_path / "one")
    assert write_patch(files[0], str(tmp_path / "one")).startswith(b"--- a/model.py\n+++ b/model.py\n")
    patch = b"".join(write_patch(file, str(tmp_path)) for file in files)
    assert [line for line in patch.splitlines() if line.startswith(b"+++")] == [
        *(b"+++ b/one/model.py", b"+++ b/two/inner/model.py"),
    ]
    ran = subprocess.run(tool, input=patch, cwd=tmp_path, capture_output=True)
    assert ran.returncode == 0, ran.stderr + ran.stdout
    assert [(folder / "model.py").read_bytes() for folder in folders] == [file.written() for file in files]


def test_the_command_says_where_a_patch_is_applied(tmp_path, monkeypatch):
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "elsewhere.py").write_text(TOY)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    command = ["annotate", "--model", "../one/elsewhere.py:Toy", "--input", "x=float32[3,4]", "--diff"]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 0, result.output
    folder = tmp_path / "one"
    assert result.stderr == (
        f"note: the paths in the patch start from {folder}: apply it with `patch -p1 -d {shlex.quote(str(folder))}`\n"
    )
    assert result.stdout.startswith("--- a/elsewhere.py\n+++ b/elsewhere.py\n@@ ")


@pytest.mark.parametrize("tool", [["patch", "-p1", "--binary"], ["git", "apply"]], ids=["patch", "git"])
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("last", ["\n", ""], ids=["ended", "unended"])
def test_the_patch_does_what_writing_does(tmp_path, monkeypatch, tool, end, last):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "a folder" / "my model.py"
    path.parent.mkdir()
    path.write_bytes((SOURCE.rstrip("\n") + last).replace("\n", end).encode())
    (file,) = annotate(trace_of(path))
    patch, expected = write_patch(file), file.written()
    assert patch.startswith(b"--- a/a folder/my model.py\t\n+++ b/a folder/my model.py\t\n@@ ")
    ran = subprocess.run(tool, input=patch, cwd=tmp_path, capture_output=True)
    assert ran.returncode == 0, ran.stderr + ran.stdout
    assert path.read_bytes() == expected != (SOURCE.rstrip("\n") + last).replace("\n", end).encode()


# A grammar of forwards. Every expression is a tensor of shape (3, 4), and so is each of a, b, c once it is bound.
TENSORS = st.recursive(
    st.sampled_from(["x", "x + 1", '("# no" and x)', "('''a # b\n# c''' and x)", 'f"{x.ndim} # no" and x', "x[:, :]"]),
    lambda inner: st.one_of(
        st.builds("({}).relu()".format, inner),
        st.builds("torch.add(\n            {},\n            {},  # an argument\n        )".format, inner, inner),
        st.builds("(\n            {}\n        )".format, inner),
        st.builds("({}) + \\\n            1".format, inner),
    ),
    max_leaves=4,
)
NAMES = st.sampled_from(["a", "b", "c", "self.a", "self.b"])
SIMPLE = st.one_of(
    st.builds("{} = {}".format, NAMES, TENSORS),
    st.builds("{} = {} = {}".format, NAMES, NAMES, TENSORS),
    st.builds("{}, {} = ({}), ({})".format, NAMES, NAMES, TENSORS, TENSORS),
    st.builds("[{}, (_, {})] = ({}), (1, {})".format, NAMES, NAMES, TENSORS, TENSORS),
    st.builds("d = [{}, {}]".format, TENSORS, TENSORS),
    st.builds("e: object = {}".format, TENSORS),
    st.builds("f = {}; g = {}".format, TENSORS, TENSORS),
    st.builds("(h := {}).sum()".format, TENSORS),
    st.sampled_from(["x += 1", "x.mul_(2)", "text = '# no'", "text = '''\n# no'''", "# a comment", "pass"]),
)


def indented(head, body):
    """The head and the body below it; a string's own lines may be indented too: it is text like any other."""
    return head + "\n" + "\n".join("    " + line for line in f"{body}\npass".split("\n"))


STATEMENTS = st.recursive(
    st.builds(str.__add__, SIMPLE, st.sampled_from(["", "", "  # said", "  # type: ignore", "  # noqa", "   "])),
    lambda inner: st.one_of(
        st.builds(lambda one, two: f"{one}\n{two}", inner, inner),
        st.builds(indented, st.sampled_from(["if True:", "for i, y in enumerate(\n    (x, x)\n):  # twice"]), inner),
        st.builds(
            indented, st.sampled_from(["with torch.no_grad(): # off", "while (z := x) is None:", "if x is x:"]), inner
        ),
    ),
    max_leaves=6,
).map(lambda text: f"{text}\npass")
SIGNATURES = st.sampled_from(
    ["self, x", "self, x, mask=None",
     "\n        self,\n        x,\n        *, flag='''\n#''',\n    ",
     "self,\n        x  # in\n    "]
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    SIGNATURES, STATEMENTS, TENSORS, st.sampled_from(["\n", "\r\n", "\r"]), st.sampled_from(["utf-8", "utf-8-sig"]),
    st.booleans(),
)  # fmt: skip
def test_writing_only_appends_comments(tmp_path_factory, signature, statements, returned, end, encoding, ended):
    body = "\n".join("        " + line for line in f"{statements}\nreturn {returned}".split("\n"))
    text = f"import torch\n\n\nclass Model(torch.nn.Module):\n    def forward({signature}):\n{body}" + "\n" * ended
    folder = tmp_path_factory.mktemp("generated")
    old, new = folder / "old.py", folder / "new.py"
    old.write_bytes(text.replace("\n", end).encode(encoding))
    (file,) = annotate(record(load(old)(), torch.ones(3, 4)))
    content = file.written()
    assert ast.dump(ast.parse(content), include_attributes=True) == ast.dump(
        ast.parse(old.read_bytes()), include_attributes=True
    )
    rows = [re.split(f"({end})", each.decode(encoding)) for each in (old.read_bytes(), content)]
    for before, after in zip(*rows, strict=True):
        assert after == before or re.fullmatch(r"  # [\w., |()]+", after.removeprefix(before)), (before, after)
    new.write_bytes(content)
    (again,) = annotate(record(load(new)(), torch.ones(3, 4)))
    assert again.comments == {}
    assert set(again.annotations) == set(file.annotations)


def run(*arguments, code=0):
    result = CliRunner().invoke(main, ["annotate", *arguments])
    assert result.exit_code == code, result.output + repr(result.exception)
    return result


@pytest.fixture
def ours(model):
    """The command on the user's own file."""
    model.write_text(TOY)
    return model


OURS = ["--model", "model.py:Toy", "--input", "float32[3,4,6]"]


def test_the_command_on_a_file_of_ones_own(ours):
    assert run(*OURS).stdout == "\n".join(line.rstrip() for line in LISTING.split("\n")) + "\n"
    patch = run(*OURS, "--diff").stdout
    assert patch.startswith("--- a/model.py\n+++ b/model.py\n@@ -3,14 +3,14 @@\n")
    assert ours.read_text() == TOY
    assert run(*OURS, "--write").stdout == "model.py: 3 comments written\n"
    written = ours.read_text()
    assert run(*OURS, "--write").stdout == "model.py: 0 comments written\n"
    assert (run(*OURS, "--diff").stdout, ours.read_text()) == ("", written)
    ours.write_text(TOY)
    subprocess.run(["patch", "-p1"], input=patch, text=True, check=True, capture_output=True)
    assert ours.read_text() == written


def test_the_command_on_a_file_that_is_not_to_be_written(ours):
    ours.chmod(0o444)
    refused = run(*OURS, "--write", code=2)
    assert (refused.stdout, refused.stderr) == (
        "",
        "error: `model.py` is not writable; nothing is written\n\nhint: make it writable, or use `--diff`\n",
    )
    assert ours.read_text() == TOY


def test_the_command_on_a_built_in():
    assert run("--diff").output == ""  # each of its lines has a comment already
    assert run("--module", "blok", code=2).stderr.startswith("error: no module `blok` in this model\n\nhint: ")
    assert "Error: --diff shows what --write would change: one of them" in run("--diff", "--write", code=2).stderr
    assert re.findall(r"^\w+\.\w+  .*$", run("--module", "*embed").stdout, re.M) == [
        "Embed.forward  embed",
        "PosEmbed.forward  pos_embed",
        "Unembed.forward  unembed",
    ]


def test_the_command_in_a_process_of_its_own(tmp_path):
    def command(*arguments):
        words = [sys.executable, "-m", "shapetrace", "annotate", "The cat", *arguments]
        ran = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)
        assert "Traceback" not in ran.stderr
        return ran.returncode, ran.stdout, ran.stderr

    code, printed, said = command("--module", "blocks.*.ln2", "--set", "n_layers=2")
    assert (code, said) == (0, "")
    assert printed.startswith(
        "normalization.py\n\nLayerNorm.forward  blocks.0.ln2 ... blocks.1.ln2  x2\n18      def forward("
    )
    assert re.search(r"\n26          out = residual \* self.w \+ self.b  # \* w \+ b  +# \(1, 3, 768\)\n27 ", printed)
    assert str(tmp_path) not in printed
    assert command("--write")[::2] == (
        2,
        "error: `transformer.py` belongs to an installed package, shapetrace; nothing is written\n\n"
        "hint: `--diff` shows the comments as a patch; annotate a model of your own, or a copy of this one\n",
    )
