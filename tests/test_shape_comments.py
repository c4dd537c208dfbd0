"""Shape comments: what is read as one, which size a symbol has, and what is said of a false one."""

import importlib.util
import io
import json
import sys
import textwrap

import pytest
import torch
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console

import shapetrace
from shapetrace.axes.arithmetic import evaluate, parse_size, solve
from shapetrace.axes.docstrings import entries_in
from shapetrace.axes.grammar import axis_lists_in
from shapetrace.cli import main
from shapetrace.shape_comments.construction import watching_construction
from shapetrace.shape_comments.watching import Watcher

# What is read


def read(comment):
    """Each list as text, with its role where that is not the result."""
    return [(one.text, one.role) if one.role != "result" else one.text for one in axis_lists_in(comment)]


@pytest.mark.parametrize(
    ("comment", "lists"),
    [
        ("(batch, posn, d_model)", ["(batch, posn, d_model)"]),
        ("[B, T]", ["[B, T]"]),
        ("shape (t)", ["(t)"]),
        ("token embeddings of shape (b, t, n_embd)", ["(b, t, n_embd)"]),
        ("B x T x C", ["B x T x C"]),
        ("B,T,C -> B,nh,T,hs", [("B,T,C", "operand"), "B,nh,T,hs"]),
        ("BCHW -> BNC", [("BCHW", "operand"), "BNC"]),
        ("b t c -> b c t", [("b t c", "operand"), "b c t"]),
        (
            "(B, nh, T, hs) x (B, nh, hs, T) -> (B, nh, T, T)",
            [("(B, nh, T, hs)", "operand"), ("(B, nh, hs, T)", "operand"), "(B, nh, T, T)"],
        ),
        ("(B, T, hs) @ (B, hs, T)", [("(B, T, hs)", "operand"), ("(B, hs, T)", "operand")]),
        ("(Dim) * (B, T, Dim) = (B, T, Dim)", [("(Dim)", "operand"), ("(B, T, Dim)", "operand"), "(B, T, Dim)"]),
        ("(B, T, C) to (B*T, C)", [("(B, T, C)", "operand"), "(B*T, C)"]),
        ("(B, T, C) each", ["(B, T, C)"]),
        ("(B, T + past, C // n_head, 3 * n_embd)", ["(B, T + past, C // n_head, 3 * n_embd)"]),
        ("(..., d)", ["(..., d)"]),
        ("(*batch, 1)", ["(*batch, 1)"]),
        ("(batch size, sequence length, d_model)", ["(batch size, sequence length, d_model)"]),
        ("input of size (batch, time-step, channels)", ["(batch, time-step, channels)"]),
        ("B H/2 W/2 4*C", ["B H/2 W/2 4*C"]),
        ("nW*B, window_size, window_size, C", ["nW*B, window_size, window_size, C"]),
        ("-> B*nh, hd, H, W", ["B*nh, hd, H, W"]),
        ("heads together: b x lq x (n*dv)", ["b x lq x (n*dv)"]),
        ("(1, 7, 64) | (1, 7, 256)", [("(1, 7, 64)", "choice"), ("(1, 7, 256)", "choice")]),
        ("torch.Size([2, 3])", ["[2, 3]"]),
        ("(hidden_size,)", ["(hidden_size,)"]),
    ],
)
def test_lists_in_a_comment(comment, lists):
    assert read(comment) == lists


@pytest.mark.parametrize(
    "comment",
    [
        *("(see above)", "(batch first)", "(1)", "(e.g. 0.1)", "f(x, y)", "sqrt(d_head)", "TODO(me): check", ""),
        *("rows sum to 1 over visible keys", "average of v, by the pattern", "token ids -> token vectors"),
        *("key padding mask", "hidden state", "3 x 3 kernel", "2x2 conv", "x[b, t] is next", "(int, optional)"),
        "batch size, sequence length, embedding dimensionality (n_embd)",
        "make torchscript happy (cannot use tensor as tuple)",
        "flash attention needs PyTorch >= 2.0",
        "(B, T, F) -> (B, T, [h1, h1, h2, h2])",
        "the positions [start_pos, start_pos + seq_len]",
    ],
)
def test_prose_is_no_shape(comment):
    assert [one for one in axis_lists_in(comment) if one.role == "result"] == []


@pytest.mark.parametrize(
    ("comment", "each"),
    [
        ("(B, T, C) each", True),
        ("(B, T, C), both", True),
        ("(B, nh, T, hs) for all of them", True),
        ("both are (B, T, C)", True),
        ("each of shape (B, T)", True),
        ("(B, T, C), averaged over all heads", False),
        ("(B, T, C), the sum of both", False),
    ],
)
def test_whether_a_list_is_that_of_every_name(comment, each):
    assert [one.each for one in axis_lists_in(comment)] == [each]


@pytest.mark.parametrize(
    ("text", "sizes", "size"),
    [
        ("3 * n_embd", {"n_embd": 4}, {12}),
        ("C // n_head", {"C": 13, "n_head": 4}, {3}),
        ("T + past - 1", {"T": 5, "past": 2}, {6}),
        ("4C", {"C": 2}, {8}),
        ("H/2", {"H": 7}, {3, 4}),
        ("2 * (h + 1)", {"h": 3}, {8}),
        ("(h w)", {"h": 3, "w": 5}, {15}),
        ("2^n", {"n": 3}, {8}),
        ("T + past", {"T": 5}, set()),
    ],
)
def test_arithmetic(text, sizes, size):
    assert evaluate(parse_size(text), sizes) == size


def test_arithmetic_is_solved_for_the_one_name_that_is_not_known():
    assert solve(parse_size("3 * n_embd"), 12, {}) == ("n_embd", 4)
    assert solve(parse_size("T + past"), 7, {"T": 5}) == ("past", 2)
    assert solve(parse_size("3 * n_embd"), 13, {}) is None
    assert solve(parse_size("C // n"), 13, {"C": 26}) is None
    assert solve(parse_size("a * b"), 12, {}) is None


def test_docstrings():
    docstring = """Attend.

    Args:
        x (torch.Tensor): the stream, of shape
            (batch, seq, d_model)
        mask: (seq, seq) or None
        unknown: (a, b)
    Returns:
        Tensor of shape (batch, seq, d_model)

    Raises:
        ValueError: (never, ever)
    """
    entries = [
        (entry.names, [one.text for one in axis_lists_in(entry.text)])
        for entry in entries_in(docstring, 1, ["x", "mask"])
        if entry.names
    ]
    assert entries == [
        (("x",), ["(batch, seq, d_model)"]),
        (("mask",), ["(seq, seq)"]),
        (("return",), ["(batch, seq, d_model)"]),
    ]


# What is said

HEAD = "from __future__ import annotations\nimport einops, torch\nfrom torch import nn\n"


@pytest.fixture
def check(tmp_path):
    """Check the `Net` of some source; returns the lines and the summary, without the folder."""

    def check(source, *inputs, build="Net()"):
        path = tmp_path / "net.py"
        path.write_text(HEAD + textwrap.dedent(source).lstrip())
        name = f"net_{tmp_path.name}_{len(sys.modules)}"
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
            result = shapetrace.check(eval(build, vars(module)).eval(), *inputs)
        finally:
            del sys.modules[name]
        lines = [str(each).replace(f"{tmp_path}/", "") for each in result.false]
        return [*lines, result.summary]

    return check


ATTENTION = """
    class Net(nn.Module):
        def __init__(self, n_embd=64, n_head=4):
            super().__init__()
            self.n_head = n_head
            self.c_attn = nn.Linear(n_embd, 3 * n_embd)

        def forward(self, x):
            B, T, C = x.size() # batch size, sequence length, embedding dimensionality (n_embd)
            q, k, v = self.c_attn(x).split(C, dim=2) # (B, T, C) each
            k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) # (B, nh, T, hs)
            q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) # (B, nh, T, hs)
            v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) # (B, nh, T, hs)

            # Self-attend: (B, nh, T, hs) x (B, nh, hs, T) -> (B, nh, T, T)
            att = (q @ k.transpose(-2, -1)) / C**0.5
            y = att.softmax(-1) @ v # (B, nh, T, T) x (B, nh, T, hs) -> (B, nh, T, hs)
            y = y.transpose(1, 2).contiguous().view(B, T, C) # re-assemble (side by side)
            return y
"""


@pytest.mark.parametrize("comment", ["(T, B, C)  # type: ignore[misc]", "type: ignore[misc]  # (T, B, C)"])
def test_what_speaks_to_tools_is_no_part_of_a_comment(check, comment):
    source = f"""
    class Net(nn.Module):
        def forward(self, x):
            B, T, C = x.shape
            y = x + 1  # {comment}
            return y
    """
    line, _ = check(source, torch.ones(3, 11, 8))
    assert line.endswith(": y: comment says (T, B, C), is (3, 11, 8): axes 0 and 1 are swapped")


def test_a_scalar_may_be_written_as_one_axis_of_one(check):
    source = """
    class Net(nn.Module):
        def forward(self, x):
            B, T, C = x.shape
            loss = x.mean()  # (1,)
            return loss
    """
    assert check(source, torch.ones(3, 11, 8)) == ["1 shape comment: 1 true, 0 false, 0 not reached"]


def test_true_comments_are_silent(check):
    assert check(ATTENTION, torch.zeros(3, 11, 64)) == ["10 shape comments: 10 true, 0 false, 0 not reached"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) # (B, nh, T, hs)",
            "k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) # (B, T, nh, hs)",
            "net.py:13: k: comment says (B, T, nh, hs), is (3, 4, 11, 16): axes 1 and 2 are swapped",
        ),
        (
            "k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) # (B, nh, T, hs)",
            "k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) # (B, hs, T, nh)",
            "net.py:13: k: comment says (B, hs, T, nh), is (3, 4, 11, 16): axes 1 and 3 are swapped",
        ),
        (
            "# (B, T, C) each",
            "# (B, T, T) each",
            "net.py:12: q: comment says (B, T, T), is (3, 11, 64): "
            "T is 11 (line 11, from x.size()) but axis 2 here is 64",
        ),
        (
            "# (B, T, C) each",
            "# (T, C) each",
            "net.py:12: q: comment says (T, C), is (3, 11, 64): 2 axes named, 3 there: the batch axis is missing",
        ),
        (
            "# (B, T, C) each",
            "# (B, nh, T, C) each",
            "net.py:12: q: comment says (B, nh, T, C), is (3, 11, 64): 4 axes named, 3 there: there is no nh",
        ),
        (
            "# (B, T, C) each",
            "# (B, T, 3 * C) each",
            "net.py:12: q: comment says (B, T, 3 * C), is (3, 11, 64): "
            "3 * C is 192 (C is 64, line 11, from x.size()) but axis 2 here is 64, which is C",
        ),
        (
            "# (B, T, C) each",
            "# (B, T, 128) each",
            "net.py:12: q: comment says (B, T, 128), is (3, 11, 64): axis 2 is 64, not 128",
        ),
        (
            "Self-attend: (B, nh, T, hs) x (B, nh, hs, T)",
            "Self-attend: (B, nh, T, hs) x (B, nh, T, hs)",
            "net.py:17: k.transpose(-2, -1): comment says (B, nh, T, hs), is (3, 4, 16, 11): axes 2 and 3 are swapped",
        ),
        (
            "-> (B, nh, T, T)",
            "-> (B, nh, T, hs)",
            "net.py:17: att: comment says (B, nh, T, hs), is (3, 4, 11, 11): "
            "hs is 16 (line 13) but axis 3 here is 11, which is T",
        ),
    ],
)
def test_each_kind_of_false_comment(check, old, new, said):
    assert old in ATTENTION
    *lines, summary = check(ATTENTION.replace(old, new, 1), torch.zeros(3, 11, 64))
    assert lines[0] == said
    assert f"{len(lines)} false" in summary


ANNOTATED = """
    class Net(nn.Module):
        def __init__(self, heads=4):
            super().__init__()
            self.heads = heads
            self.pos = nn.Parameter(torch.zeros(20, 24))  # (n_ctx, d_model)

        def forward(self, x: Float[Tensor, "batch seq d_model"]) -> Float[Tensor, "batch d_model"]:
            '''Pool.

            Args:
                x (Tensor): the stream, (batch, seq, d_model).
            '''
            x = x + self.pos[: x.shape[1]]
            y = einops.rearrange(x, "b n (h d) -> b h n d", h=self.heads)  # (b, h, n, d)
            return y.transpose(1, 2).flatten(2).mean(1)
"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("", "", []),
        (
            '-> Float[Tensor, "batch d_model"]',
            '-> Float[Tensor, "d_model batch"]',
            ['net.py:10: out: annotation says "d_model batch", is (3, 24): axes 0 and 1 are swapped'],
        ),
        (
            "(batch, seq, d_model).",
            "(batch, d_model).",
            [
                "net.py:14: x: docstring says (batch, d_model), is (3, 11, 24): "
                "2 axes named, 3 there: axis 1 (11) is not named"
            ],
        ),
        (
            "# (b, h, n, d)",
            "# (b, n, h, d)",
            ["net.py:17: y: comment says (b, n, h, d), is (3, 4, 11, 6): axes 1 and 2 are swapped"],
        ),
    ],
)
def test_annotations_docstrings_and_patterns(check, old, new, said):
    assert check(ANNOTATED.replace(old, new), torch.zeros(3, 11, 24))[:-1] == said


def test_a_sentence_before_a_list_tells_of_the_statement_below(check):
    source = """
        class Net(nn.Module):
            def forward(self, q):
                b, lq = q.size(0), q.size(1)
                # Separate different heads: b x lq x n x dv
                q = q.view(b, lq, 2, 4)

                # Transpose for attention dot product: {}
                q = q.transpose(1, 2)

                # Combine all the heads together: b x lq x (n*dv)
                return q.transpose(1, 2).flatten(2)
    """
    assert check(source.format("b x n x lq x dv"), torch.zeros(3, 5, 8)) == [
        "3 shape comments: 3 true, 0 false, 0 not reached"
    ]
    assert check(source.format("b x lq x n x dv"), torch.zeros(3, 5, 8)) == [
        "net.py:10: q: comment says b x lq x n x dv, is (3, 2, 5, 4): axes 1 and 2 are swapped",
        "3 shape comments: 2 true, 1 false, 0 not reached",
    ]


def test_steps_of_one_statement_on_rows_of_their_own(check):
    source = """
        class Net(nn.Module):
            def forward(self, x):
                B, L, nh, hd = x.shape
                # B, L, nh, hd
                # -> B, L, nh*hd
                # -> {}
                # -> B*nh, hd, L
                y = (
                    x.flatten(2)
                    .transpose(1, 2)
                    .reshape(B * nh, hd, L)
                )
                q, k, v = y.unbind(0)[:3]  # -> q, k, v
                return y
    """
    assert check(source.format("B, nh*hd, L"), torch.zeros(3, 5, 2, 7)) == [
        "4 shape comments: 4 true, 0 false, 0 not reached"
    ]
    assert check(source.format("B, L, L"), torch.zeros(3, 5, 2, 7))[-1] == (
        "4 shape comments: 3 true, 1 false, 0 not reached"
    )


def test_arithmetic_says_as_much_of_a_name_as_the_name_alone(check):
    source = """
        class Net(nn.Module):
            def forward(self, x):
                x = x + 1  # (B, n + 1, d)
                y = x * 2  # (B, n + 1, d)
                z = x - y  # (B, n + 1, n)
                return z
    """
    assert check(source, torch.zeros(3, 5, 8)) == [
        "net.py:8: z: comment says (B, n + 1, n), is (3, 5, 8): n is 4 (line 6) but axis 2 here is 8, which is d",
        "3 shape comments: 2 true, 1 false, 0 not reached",
    ]


@pytest.mark.parametrize(
    ("use", "said"),
    [
        ("pass", []),
        (
            "self.stem = nn.Linear(config.num_channels, 8)",
            [
                "net.py:13: x: comment says (B, num_channels), is (3, 8): "
                "num_channels is 5 (self.config.num_channels) but axis 1 here is 8"
            ],
        ),
    ],
)
def test_a_config_binds_the_names_that_the_class_uses(check, use, said):
    source = f"""
        from types import SimpleNamespace

        class Net(nn.Module):
            def __init__(self, config):
                super().__init__()
                self.config = config
                {use}

            def forward(self, x):
                x = x + 1  # (B, num_channels)
                return x
    """
    build = "Net(SimpleNamespace(num_channels=5))"
    assert check(source, torch.zeros(3, 8), build=build)[:-1] == said


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ("(B, T, C)", "(B, C, T)", []),
        (
            "(B, C, T)",
            "(B, C, T)",
            ["net.py:9: out.0: docstring says (B, C, T), is (3, 5, 8): axes 1 and 2 are swapped"],
        ),
        (
            "(B, T, C)",
            "(B, T)",
            ["net.py:10: out.1: docstring says (B, T), is (3, 8, 5): 2 axes named, 3 there: axis 1 (8) is not named"],
        ),
    ],
)
def test_each_of_the_returned_has_its_own_place_in_the_docstring(check, first, second, said):
    source = f"""
        class Net(nn.Module):
            def forward(self, x):  # (B, T, C)
                '''
                Returns:
                    A tuple of
                    - output: {first}
                    - turned: {second}, of the same
                '''
                B, T, C = x.shape
                return x + 1, x.mT
    """
    assert check(source, torch.zeros(3, 5, 8))[:-1] == said


# The command


def test_the_built_in_gpt2_passes_its_own_check():
    ran = CliRunner().invoke(main, ["check", "--set", "n_layers=2"])
    assert (ran.exit_code, ran.stdout) == (0, "52 shape comments: 52 true, 0 false, 0 not reached\n")
    assert ran.stderr == "note: query and key are both 11 here: a comment that takes one for the other would pass\n"


def test_the_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(
        "import torch\n"
        "class Net(torch.nn.Module):\n"
        "    def forward(self, x):  # (B, T)\n"
        "        y = x.mT  # (B, T)\n"
        "        return y\n"
    )
    ran = CliRunner().invoke(main, ["check", "--model", "net.py:Net", "--input", "float32[3,5]"])
    said = "net.py:4: y: comment says (B, T), is (5, 3): axes 0 and 1 are swapped\n"
    assert (ran.exit_code, ran.output) == (1, said + "2 shape comments: 1 true, 1 false, 0 not reached\n")
    ran = CliRunner().invoke(main, ["check", "--model", "net.py:Net", "--input", "float32[3,5]", "--json"])
    plain = json.loads(ran.stdout)
    assert (ran.exit_code, plain["total"], plain["true"], plain["false"], plain["not_reached"]) == (1, 2, 1, 1, 0)
    assert plain["comments"][1] == {
        "file": "net.py",
        "line": 4,
        "kind": "comment",
        "says": "(B, T)",
        "status": "false",
        "name": "y",
        "shape": [5, 3],
        "reason": "axes 0 and 1 are swapped",
        "fix": "(T, B)",
    }
    ran = CliRunner().invoke(main, ["check", "--model", "net.py:Net", "--input", "float32[3]"])
    assert ran.exit_code == 2
    assert ran.output.startswith("error: net.py:Net: the forward raised, so that its comments cannot be checked: ")


NET = """import torch
class Net(torch.nn.Module):
    def forward(self, x):  # (B, T, C)
        B, T, C = x.shape
        y = x.transpose(1, 2)  # (B, T, C)
        z = y.mean(0)  # (C, B), over the batch
        return z  # (B, C, T, T)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_bytes(NET.replace("\n", "\r\n").encode())
    return tmp_path


CHECK_NET = ("check", "--model", "net.py:Net", "--input", "float32[3,5,7]")


def test_annotations_of_a_pull_request(folder):
    ran = CliRunner().invoke(main, [*CHECK_NET, "--format", "github"])
    assert (ran.exit_code, ran.output.splitlines()[0]) == (
        1,
        "::error file=net.py,line=5,title=false shape comment::"
        "y: comment says (B, T, C), is (3, 7, 5): axes 1 and 2 are swapped",
    )
    assert ran.output.splitlines()[-1] == "4 shape comments: 1 true, 3 false, 0 not reached"


def test_fix_rewrites_what_is_certain_and_shows_it(folder):
    ran = CliRunner().invoke(main, [*CHECK_NET, "--fix"])
    assert ran.exit_code == 1
    patch = [line for line in ran.stdout.splitlines() if line[:1] in "+-" and line[:3] not in ("+++", "---")]
    assert patch == [
        "-        y = x.transpose(1, 2)  # (B, T, C)",
        "-        z = y.mean(0)  # (C, B), over the batch",
        "+        y = x.transpose(1, 2)  # (B, C, T)",
        "+        z = y.mean(0)  # (C, T), over the batch",
    ]
    assert ran.stderr == "note: 2 of 3 false comments rewritten\n"
    expected = NET.replace("2)  # (B, T, C)", "2)  # (B, C, T)").replace("(C, B)", "(C, T)")
    assert (folder / "net.py").read_bytes() == expected.replace("\n", "\r\n").encode()
    again = CliRunner().invoke(main, [*CHECK_NET, "--fix"])
    assert again.stdout.splitlines()[-1] == "4 shape comments: 3 true, 1 false, 0 not reached"


def test_models_that_the_project_lists(folder):
    (folder / "pyproject.toml").write_text(
        '[[tool.shapetrace.check]]\nmodel = "net.py:Net"\ninput = "float32[3,5,7]"\n'
        '[[tool.shapetrace.check]]\nmodel = "gpt2-small"\nset = ["n_layers=1"]\n'
    )
    ran = CliRunner().invoke(main, ["check"])
    assert (ran.exit_code, ran.stdout.splitlines()[-1]) == (1, "56 shape comments: 53 true, 3 false, 0 not reached")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("[[tool.shapetrace.check]]\n", "a table of `tool.shapetrace.check` names no `model`"),
        ("[tool.shapetrace]\ncheck = 3\n", "`tool.shapetrace.check` in pyproject.toml is no list of tables"),
        ("[[tool.shapetrace.check]]\nmodle = 'x'\n", "`tool.shapetrace.check` has no `modle`"),
        ("[[tool.shapetrace.check]]\nmodel = 3\n", "`model` of `tool.shapetrace.check` cannot be 3"),
        ("[[tool.shapetrace.chek]]\nmodel = 'x'\n", "`tool.shapetrace` in pyproject.toml has no `chek`"),
        ("[[tool.shape", "`pyproject.toml` cannot be read: "),
    ],
)
def test_a_list_that_cannot_be_read(folder, table, message):
    (folder / "pyproject.toml").write_text(table)
    ran = CliRunner().invoke(main, ["check"])
    assert (ran.exit_code, ran.output.partition(message)[:2]) == (2, ("error: ", message))


@pytest.mark.parametrize(
    ("said", "reason", "fix"),
    [
        ("(B, T, 9)", "axis 2 is 8, not 9", "(B, T, 8)"),
        ("(4, T, 8)", "axis 0 is 3, not 4, which is B", "(B, T, 8)"),  # 3 and 11 are only what the check has chosen
        ("(n, 2 * m, 8)", "axis 1 here is 11, which 2 * m cannot be", None),  # and not m = 4, in another order
    ],
)
def test_what_is_certain_of_a_literal(folder, said, reason, fix):
    head = "ids = ids + 0  # (B, T)" if "T" in said else "pass"
    (folder / "ids.py").write_text(
        "from torch import nn\n\n\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        self.embed = nn.Embedding(9, 8)\n\n    def forward(self, ids):\n        {head}\n"
        f"        return self.embed(ids)  # {said}\n"
    )
    ran = CliRunner().invoke(main, ["check", "--model", "ids.py:Net", "--json"])
    *_, found = json.loads(ran.stdout)["comments"]
    assert (found["status"], found["reason"], found["fix"]) == ("false", reason, fix)


def test_the_batch_is_never_as_large_as_a_text_that_was_given(folder):
    (folder / "ids.py").write_text(
        "from torch import nn\n\n\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.embed = nn.Embedding(9, 8)\n\n    def forward(self, ids):\n"
        "        B, T = ids.shape\n        return self.embed(ids)  # (T, B, C)\n"
    )
    ran = CliRunner().invoke(main, ["check", "--model", "ids.py:Net", "--ids", "1,2,3"])
    assert ran.stdout.splitlines()[0] == (
        "ids.py:11: out: comment says (T, B, C), is (5, 3, 8): axes 0 and 1 are swapped"
    )


def test_a_golden_trace_with_a_false_shape_comment_fails(pytester):
    pytester.makepyfile(net=NET)
    pytester.makepyfile(
        "import net, torch\n"
        "def test_net(golden_trace):\n"
        "    golden_trace.check(net.Net(), torch.ones(3, 5, 7), shape_comments=True)\n"
    )
    ran = pytester.runpytest_inprocess("-p", "no:cacheprovider")
    ran.assert_outcomes(failed=1)
    ran.stdout.fnmatch_lines(
        ["*shape comments are not true:*", "*net.py:5: y: comment says (B, T, C), is (3, 7, 5): *"]
    )


# What a trace takes over


class Described(torch.nn.Module):
    def forward(self, x, mask):
        """Pool.

        Args:
            x (Tensor): the stream, of shape (batch, posn, d_model)
            mask: (batch, posn), (optional)
        """
        # (batch, d_model, posn)
        turned = x.mT
        flat = turned.flatten(1)  # batch x width
        # NCL -> NLC
        back = turned.permute(0, 2, 1)
        # see above (twice)
        return back


def test_axis_names_in_the_trace_and_on_the_screen():
    trace = shapetrace.record(Described(), torch.ones(2, 3, 4), torch.ones(2, 3))
    axes = {step.name: step.axes for step in trace.calls[0].steps}
    assert axes == {
        "x": ("batch", "posn", "d_model"),
        "mask": ("batch", "posn"),
        "turned": ("batch", "d_model", "posn"),
        "flat": ("batch", "width"),
        "back": ("N", "L", "C"),
    }
    console = Console(file=io.StringIO(), width=80)
    console.print(trace)
    assert "turned (2, 4, 3)  batch d_model posn\n" in console.file.getvalue()


# Any edit


ROW = "            {name} = {name}.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) # (B, nh, T, hs)"


@given(st.sampled_from("kqv"), st.permutations(["B", "nh", "T", "hs"]))
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_other_order_is_found_at_its_line(check, name, order):
    row = ROW.format(name=name)[8:]
    assert row in ATTENTION
    edited = row.replace("B, nh, T, hs)", f"{', '.join(order)})")
    *lines, summary = check(ATTENTION.replace(row, edited), torch.zeros(3, 11, 64))
    if order == ["B", "nh", "T", "hs"]:
        assert lines == []
        return
    moved = [index for index, axis in enumerate(["B", "nh", "T", "hs"]) if order[index] != axis]
    swap = f"axes {moved[0]} and {moved[-1]} are swapped" if len(moved) == 2 else "the order is (B, nh, T, hs)"
    line = {"k": 13, "q": 14, "v": 15}[name]
    assert lines == [f"net.py:{line}: {name}: comment says ({', '.join(order)}), is (3, 4, 11, 16): {swap}"]


@given(st.text("(),[]{}BTC hsx@*+-/>=:.#'\"0123456789\nabc_…→", max_size=40))
@settings(max_examples=300, deadline=None)
def test_no_text_is_too_odd_to_read(text):
    for one in axis_lists_in(text):
        assert text[one.start : one.end] == one.text


def test_a_mistake_of_ours_does_not_come_out_of_a_constructor(tmp_path, monkeypatch):
    (tmp_path / "net.py").write_text(
        "class Net:\n    def __init__(self):\n        self.done = False\n        self.done = True\n"
    )
    spec = importlib.util.spec_from_file_location("net_of_ours", tmp_path / "net.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(Watcher, "begin", lambda *arguments: 1 / 0)
    built, before = [], sys.gettrace()
    with pytest.raises(ZeroDivisionError), watching_construction():
        built.append(module.Net())
    assert (built[0].done, sys.gettrace()) == (True, before)
