"""The golden_trace fixture, as a project that has only installed shapetrace meets it."""

import subprocess
import sys
from pathlib import Path

import pytest

# A run within this process forgets what it has imported, and neither torch nor yaml can be imported twice.
import torch  # noqa: F401
import yaml  # noqa: F401

import shapetrace.golden  # noqa: F401
from shapetrace.tokens.folder import save_tokenizer
from shapetrace.tokens.training import train_tokenizer

MODEL = """
import torch
from torch import nn

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qk = nn.Parameter(torch.linspace(-1, 1, 24).reshape(3, 8))

    def forward(self, x):
        q, k = (x @ self.qk).chunk(2, dim=-1)  # (batch, posn, d) each
        scores = q @ k.mT
        return scores.softmax(-1)

X = torch.linspace(-1, 1, 18).reshape(2, 3, 3)
"""
TEST = """
from model import Attention, X

def test_attention(golden_trace):
    golden_trace.check(Attention(), X, name="attention")
"""


class Project:
    """A folder with a model and a test, and real pytest runs in it."""

    def __init__(self, pytester):
        self.pytester = pytester
        self.folder = folder = pytester.path
        self.golden = folder / "traces" / "test_it" / "attention.yaml"
        self.obtained = folder / "traces" / "test_it" / "attention.obtained.yaml"
        self.write(MODEL, TEST)

    def write(self, model=MODEL, test=TEST):
        (self.folder / "model.py").write_text(model)
        (self.folder / "test_it.py").write_text(test)

    def run(self, *arguments, in_process=True):
        """The exit code and what was printed; a process of its own takes seconds, so only where it matters."""
        run = self.pytester.runpytest_inprocess if in_process else self.pytester.runpytest_subprocess
        ran = run("-p", "no:cacheprovider", "--tb=short", *arguments)
        return ran.ret, ran.stdout.str()


@pytest.fixture
def project(pytester):
    return Project(pytester)


TEXTS = """
def test_texts(golden_trace):
    model = "hf:gpt2?n_layer=1&n_embd=8&n_head=2"
    golden_trace.check(f"{model}&vocab_size=258", "abab", tokenizer="book", name="mine")
    golden_trace.check(model, "The cat", name="gpt2")
"""


def test_a_text_in_the_tokens_of_a_tokenizer(project):
    save_tokenizer(train_tokenizer("ab", 258), project.folder / "book")
    project.write(test=TEXTS)
    assert project.run("--update-traces", in_process=False)[0] == 0
    folder = project.golden.parent
    assert "shape: [1, 3]" in (folder / "mine.yaml").read_text()  # <|endoftext|>, ab, ab
    assert "shape: [1, 3, 50257]" in (folder / "gpt2.yaml").read_text()
    assert project.run(in_process=False)[0] == 0


NAMED = """
def test_named(golden_trace):
    golden_trace.check("model.py:Attention", name="tensors", x=__import__("torch").ones(2, 3, 3))
    golden_trace.check("hf:gpt2?n_layer=1&n_embd=8&n_head=2", name="text", values=True)
"""


def test_a_model_by_its_name(project):
    """Built as the command line builds it, with random weights of one seed; without inputs on the default text."""
    project.write(test=NAMED)
    assert project.run("--update-traces", in_process=False)[0] == 0
    code, printed = project.run(in_process=False)
    assert code == 0, printed
    traces = {file.name: file.read_text() for file in project.golden.parent.glob("*.yaml")}
    assert "{name: x, role: input, shape: [2, 3, 3]" in traces["tensors.yaml"]
    assert "{name: input_ids, role: input, shape: [1, 7], dtype: int64" in traces["text.yaml"]


@pytest.fixture
def with_golden(project):
    assert project.run()[0] == 1
    return project


def test_missing_then_pass_then_changed_then_update_then_pass(project):
    code, printed = project.run(in_process=False)
    assert (code, project.golden.exists()) == (1, True)
    assert (
        "AssertionError: there was no golden trace traces/test_it/attention.yaml; it was written: look at it" in printed
    )
    assert "test_it.py:5: in test_attention" in printed
    assert "pytest_plugin.py" not in printed

    assert project.run(in_process=False)[0] == 0
    before = project.golden.read_text()

    project.write(MODEL.replace("scores = q @ k.mT", "scores = q.mT @ k"))
    code, printed = project.run(in_process=False)
    assert code == 1
    assert (
        "E   AssertionError: the trace is not traces/test_it/attention.yaml:\n"
        "E   different: 2 reshaped\n"
        "E   reshaped  the model: scores  (2, [3], [3]) -> (2, [4], [4])\n"
        "E   reshaped  the model: out     (2, [3], [3]) -> (2, [4], [4])\n"
        "E   \n"
        "E   hint: `pytest --update-traces` takes over what was obtained, attention.obtained.yaml beside it\n"
    ) in printed
    assert (project.golden.read_text(), project.obtained.exists()) == (before, True)

    code, printed = project.run("--update-traces", in_process=False)
    assert code == 0
    assert "golden traces written" in printed
    assert "traces/test_it/attention.yaml" in printed
    assert (project.golden.read_text() != before, project.obtained.exists()) == (True, False)
    code, printed = project.run(in_process=False)
    assert (code, "golden traces" in printed) == (0, False)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            ("scores = q @ k.mT", "scores = (q @ k.mT)[:, :2]"),
            "reshaped  the model: scores  (2, [3], 3) -> (2, [2], 3)",
        ),
        (("scores", "weights"), "renamed  the model: weights  scores -> weights"),
        (("q, k = ", "k, q = "), "moved  the model: k  after q -> after x"),
        (("q @ k.mT", "(q @ k.mT).double()"), "retyped  the model: scores  float32 -> float64"),
        (("self.qk = nn.Parameter(", "self.kq = self.qk = nn.Parameter("), "added  the model: parameter kq"),
        (("return scores.softmax(-1)", "return nn.Softmax(-1)(scores)"), None),
    ],
)
def test_what_a_stranger_is_told(with_golden, edit, message):
    with_golden.write(MODEL.replace(*edit))
    code, printed = with_golden.run()
    assert code == (1 if message else 0)
    assert message is None or " ".join(message.split()) in " ".join(printed.split())


def test_comments_and_values_when_asked_for(project):
    test = TEST.replace('name="attention"', 'name="attention", comments=True, values=True')
    project.write(test=test)
    assert [project.run()[0] for _ in range(2)] == [1, 0]
    project.write(MODEL.replace("(batch, posn, d) each", "(batch, posn, half) each"), test)
    assert "recommented  the model: q" in project.run()[1]
    project.write(MODEL.replace("linspace(-1, 1, 24)", "linspace(-1, 1.1, 24)"), test)
    code, printed = project.run()
    assert code == 1
    assert "values  the model: scores  min" in printed
    # the last digits of a float may differ from one machine to the next
    project.write(MODEL.replace("linspace(-1, 1, 24)", "linspace(-1, 1.000001, 24)"), test)
    assert project.run()[0] == 0
    project.write(
        MODEL.replace("linspace(-1, 1, 24)", "linspace(-1, 1.1, 24)"), test.replace("values=True", "values=0.5")
    )
    assert project.run()[0] == 0


def test_parametrised_and_several_in_one_test(project):
    project.write(
        test="""
import pytest
from model import Attention, X

@pytest.mark.parametrize("length", [2, 3])
def test_lengths(golden_trace, length):
    golden_trace.check(Attention(), X[:, :length])
    golden_trace.check(Attention(), x=X[:1, :length])
"""
    )
    assert project.run("--update-traces")[0] == 0
    names = sorted(path.name for path in project.golden.parent.iterdir())
    assert names == ["lengths-2.yaml", "lengths-2_2.yaml", "lengths-3.yaml", "lengths-3_2.yaml"]
    assert project.run()[0] == 0


def test_one_name_for_two_models_is_told_also_when_updating(project):
    project.write(
        test=TEST + "\ndef test_other(golden_trace):\n    golden_trace.check(Attention(), X[:1], name='attention')\n"
    )
    code, printed = project.run("--update-traces")
    assert code == 1
    assert "hint: give one of the two a `name`" in printed


def test_unused_golden_traces_are_listed_after_a_full_run(with_golden):
    (with_golden.golden.parent / "old.yaml").write_text("format: shapetrace/1\n")
    title = "golden traces that no test uses"
    assert f"{title} ---" in with_golden.run()[1]
    assert "traces/test_it/old.yaml" in with_golden.run()[1]
    assert title not in with_golden.run("test_it.py::test_attention")[1]
    with_golden.write(test=TEST + "\ndef test_other():\n    pass\n")
    assert title not in with_golden.run("-k", "attention")[1]
    assert title not in with_golden.run("test_it.py")[1]
    assert title not in with_golden.run("--ignore", "test_other.py")[1]
    assert title in with_golden.run()[1]
    with_golden.write(test=TEST + "\nimport pytest\n@pytest.mark.skip\ndef test_other():\n    pass\n")
    assert title not in with_golden.run()[1]


def test_modules_and_classes_of_one_name_have_files_of_their_own(project):
    for folder in ("a", "b"):
        (project.folder / "tests" / folder).mkdir(parents=True)
        (project.folder / "tests" / folder / "__init__.py").touch()
        (project.folder / "tests" / folder / "test_it.py").write_text(
            "import sys; sys.path.insert(0, '.')\nfrom model import Attention, X\n"
            "class TestA:\n    def test_one(self, golden_trace):\n        golden_trace.check(Attention(), X)\n"
            "class TestB:\n    def test_one(self, golden_trace):\n        golden_trace.check(Attention(), X[:1])\n"
            "def test_größe(golden_trace):\n    golden_trace.check(Attention(), X, name='../../größe')\n"
        )
    assert project.run("--update-traces", "tests")[0] == 0
    root = project.folder / "traces"
    assert sorted(str(path.relative_to(root)) for path in root.rglob("*.yaml")) == [
        f"{folder}/test_it/{name}.yaml" for folder in ("a", "b") for name in ("TestA-one", "TestB-one", "größe")
    ]
    assert project.run("tests")[0] == 0


def test_what_cannot_be_written_hides_no_difference(with_golden, monkeypatch):
    from shapetrace import ShapetraceError, store

    def refuse(trace, path):
        raise ShapetraceError("cannot write it")

    monkeypatch.setattr(store, "save", refuse)
    with_golden.write(MODEL.replace("scores = q @ k.mT", "scores = q.mT @ k"))
    code, printed = with_golden.run()
    assert code == 1
    assert "reshaped  the model: scores" in printed
    assert "takes over what was obtained (cannot write it)" in printed
    with_golden.golden.unlink()
    assert "AssertionError: the golden trace cannot be written: cannot write it" in with_golden.run()[1]


@pytest.mark.parametrize("values", ["float('nan')", "-1", "'1e-3'"])
def test_a_tolerance_that_is_none(project, values):
    project.write(test=TEST.replace('name="attention"', f"values={values}"))
    assert "ValueError: values is True, False or a relative tolerance" in project.run()[1]


def test_with_xdist(with_golden):
    with_golden.write(
        test=TEST
        + "".join(f"\ndef test_{n}(golden_trace):\n    golden_trace.check(Attention(), X)\n" for n in range(4))
    )
    (with_golden.golden.parent / "old.yaml").write_text("format: shapetrace/1\n")
    code, printed = with_golden.run("-n", "2", "--update-traces", in_process=False)
    assert code == 0
    written = printed.partition("golden traces written")[2].partition("golden traces that no test uses")
    assert [line for line in written[0].splitlines() if line.startswith("traces/")] == [
        f"traces/test_it/{n}.yaml" for n in range(4)
    ]
    assert "traces/test_it/old.yaml" in written[2]
    assert with_golden.run("-n", "2", in_process=False)[0] == 0


def test_a_folder_of_ones_own(project):
    (project.folder / "pyproject.toml").write_text('[tool.pytest.ini_options]\ngolden_traces = "tests/golden"\n')
    project.run()
    assert (project.folder / "tests/golden/test_it/attention.yaml").exists()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda text: text[:150], "cannot|not readable|cut off|has no"),
        (lambda text: f"<<<<<<< ours\n{text}=======\n{text}>>>>>>> theirs\n", "not readable as YAML"),
        (lambda text: text.replace("  class", "\tclass", 1), "not readable as YAML"),
        (lambda text: text + "model: {}\n", "`model` comes twice"),
        (lambda text: text.replace("call:", "call: &a", 1), "has an alias"),
        (lambda text: "format: !!python/object/apply:os.system ['touch executed']\n" + text, "has a tag"),
        (lambda text: "[" * 100_000, "not readable as YAML|nested too deep"),
    ],
)
def test_a_damaged_golden_is_neither_executed_nor_overwritten(with_golden, damage, message):
    damaged = damage(with_golden.golden.read_text())
    with_golden.golden.write_text(damaged)
    for arguments in ([], ["--update-traces"]):
        code, printed = with_golden.run(*arguments)
        assert code == 1
        assert any(each in printed for each in message.split("|")), printed
        assert "hint: mend it, or delete it and run again" in printed
    assert with_golden.golden.read_text() == damaged
    assert not (with_golden.folder / "executed").exists()


def test_the_plugin_costs_nothing_where_it_is_not_used(tmp_path):
    (tmp_path / "test_it.py").write_text("def test_it():\n    import sys\n    assert 'torch' not in sys.modules\n")
    ran = subprocess.run([sys.executable, "-m", "pytest", "-q"], cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout
    assert not (Path(tmp_path) / "traces").exists()
