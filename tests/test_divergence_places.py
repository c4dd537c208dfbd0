"""One line of a right model changed: which tensor and which line of the source the diff points at."""

import importlib.util
import itertools
from pathlib import Path

import pytest
import torch
from rich.console import Console

import shapetrace
from shapetrace.render.report import render_asked
from shapetrace.render.theme import THEME
from shapetrace.report import to_plain

TOKENS = torch.tensor([[100, 3, 1, 4, 1, 5, 9], [100, 2, 6, 5, 3, 5, 8]])
FOLDER = Path(__file__).parent
NUMBERS = itertools.count()
BUILD = {
    "textbook": ("other_layouts.py", lambda module: module.Textbook()),
    "nanoGPT": ("other_layouts.py", lambda module: module.NanoGPT(module.GPTConfig(flash=False))),
    "by hand": ("handwritten.py", lambda module: module.GPT2()),
}


@pytest.fixture
def diff_of(tmp_path):
    """The report on a model with each `old` line of its source written as `new`."""

    def diff(which, *edits, **options):
        file, build = BUILD[which]
        source = (FOLDER / file).read_text()
        for old, new in edits:
            assert old in source, old
            source = source.replace(old, new)
        path = tmp_path / "mine.py"
        path.write_text(source)
        spec = importlib.util.spec_from_file_location(f"placed_{next(NUMBERS)}", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return shapetrace.diff(build(module).eval(), TOKENS, **options)

    return diff


def place_of(report):
    found = report.first_divergence
    return found.row.reference, found.row.yours, found.source.partition("\n")[0].strip()


SCORES = [
    (("queries @ keys.transpose(2, 3)", "keys @ queries.transpose(2, 3)"), "keys @ queries.transpose(2, 3)"),
    (("queries @ keys.transpose(2, 3)", "queries @ queries.transpose(2, 3)"), "queries @ queries.transpose(2, 3)"),
    (("queries @ keys.transpose(2, 3)", "2 * queries @ keys.transpose(2, 3)"), "2 * queries @ keys.transpose(2, 3)"),
    (
        ("queries @ keys.transpose(2, 3)", "(queries @ keys.transpose(2, 3)).sin()"),
        "(queries @ keys.transpose(2, 3)).sin()",
    ),
]


@pytest.mark.parametrize(("edit", "made"), SCORES)
def test_scores_that_are_divided_later_are_wrong_where_they_are_made(diff_of, edit, made):
    expected = ("blocks.0.attn.hook_attn_scores", "trf_blocks.0.att.attn_scores", f"attn_scores = {made}")
    assert place_of(diff_of("textbook", edit)) == expected


def test_a_mask_is_wrong_where_it_is_applied_and_not_before(diff_of):
    report = diff_of("textbook", ("triu(1))", "triu(0))"))
    mask = "attn_scores.masked_fill_(self.mask.bool()[:length, :length], -torch.inf)"
    assert place_of(report) == ("blocks.0.attn.hook_attn_scores", "trf_blocks.0.att.attn_scores", mask)
    assert report.first_divergence.stage == "before the division by sqrt(d_head) = 2.828"
    unmasked = diff_of("by hand", ("        scores = scores.masked_fill(future, -math.inf)\n", ""))
    assert place_of(unmasked)[2].startswith("scores = torch.einsum(")


def test_scores_that_are_right_until_they_are_divided_are_not_blamed(diff_of):
    divided = "torch.softmax(attn_scores / keys.shape[-1] ** 0.5, dim=-1)"
    for wrong in ("torch.softmax(attn_scores / keys.shape[2] ** 0.5, dim=-1)", f"{divided} ** 1.1"):
        place = place_of(diff_of("textbook", (divided, wrong)))
        assert place == ("blocks.0.attn.hook_pattern", "trf_blocks.0.att.attn_weights", f"attn_weights = {wrong}")


NORM = "(x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + 1e-5)"


@pytest.mark.parametrize(
    ("lines", "place"),
    [
        (
            ("mean = x.mean(-1, keepdim=True)", "var = x.var(-1, keepdim=True)"),
            ("blocks.0.ln1.hook_scale", "trf_blocks.0.norm1.var", "var = x.var(-1, keepdim=True)"),
        ),
        (
            ("mean = x.mean(1, keepdim=True)", "var = x.var(-1, keepdim=True, unbiased=False)"),
            ("blocks.0.ln1.hook_normalized", "trf_blocks.0.norm1.mean", "mean = x.mean(1, keepdim=True)"),
        ),
        (
            ("mean = x.mean(-1, keepdim=True)", "var = x.std(-1, keepdim=True, unbiased=False)"),
            ("blocks.0.ln1.hook_scale", "trf_blocks.0.norm1.var", "var = x.std(-1, keepdim=True, unbiased=False)"),
        ),
    ],
)
def test_a_norm_is_wrong_where_its_mean_or_variance_is(diff_of, lines, place):
    indented = "\n        ".join((*lines, "norm_x = (x - mean) / torch.sqrt(var + 1e-5)"))
    assert place_of(diff_of("textbook", (f"norm_x = {NORM}", indented))) == place


@pytest.mark.parametrize(
    ("which", "old", "new"),
    [
        ("textbook", "x = self.tok_emb(in_idx) + self", "x = self.tok_emb(in_idx) * 3 + self"),
        ("textbook", "x = self.tok_emb(in_idx) + self", "x = self.tok_emb(in_idx).tanh() + self"),
        ("nanoGPT", "x = self.transformer.wte(idx) + self", "x = self.transformer.wte(idx) * self"),
        ("by hand", "stream = self.embed(tokens) + self", "stream = self.embed(tokens) - self"),
    ],
)
def test_the_sum_of_the_embeddings_is_wrong_where_it_is_made(diff_of, which, old, new):
    reference, yours, source = place_of(diff_of(which, (old, new)))
    assert (reference, yours) == ("blocks.0.hook_resid_pre", new.partition(" ")[0])
    assert source.startswith(new)


HEAD = "return self.lm_head(x[:, [-1]]), None"


@pytest.mark.parametrize(
    ("new", "yours", "source"),
    [
        ("x = x * 2\n        " + HEAD, "x", "x = x * 2"),
        ("x = x.sin().cos()\n        " + HEAD, "x", "x = x.sin().cos()"),
        (
            HEAD.replace("[-1]]", "[-1]].sin().cos()"),
            "lm_head.input",
            HEAD.replace("[-1]]", "[-1]].sin().cos()"),
        ),
    ],
)
def test_what_is_done_to_the_last_norm_is_not_the_heads_mistake(diff_of, new, yours, source):
    assert place_of(diff_of("nanoGPT", (HEAD, new))) == ("ln_final.hook_out", yours, source)


@pytest.mark.parametrize(
    ("which", "old", "new", "place"),
    [
        (
            "textbook",
            'nn.GELU(approximate="tanh")',
            "nn.Identity()",
            ("blocks.0.mlp.hook_post", "trf_blocks.0.ff.layers.2.input", "return self.layers(x)"),
        ),
        (
            "by hand",
            "self.mlp(self.ln2(middle))",
            "self.mlp(self.ln1(middle))",
            ("blocks.0.ln2.hook_out", "blocks.0.mlp.x", "return middle + self.mlp(self.ln1(middle))"),
        ),
        (
            "by hand",
            "x + self.attn(self.ln1(x))",
            "x + self.attn(x)",
            ("blocks.0.ln1.hook_out", "blocks.0.attn.x", "middle = x + self.attn(x)"),
        ),
        (
            "by hand",
            "self.attn(self.ln1(x))",
            "self.attn(3 * self.ln1(x))",
            ("blocks.0.ln1.hook_out", "blocks.0.attn.x", "middle = x + self.attn(3 * self.ln1(x))"),
        ),
        (
            "by hand",
            "self.unembed(self.ln_final(stream))",
            "self.unembed(self.blocks[0].ln1(stream))",
            ("ln_final.hook_out", "unembed.x", "return self.unembed(self.blocks[0].ln1(stream))"),
        ),
        (
            "by hand",
            "self.ln2(middle)",
            "self.ln2(x)",
            ("blocks.0.ln2.hook_scale", "blocks.0.ln2.std", "return middle + self.mlp(self.ln2(x))"),
        ),
    ],
)
def test_what_has_no_name_is_told_at_the_call(diff_of, which, old, new, place):
    """A module that is right by itself is not to blame for what it is given, nor its signature."""
    assert place_of(diff_of(which, (old, new))) == place


@pytest.mark.parametrize(
    ("which", "old", "new", "place"),
    [
        (
            "by hand",
            "stream = self.embed(tokens) + self.pos_embed(tokens)",
            "stream = self.embed(tokens)",
            ("blocks.0.hook_resid_pre", "stream", "stream = self.embed(tokens)"),
        ),
        (
            "nanoGPT",
            "x = x + self.attn(self.ln_1(x))",
            "x = self.attn(self.ln_1(x))",
            ("blocks.0.hook_resid_mid", "transformer.h.0.x", "x = self.attn(self.ln_1(x))"),
        ),
        (
            "by hand",
            "for block in self.blocks:",
            "for block in self.blocks[:-1]:",
            ("blocks.1.hook_resid_post", "stream", "stream = block(stream)"),
        ),
    ],
)
def test_what_lacks_something_is_told_where_it_got_its_name(diff_of, which, old, new, place):
    assert place_of(diff_of(which, (old, new))) == place


def test_a_helper_that_is_given_something_without_a_name(diff_of):
    helper = "def apply(weight, x):\n    return x @ weight\n\n\nclass Unembed"
    report = diff_of("by hand", ("class Unembed", helper), ("return x @ self.W_U", "return apply(self.W_U, x.sin())"))
    assert place_of(report)[2] == "return apply(self.W_U, x.sin()) + self.b_U"


def test_what_is_done_to_a_projection_in_its_own_line(diff_of):
    keys = "keys, queries, values = self.W_key(x), self.W_query(x), self.W_value(x)"
    twice = keys.replace("self.W_value(x)", "self.W_value(x) + self.W_value.bias")
    report = diff_of("textbook", (keys, twice))
    assert place_of(report) == ("blocks.0.attn.hook_v", "trf_blocks.0.att.values", twice)


def test_what_a_block_is_given_has_the_blocks_name_for_it(diff_of):
    loop = "for block in self.blocks:\n            stream = block(stream)"
    place = place_of(
        diff_of(
            "by hand", (loop, "first = stream\n        for block in self.blocks:\n            stream = block(first)")
        )
    )
    assert place == ("blocks.1.hook_resid_pre", "blocks.1.x", "stream = block(first)")


def test_layers_in_another_order_are_told_at_the_first_that_is_out_of_turn(diff_of):
    attn, mlp = "        x = x + self.attn(self.ln_1(x))\n", "        x = x + self.mlp(self.ln_2(x))\n"
    report = diff_of("nanoGPT", (attn + mlp, mlp + attn))
    assert place_of(report) == ("blocks.0.ln1.hook_out", "transformer.h.0.ln_1.out", attn.strip())


def test_a_step_towards_an_activation_is_compared_as_that(diff_of):
    report = diff_of("textbook")
    assert report.ok
    assert all(row.difference is None or row.difference.ok for row in report.tensors)


def screen_of(report):
    console = Console(width=80, color_system=None, theme=THEME)
    with console.capture() as captured:
        console.print(render_asked(report) if report.asked else report)
    return captured.get()


def test_raw_scores_are_asked_for(diff_of):
    for name in ("trf_blocks.0.att.attn_scores", "blocks.0.attn.attn_scores"):
        report = diff_of("textbook", tensor=name)
        assert (report.asked.row.reference, report.asked.factor) == ("blocks.0.attn.hook_attn_scores", None)
        assert report.asked.row.difference.ok
        same = "the same, both are before the mask and the division by sqrt(d_head) = 2.828: max"
        assert same in screen_of(report)
        assert to_plain(report)["asked"]["stage"] == "before the mask and the division by sqrt(d_head) = 2.828"


def test_a_tensor_with_a_second_name_is_asked_for(diff_of):
    report = diff_of("textbook", tensor="trf_blocks.0.shortcut")
    assert (report.asked.row.reference, report.asked.source) == ("blocks.0.hook_resid_mid", "shortcut = x")
    assert report.asked.row.difference.ok


def test_a_tensor_that_is_a_multiple_is_asked_for(diff_of):
    doubled = "v = torch.einsum("
    report = diff_of("by hand", (doubled, f"v = 2.5 * {doubled[4:]}"), tensor="blocks.0.attn.v", rtol=1e-5)
    assert report.asked.factor is None  # the bias is not doubled
    report = diff_of("by hand", ("scores.softmax(-1)", "2.5 * scores.softmax(-1)"), tensor="blocks.0.attn.pattern")
    assert round(report.asked.factor, 5) == 2.5
    assert "yours is 2.5 times the reference, and nothing else is different" in screen_of(report)


def test_the_values_of_what_has_no_simple_cause_are_told_once(diff_of):
    report = diff_of("by hand", ("stream = self.embed(tokens) +", "stream = self.embed(tokens).cos() *"))
    screen = screen_of(report)
    assert report.first_divergence.cause.detail.startswith("Furthest apart at [")
    assert "\nNo simple cause gives it.\n" in screen
    assert "Furthest" not in screen


def test_transposed_scores_are_shown_as_they_lie(diff_of):
    report = diff_of("textbook", SCORES[0][0])
    assert not report.first_divergence.row.difference.ok
    assert "\nboth are before the mask and the division by sqrt(d_head) = 2.828\n" in screen_of(report)


def test_a_stream_that_is_changed_before_the_last_norm_is_told_where_it_is_changed(diff_of):
    place = place_of(
        diff_of("nanoGPT", ("x = self.transformer.ln_f(x)", "x = x.relu()\n        x = self.transformer.ln_f(x)"))
    )
    assert place == ("ln_final.hook_out", "transformer.ln_f.out", "x = x.relu()")
    place = place_of(
        diff_of(
            "nanoGPT", ("x = self.transformer.ln_f(x)", "x = x + x.sin().cos()\n        x = self.transformer.ln_f(x)")
        )
    )
    assert place == ("blocks.1.hook_resid_post", "x", "x = x + x.sin().cos()")


def test_an_extra_norm_of_the_embeddings_is_told_where_it_is_made(diff_of):
    total, norm = "self.transformer.wte(idx) + self.transformer.wpe", "self.transformer.h[0].ln_1"
    source = (FOLDER / "other_layouts.py").read_text()
    line = next(each for each in source.splitlines() if f"x = {total}" in each).strip()
    wrong = f"x = {norm}({line.removeprefix('x = ')})"
    assert place_of(diff_of("nanoGPT", (line, wrong))) == ("blocks.0.hook_resid_pre", "x", wrong)


def test_a_module_that_runs_twice_is_told_at_the_call_that_is_wrong(diff_of):
    place = place_of(diff_of("by hand", ("self.attn(self.ln1(x))", "self.mlp(self.ln1(x))")))
    assert place == ("blocks.0.hook_attn_out", "blocks.0.mlp.out", "middle = x + self.mlp(self.ln1(x))")


def test_an_attention_that_returns_its_pattern_first(diff_of):
    edits = [
        (
            'return torch.einsum("bpnh,nhm->bpm", z, self.W_O) + self.b_O',
            'return pattern, torch.einsum("bpnh,nhm->bpm", z, self.W_O) + self.b_O',
        ),
        ("self.attn(self.ln1(x))", "self.attn(self.ln1(x))[1]"),
    ]
    report = diff_of("by hand", *edits)
    assert report.ok
    assert all(row.difference.ok for row in report.modules)
