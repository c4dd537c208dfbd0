"""shapetrace attention: which tensors are patterns, which layer is meant, and what the screen shows."""

import io
import json
import textwrap
import xml.etree.ElementTree

import pytest
import torch
from click.testing import CliRunner
from rich.console import Console

from shapetrace.cli import main
from shapetrace.errors import ShapetraceError
from shapetrace.pattern_search import as_heads
from shapetrace.patterns import Pattern, choose_layer, layer_of, number_layers, without_heads
from shapetrace.render.attention import SmallMultiples, render_pattern
from shapetrace.render.page import render_pattern_page
from shapetrace.render.theme import THEME

MODELS = '''
import torch
from torch import nn
from torch.nn import functional as F

WIDTH = 8


class Named(nn.Module):
    """As in nanoGPT, with dropout behind the softmax."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (each.view(B, T, 2, C // 2).transpose(1, 2) for each in self.qkv(x).split(C, dim=2))
        att = (q @ k.mT).masked_fill(torch.ones(T, T).triu(1).bool(), -torch.inf)
        att = F.softmax(att, dim=-1)
        att = self.drop(att)
        return (att @ v).transpose(1, 2).reshape(B, T, C)


class Unnamed(Named):
    def forward(self, x):
        return (x @ x.mT).softmax(-1) @ x


class Fused(Named):
    def forward(self, x):
        return F.scaled_dot_product_attention(x, x, x, is_causal=True)


class Library(nn.Module):
    """torch's own, which returns the average over its heads."""

    def __init__(self):
        super().__init__()
        self.inner = nn.MultiheadAttention(WIDTH, 2, batch_first=True)

    def forward(self, x):
        return self.inner(x, x, x)[0]


class Modules(nn.Module):
    """softmax and dropout as modules, the query axis last, and a head for each module."""

    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleList(Head() for _ in range(3))

    def forward(self, x):
        return sum(head(x) for head in self.heads)


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(WIDTH, WIDTH)
        self.softmax, self.drop = nn.Softmax(dim=-2), nn.Dropout(0.1)

    def forward(self, x):
        weights = self.drop(self.softmax(self.lin(x) @ x.mT))  # (batch, key, query)
        return weights.mT @ x


class Raises(Named):
    def forward(self, x):
        return x @ x


class Model(nn.Module):
    def __init__(self, kind=Named, layers=3):
        super().__init__()
        self.wte = nn.Embedding(50257, WIDTH)
        self.h = nn.ModuleList(kind() for _ in range(layers))

    def forward(self, idx):
        x = self.wte(idx)
        for layer in self.h:
            x = layer(x)
        return x


class OneForward(nn.Module):
    """All layers in one forward."""

    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(50257, WIDTH)

    def forward(self, idx):
        x = self.wte(idx)
        for scale in (1.0, 2.0, 3.0):
            pattern = (scale * x @ x.mT).softmax(-1)
            x = pattern @ x
        return x


class Image(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = Named()

    def forward(self, image):
        return self.attn(image.flatten(2).mT)
'''


@pytest.fixture(autouse=True)
def in_a_folder_with_models(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models.py").write_text(MODELS)


def run(*arguments, code=0):
    result = CliRunner().invoke(main, ["attention", *map(str, arguments)])
    assert result.exit_code == code, result.output + repr(result.exception)
    return result


def plain(*arguments):
    return json.loads(run(*arguments, "--json").stdout)


def where(found):
    return found["layer"], found["module"], found["tensor"], found["source"], len(found["heads"])


def sums_to_one(found):
    size = len(found["tokens"])
    value = torch.tensor([head["pattern"] for head in found["heads"]])
    return value.shape[1:] == (size, size) and torch.allclose(value.sum(-1), torch.ones(len(value), size))


@pytest.mark.parametrize(
    ("model", "arguments", "expected"),
    [
        ("Model", (), (0, "h.0", "att", "models.py:21", 2)),
        ("Model", ("--layer", 2), (2, "h.2", "att", "models.py:21", 2)),
        ("Model", ("--layer", 2, "--head", 1), (2, "h.2", "att", "models.py:21", 1)),
        ("Model", ("--module", "h.1"), (1, "h.1", "att", "models.py:21", 2)),
        ("Model(Library)", ("--layer", 1), (1, "h.1.inner", "out.1", "", 1)),
        ("Model(Modules)", ("--layer", 1), (1, "h.1.heads", "weights", "models.py:65", 3)),
        ("OneForward", ("--layer", 1), (1, "", "pattern", "models.py:97", 1)),
    ],
)
def test_a_pattern_is_found_by_its_values(model, arguments, expected):
    found = plain("The cat sat", "--model", f"models.py:{model}", *arguments)
    assert where(found) == expected
    assert found["tokens"] == ["<|endoftext|>", "The", " cat", " sat"]
    assert sums_to_one(found)


def test_a_model_of_transformers():
    model = "hf:gpt2?n_layer=2&n_embd=8&n_head=2"
    found = plain("The cat", "--model", f"{model}&attn_implementation=eager", "--layer", 1)
    assert (found["module"], found["tensor"], len(found["heads"])) == ("transformer.h.1.attn", "attn_weights", 2)
    assert sums_to_one(found)
    assert run("The cat", "--model", model, code=2).stderr.endswith(
        f"error: {model} shows no attention pattern: its attention is fused into one operation, which makes none\n\n"
        f"hint: run it with the attention that does: --model '{model}&attn_implementation=eager'\n"
    )


def test_eager_attention_runs_on_the_weights_that_a_folder_holds(tmp_path):
    from transformers import GPT2Config, GPT2LMHeadModel

    GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=8, n_head=2)).save_pretrained(tmp_path / "mine")
    found = plain("The cat", "--model", "hf:mine?attn_implementation=eager")
    assert found["weights"] == "pretrained (mine?attn_implementation=eager)"
    assert "no pretrained weights are for mine with another n_head\n" in (
        run("The cat", "--model", "hf:mine?n_head=1", "--weights", "pretrained", code=2).stderr
    )


def test_forge():
    options = ["The cat", "--model", "forge-small", "--set", "n_layers=2", "--set", "d_model=24", "--weights", "random"]
    assert run(*options, code=2).stderr.endswith("\n\nhint: run it step by step: `--set attention=manual`\n")
    found = plain(*options, "--set", "attention=manual", "--layer", 1)
    assert (found["module"], found["tensor"], len(found["heads"])) == ("layers.1.attn", "attn_pattern", 12)
    assert sums_to_one(found)


def test_a_built_in_is_what_its_own_forward_makes():
    from shapetrace.divergence.observation import observe
    from shapetrace.target import build_target
    from shapetrace.tokens import encode

    sizes = ("n_layers=2", "d_model=8", "n_heads=2", "d_head=4", "d_mlp=16", "n_ctx=8")
    sets = [word for each in sizes for word in ("--set", each)]
    found = plain("The cat", *sets, "--weights", "random", "--layer", 1)
    seen = observe(build_target("gpt2-small", sizes, "random").model, torch.tensor([encode("The cat")]))
    (expected,) = (each.value for each in seen.tensors if each.name == "blocks.1.attn.attn_pattern")
    assert [head["pattern"] for head in found["heads"]] == expected[0].tolist()
    assert where(found)[:3] == (1, "blocks.1.attn", "attn_pattern")


def test_a_model_that_takes_no_text():
    found = plain("--model", "models.py:Image", "--input", "image=float32[1,8,2,3]")
    assert (where(found)[1:3], found["tokens"]) == (("attn", "att"), ["0", "1", "2", "3", "4", "5"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--layer", "3"],
            "error: models.py:Model has no layer 3 with an attention pattern\n\nhint: there is 0 (h.0), 1",
        ),
        (["--head", "2"], "error: h.0 has no head 2\n\nhint: its heads are 0 to 1\n"),
        (["--module", "h.7"], "error: `h.7` has no attention pattern in models.py:Model\n\nhint: did you"),
        (["--layer", "-1"], "Usage: "),
        (["--layer", "1", "--module", "h.1"], "Usage: "),
        (["--svg", "none/a.svg"], "error: cannot write `none/a.svg`"),
        (["--html", "none/a.html"], "error: cannot write `none/a.html`"),
        (["--tokenizer", "none"], "error: there is no folder `none`"),
    ],
)
def test_bad_input_is_one_message_and_exit_2(arguments, message):
    result = run("The cat", "--model", "models.py:Model", *arguments, code=2)
    assert result.stdout == ""
    assert result.stderr.startswith(message)


def test_a_model_without_a_pattern():
    assert run("The cat", "--model", "models.py:Model(Unnamed)", code=2).stderr == (
        "error: models.py:Model(Unnamed) shows no attention pattern: no tensor with a name has rows of weights that "
        "sum to 1\n\nhint: bind what the softmax returns to a name, such as `att = scores.softmax(-1)`\n"
    )
    assert "its attention is fused into one operation" in (
        run("The cat", "--model", "models.py:Model(Fused)", code=2).stderr
    )


def test_a_forward_that_raises():
    result = run("The cat", "--model", "models.py:Model(Raises)", code=1)
    assert "✗ h.0  models.py:71" in result.stdout
    assert "return x @ x" in result.stdout


CAUSAL = torch.tensor([[1.0, 0, 0], [0.25, 0.75, 0], [0.5, 0.25, 0.25]])


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (CAUSAL, (1, 3, 3)),
        (CAUSAL.expand(1, 2, 3, 3), (2, 3, 3)),
        (CAUSAL.expand(1, 2, 5, 3, 3), (10, 3, 3)),
        (CAUSAL.double().expand(2, 3, 3), (2, 3, 3)),
        (CAUSAL.bfloat16(), (1, 3, 3)),
        (CAUSAL.mT.expand(1, 2, 3, 3), (2, 3, 3)),  # (batch, head, key, query)
        (CAUSAL.expand(1, 2, 3, 3).permute(0, 2, 3, 1), (2, 3, 3)),  # (batch, query, key, head)
        (torch.full((1, 2, 3, 4), 0.25), (2, 3, 4)),  # across to another text
        (torch.full((1, 3, 4), 0.25), None),  # a distribution over something else
        (torch.eye(3), None),
        (CAUSAL.bool().float(), None),
        (CAUSAL - 0.1 * torch.eye(3), None),
        (torch.ones(3, 3, dtype=torch.int64), None),
        (CAUSAL.to("meta"), None),
        (torch.tensor([0.5, 0.5]), None),
        (torch.full((1, 3, 3), torch.nan), None),
    ],
)
def test_what_is_a_pattern(tensor, expected):
    heads = as_heads(tensor, 3)
    assert (None if heads is None else tuple(heads.shape)) == expected
    if tensor.shape[-1] == 3 and expected is not None:
        assert torch.equal(heads, CAUSAL.expand_as(heads))


def test_the_layer_that_a_path_tells():
    assert [layer_of(path) for path in ("blocks.3.attn", "h.0.sa.heads.2", "attn", "heads.1")] == [3, 0, None, None]
    assert [without_heads(path) for path in ("blocks.3.attn", "h.0.sa.heads.2")] == ["blocks.3.attn", "h.0.sa.heads"]
    assert number_layers(["h.4.attn", "h.8.attn"]) == [(4, "h.4.attn"), (8, "h.8.attn")]
    both = number_layers(["encoder.0", "decoder.0.self", "decoder.0.cross"])
    assert [number for number, _ in both] == [0, 1, 2]
    assert choose_layer(both, None, "decoder.0", "M") == 1
    with pytest.raises(ShapetraceError, match=r"there is 4 \(h.4\), 8 \(h.8\)"):
        choose_layer(number_layers(["h.4", "h.8"]), 5, None, "M")


ROWS = ((1.0, 0.0, 0.0), (0.6, 0.4, 0.0), (0.7, 0.04, 0.26))
LABELS = ["<|endoftext|>", "The", " cat"]


def printed(renderable, width=80, encoding="utf-8", **options):
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=stream, width=width, theme=THEME, highlight=False, color_system=None, **options)
    console.print(renderable)
    stream.seek(0)
    return "".join(f"{line.rstrip()}\n" for line in stream.read().splitlines())


def test_one_head_in_figures():
    pattern = Pattern(5, "blocks.5.attn", "attn_pattern", "attention.py:66", 12, {3: ROWS})
    assert printed(render_pattern("gpt2-small", "random (seed 0)", pattern, LABELS)) == textwrap.dedent("""\
        gpt2-small  weights: random (seed 0)

        blocks.5.attn  attn_pattern  attention.py:66  layer 5, 12 heads

        head 3 attention pattern
        query / key  <BOS>   The   cat
              <BOS>   1.00  0.00  0.00
                The   0.60  0.40  0.00
                cat   0.70  0.04  0.26

        The weights are random: what a head looks at means nothing.
    """)


def test_one_head_of_a_longer_text_in_shades():
    pattern = Pattern(5, "blocks.5.attn", "att", "", 1, {0: ROWS})
    shown = printed(render_pattern("mine", "mine.safetensors", pattern, LABELS), width=30)
    assert shown == textwrap.dedent("""\
        mine  weights:
        mine.safetensors

        blocks.5.attn  att  layer 5, 1
        head

        head 0 attention pattern: each
        row asks, and reads the
        columns
        · under 0.05  ░ 0.05  ▒ 0.2  ▓
        0.4  █ 0.7 and more; blank: 0
                0
        0 <BOS> ██
        1 The   ▓▓▓▓
        2 cat   ██··▒▒
    """)


def test_a_map_that_is_wider_than_the_line_goes_on_below():
    size = 14
    rows = tuple(tuple(1 / (at + 1) if key <= at else 0.0 for key in range(size)) for at in range(size))
    pattern = Pattern(0, "attn", "att", "", 1, {0: rows})
    shown = printed(render_pattern("mine", "mine", pattern, ["a"] * size), width=12).splitlines()
    first, second = shown.index("     0    5"), shown.index("        10")
    assert shown[first + 1 : first + 3] == [" 0 a █", " 1 a ▓▓"]
    assert shown[second - 1 : second + 2] == ["13 a ░░░░░░░", "        10", " 0 a"]
    assert shown[-1] == "13 a ░░░░░░░"


def test_all_heads_as_small_maps():
    assert printed(SmallMultiples({0: ROWS, 1: ROWS[::-1]}, LABELS)) == textwrap.dedent("""\
        each row asks, and reads the columns; both in the order of the text
        · under 0.05  ░ 0.05  ▒ 0.2  ▓ 0.4  █ 0.7 and more; blank: 0

        head 0   head 1
        ██       ██··▒▒
        ▓▓▓▓     ▓▓▓▓
        ██··▒▒   ██

        0:<BOS>  1:The  2:cat
    """)


def test_small_maps_where_a_terminal_has_ascii_only():
    shown = printed(SmallMultiples({0: ROWS}, LABELS), encoding="ascii")
    assert shown.splitlines()[1:7] == [
        ". under 0.05  : 0.05  + 0.2  # 0.4  @ 0.7 and more; blank: 0", "", "head 0", "@@", "####", "@@..++",
    ]  # fmt: skip


def test_small_maps_of_a_text_that_is_longer_than_the_line():
    rows = tuple(tuple(float(key == at) for key in range(50)) for at in range(50))
    shown = printed(SmallMultiples({0: rows}, []), width=20).splitlines()
    start = shown.index("head 0")
    assert shown[start - 4 : start - 1] == ["most that is read", "among 3 x 3", "positions"]
    assert shown[start + 1 : start + 18] == [" " * at + "█" for at in range(17)]


def test_colours_are_left_out_where_they_are_not_wanted(monkeypatch):
    coloured = CliRunner(env={"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLORTERM": "truecolor"})
    arguments = ["attention", "The cat", "--model", "models.py:Model", "--head", "0"]
    assert "\x1b[38;2;0;0;0;48;2;255;190;92m" in coloured.invoke(main, arguments).stdout
    plain = CliRunner(env={"FORCE_COLOR": "1", "NO_COLOR": "1"}).invoke(main, arguments)
    assert "48;2" not in plain.stdout
    assert "1.00" in plain.stdout


def test_the_page_and_the_picture(tmp_path):
    run("The <b>", "--model", "models.py:Model", "--head", 1, "--svg", "a.svg", "--html", "a.html")
    xml.etree.ElementTree.parse(tmp_path / "a.svg")
    page = (tmp_path / "a.html").read_text()
    assert "title='&lt;BOS&gt; reads &lt;BOS&gt;: 1.00'>1.00</td>" in page
    assert page.count("<tr>") == 1 + 5
    assert sorted(each.name for each in tmp_path.iterdir() if each.is_file()) == ["a.html", "a.svg", "models.py"]


def test_the_page_of_a_layer():
    page = render_pattern_page("mine", "random (seed 0)", Pattern(0, "attn", "att", "", 2, {0: ROWS, 1: ROWS}), LABELS)
    assert page.count("<details data-name='head ") == 2
    assert "The weights are random" in page
    assert "<td style='--part:4.0%' title='cat reads The: 0.04'>0.04</td>" in page
