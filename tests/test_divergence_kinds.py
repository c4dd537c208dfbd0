"""One line of a right model changed: which tensor is called wrong first, by which line, and why."""

import importlib.util
import itertools
import re
from pathlib import Path

import pytest
import torch
from rich.console import Console

import shapetrace
from shapetrace.report import to_plain

SOURCE = (Path(__file__).parent / "handwritten.py").read_text()
TOKENS = torch.tensor([[100, 3, 1, 4, 1, 5, 9], [100, 2, 6, 5, 3, 5, 8]])
NUMBERS = itertools.count()


@pytest.fixture
def changed(tmp_path):
    """The model with each `old` line of the source written as `new`, and its file."""

    def build(*edits):
        source = SOURCE
        for old, new in edits:
            assert old in source, old
            source = source.replace(old, new)
        path = tmp_path / "mine.py"
        path.write_text(source)
        spec = importlib.util.spec_from_file_location(f"mine_{next(NUMBERS)}", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.GPT2().eval()

    return build


def first_of(report):
    found = to_plain(report)["first_divergence"]
    return None if found is None else (found["reference"], found["cause"]["kind"], found["cause"]["detail"])


def test_the_model_itself_is_right(changed):
    report = shapetrace.diff(changed(), TOKENS)
    assert (report.ok, report.first_divergence, report.remarks) == (True, None, ())
    assert all(row.difference is not None and row.difference.ok for row in report.tensors)


SCALES = [
    (
        (" / math.sqrt(SIZES.d_head)", ""),
        "blocks.0.attn.hook_attn_scores",
        "Yours is 2.828 times the reference, and 2.828 is sqrt(d_head): divide the scores by it.",
    ),
    (
        ("math.sqrt(SIZES.d_head)", "SIZES.d_head"),
        "blocks.0.attn.hook_attn_scores",
        "Yours is 0.3536 times the reference: the scores are divided by d_head instead of sqrt(d_head).",
    ),
    (
        ("scores.softmax(-1)", "scores.softmax(-1) * 0.7"),
        "blocks.0.attn.hook_pattern",
        "Yours is 0.7 times the reference.",
    ),
    (
        ("self.embed(tokens) +", "math.sqrt(SIZES.d_model) * self.embed(tokens) +"),
        "blocks.0.hook_resid_pre",
        "`embed` goes in 6.325 times, which is sqrt(d_model); it belongs in as it is.",
    ),
    (
        ("middle + self.mlp", "middle - self.mlp"),
        "blocks.0.hook_resid_post",
        "`mlp_out` goes in with its sign turned; it belongs in as it is.",
    ),
]
TERMS = [
    (
        ("x, self.W_Q) + self.b_Q", "x, self.W_Q)"),
        "blocks.0.attn.hook_q",
        "missing-term",
        "`b_Q` is missing: add it to `q` at each position.",
    ),
    (
        ("middle = x + self.attn", "middle = self.attn"),
        "blocks.0.hook_resid_mid",
        "missing-term",
        "`resid_pre` is missing: `resid_mid` is `resid_pre` + `attn_out`.",
    ),
    (
        ("normed * self.w + self.b", "normed + self.b"),
        "blocks.0.ln1.hook_out",
        "missing-term",
        "`ln1.w` is missing: the normalised stream is to be multiplied by it.",
    ),
    (
        ("middle = x + self.attn", "middle = x + x + self.attn"),
        "blocks.0.hook_resid_mid",
        "extra-term",
        "`resid_pre` is added twice; `resid_mid` needs it once.",
    ),
    (
        ("pattern, v)", "pattern, v) + self.b_V"),
        "blocks.0.attn.hook_z",
        "extra-term",
        "`b_V` is added, and is no term of `z`: `v` holds it already.",
    ),
]
ORDERS = [
    (
        ("        scores = torch", "        q = q.reshape(2, 5, -1, 8).transpose(1, 2)\n        scores = torch"),
        "blocks.0.attn.hook_q",
        "permutation",
        "Yours has the reference's numbers in another order: (batch, position, head, d_head) in memory is read as "
        "(batch, head, position, d_head).",
    ),
    (
        ("pattern, v)", "pattern, v.flip(2))"),
        "blocks.0.attn.hook_z",
        "permutation",
        "`v` goes in with its numbers in another order: the head axis runs backwards.",
    ),
    (
        ('"bqnh,bknh->bnqk"', '"bqnh,bknh->bnkq"'),
        "blocks.0.attn.hook_attn_scores",
        "permutation",
        "The scores are transposed: rows belong to queries and columns to keys, as in q @ k.T.",
    ),
    (
        ("self.W_pos[: tokens.shape[1]]", "self.W_pos[1 : tokens.shape[1] + 1]"),
        "hook_pos_embed",
        "shift",
        "`W_pos` is read from row 1: position 0 has row 0.",
    ),
    (
        ("self.W_pos[: tokens.shape[1]]", "self.W_pos[: tokens.shape[0], None]"),
        "hook_pos_embed",
        "shift",
        "Rows of `W_pos` are counted along the batch, and not along positions.",
    ),
]
MASKS = [
    (("triu(1)", "triu(0)"), "The diagonal is hidden too: a position sees itself (21 of 21 future cells are masked)."),
    (
        ("scores = scores.masked_fill", "scores.masked_fill"),
        "No future key is hidden (0 of 21 future cells are masked).",
    ),
    (("-math.inf", "0.0"), "Future cells hold 0 instead of -inf, and so they still receive attention."),
    (
        ("scores = scores.masked_fill(future, -math.inf)", "scores = scores + future"),
        "Future cells hold the raw score + 1: fill them with -inf instead.",
    ),
    (
        ("triu(1)", "triu(2)"),
        "Each query sees the key after it (15 of 21 future cells are masked).",
    ),
    (
        ("bool()", "bool().logical_not()"),
        "The mask is inverted: what should be hidden is seen, and what should be seen is hidden "
        "(0 of 21 future cells are masked).",
    ),
]
FUNCTIONS = [
    (
        ('nn.functional.gelu(pre, approximate="tanh")', "pre * torch.cos(pre)"),
        "`post` is another function of each entry of `pre`, taking -1.00 to -0.540, 0.00 to 0.000, 1.00 to 0.540: "
        "GPT-2 has the tanh form of GELU.",
    ),
    ((', approximate="tanh"', ""), '`post` is `pre` after the exact GELU, with erf: use `approximate="tanh"`.'),
    (
        ('nn.functional.gelu(pre, approximate="tanh")', "torch.relu(pre)"),
        "`post` is `pre` after ReLU: GPT-2 has the tanh form of GELU.",
    ),
    (
        (
            'nn.functional.gelu(pre, approximate="tanh")',
            "0.5 * pre * (1 + torch.tanh(math.sqrt(2 / math.pi) * (pre + 0.0477 * pre**3)))",
        ),
        "`post` is not GPT-2's GELU of `pre`: its cubic term has 0.0477 in place of 0.044715.",
    ),
]
NORMS = [
    (
        ("unbiased=False", "unbiased=True"),
        "scale",
        "The variance is divided by N - 1 = 39; LayerNorm divides by N: use `unbiased=False`.",
    ),
    (("1e-5", "3e-4"), "scale", "Eps is 0.0003; GPT-2 has 1e-05."),
    (
        ("torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + 1e-5)", "x.std(-1, keepdim=True) + 1e-5"),
        "scale",
        "The variance is divided by N - 1 = 39; LayerNorm divides by N: use `unbiased=False`; "
        "and eps belongs under the root, sqrt(var + 1e-05).",
    ),
    (("(x - mean) / std", "x / std"), "normalized", "The mean is not taken off before dividing by the spread."),
    (
        ("normed * self.w + self.b", "(normed + self.b) * self.w"),
        "out",
        "`ln1.b` is added before the product with `ln1.w`, and belongs after it: it is x * w + b.",
    ),
]
OPERANDS = [
    (("x, self.W_K)", "x, self.W_V)"), "blocks.0.attn.hook_k", "`k` is computed with `W_V` instead of `W_K`."),
    (
        ("return middle + self.mlp", "return x + self.mlp"),
        "blocks.0.hook_resid_post",
        "`resid_post` is computed from `resid_pre` instead of `resid_mid`.",
    ),
    (
        ("self.unembed(self.ln_final(stream))", "self.unembed(stream)"),
        "ln_final.hook_out",
        "Yours is `resid_post` of block 1 itself, where the output of `ln_final` belongs.",
    ),
    (
        ("for block in self.blocks:", "for block in self.blocks[:1]:"),
        "blocks.1.hook_resid_post",
        "Block 1 is skipped: yours is its `resid_pre`, where `resid_post` belongs.",
    ),
    (
        ("stream = block(stream)", "stream = self.blocks[0](stream)"),
        "blocks.1.hook_resid_post",
        "Block 1 is computed with the weights of block 0: is the same module called twice?",
    ),
]
AXES = [
    (
        ("softmax(-1)", "softmax(-2)"),
        "blocks.0.attn.hook_pattern",
        "The pattern sums to 1 along axis -2 (queries); the softmax goes over keys, axis -1.",
    ),
    (
        ("x.mean(-1", "x.mean(1"),
        "blocks.0.ln1.hook_normalized",
        "The mean is taken over axis 1 (positions) instead of axis -1 (d_model).",
    ),
]
CASES = [
    *((edit, reference, "scale", detail) for edit, reference, detail in SCALES),
    *TERMS,
    *ORDERS,
    *((edit, "blocks.0.attn.hook_attn_scores", "mask", detail) for edit, detail in MASKS),
    *((edit, "blocks.0.mlp.hook_post", "nonlinearity", detail) for edit, detail in FUNCTIONS),
    *((edit, f"blocks.0.ln1.hook_{tensor}", "normalisation", detail) for edit, tensor, detail in NORMS),
    *((edit, reference, "wrong-operand", detail) for edit, reference, detail in OPERANDS),
    *((edit, reference, "axis", detail) for edit, reference, detail in AXES),
]


@pytest.mark.parametrize(("edit", "reference", "kind", "detail"), CASES, ids=lambda each: None)
def test_what_is_wrong_first_and_why(edit, reference, kind, detail, changed):
    assert first_of(shapetrace.diff(changed(edit), TOKENS)) == (reference, kind, detail)


def test_a_mask_that_comes_after_the_softmax(changed):
    model = changed(
        ("scores = scores.masked_fill(future, -math.inf)\n", "pass\n"),
        (
            "pattern = scores.softmax(-1)\n",
            "pattern = scores.softmax(-1)\n        pattern = pattern.masked_fill(future, 0)\n",
        ),
    )
    detail = "The mask is applied after the softmax: set the scores of future keys to -inf before it."
    assert first_of(shapetrace.diff(model, TOKENS)) == ("blocks.0.attn.hook_pattern", "mask", detail)


def test_one_layer_only(changed):
    model = changed()
    model.blocks[1].mlp.forward = lambda x, mlp=model.blocks[1].mlp: (
        torch.tanh(x @ mlp.W_in + mlp.b_in) @ mlp.W_out + mlp.b_out
    )
    report = shapetrace.diff(model, TOKENS)
    assert first_of(report) == (
        "blocks.1.hook_mlp_out",
        "nonlinearity",
        "`post` is `pre` after tanh: GPT-2 has the tanh form of GELU.",
    )
    assert report.first_divergence.cause.at == "blocks.1.mlp.hook_post"
    assert [row.module for row in report.modules if row.mode == "isolated" and not row.difference.ok] == [
        "blocks.1.mlp",
        "blocks.1",
    ]


def test_two_mistakes_are_told_one_after_the_other(changed):
    first, second = ("x, self.W_K)", "x, self.W_V)"), (', approximate="tanh"', "")
    assert first_of(shapetrace.diff(changed(first, second), TOKENS))[:2] == ("blocks.0.attn.hook_k", "wrong-operand")
    assert first_of(shapetrace.diff(changed(second), TOKENS))[:2] == ("blocks.0.mlp.hook_post", "nonlinearity")


def test_dropout_that_is_always_on(changed):
    drop = "pattern = nn.functional.dropout(scores.softmax(-1), 0.25)"
    state = torch.random.get_rng_state()
    report = shapetrace.diff(changed(("pattern = scores.softmax(-1)", drop)), TOKENS)
    assert first_of(report)[:2] == ("blocks.0.attn.hook_pattern", "random")
    assert report.first_divergence.cause.detail.startswith("Two runs differ: dropout zeroes 25% of pattern; ")
    torch.random.set_rng_state(state)
    noise = ("return post @ self.W_out + self.b_out", "return post @ self.W_out + self.b_out + torch.randn(40)")
    assert first_of(shapetrace.diff(changed(noise), TOKENS))[:2] == ("blocks.0.hook_mlp_out", "random")


def test_fewer_digits(changed):
    model = changed(("pattern = scores.softmax(-1)", "pattern = scores.softmax(-1).half().float()"))
    assert first_of(shapetrace.diff(model, TOKENS)) == (
        "blocks.0.attn.hook_pattern",
        "precision",
        "`pattern` is rounded to float16.",
    )


def test_what_no_edit_gives_is_unknown_and_in_its_place(changed):
    for edit, reference in (
        (('nn.functional.gelu(pre, approximate="tanh")', "pre + pre.roll(1, -1)"), "blocks.0.mlp.hook_post"),
        (("        scores = torch", "        q = q.sort(-1).values\n        scores = torch"), "blocks.0.attn.hook_q"),
        (("pattern, v)", "pattern, v).cumsum(1)"), "blocks.0.attn.hook_z"),
    ):
        found = first_of(shapetrace.diff(changed(edit), TOKENS))
        assert found[:2] == (reference, "unknown")
        assert found[2].startswith("Furthest apart at [")


GELU, MERGE = 'nn.functional.gelu(pre, approximate="tanh")', 'torch.einsum("bpnh,nhm->bpm", z, self.W_O)'
OTHER_WAYS = {
    "a finite mask": [("-math.inf", "-1e9")],
    "the lowest number for a mask": [("-math.inf", "torch.finfo(scores.dtype).min")],
    "the scale in q": [
        (" / math.sqrt(SIZES.d_head)", ""),
        ("        scores = torch", "        q = q / math.sqrt(8)\n        scores = torch"),
    ],
    "float64 inside": [("pre = x @ self.W_in", "pre = (x.double() @ self.W_in.double()).float()")],
    "GELU as a sigmoid": [(GELU, "pre * torch.sigmoid(1.5957691216 * (pre + 0.044715 * pre**3))")],
    "GELU by hand": [(GELU, "0.5 * pre * (1 + torch.tanh(math.sqrt(2 / math.pi) * (pre + 0.044715 * pre**3)))")],
    "a loop over the batch": [("return post @ self.W_out", "return torch.stack([each @ self.W_out for each in post])")],
    "softmax by hand": [("scores.softmax(-1)", "scores.exp() / scores.exp().sum(-1, keepdim=True)")],
    "heads added up in a loop": [(MERGE, "sum(z[:, :, head] @ self.W_O[head] for head in range(SIZES.n_heads))")],
    "a mapping": [
        ("return self.unembed(self.ln_final(stream))", "return {'logits': self.unembed(self.ln_final(stream))}")
    ],
    "the last position": [("self.ln_final(stream))", "self.ln_final(stream)[:, -1])")],
    "one over a root": [("std = torch.sqrt(", "std = 1 / torch.rsqrt(")],
    "other names": [("        pre = x", "        a = x"), ("gelu(pre,", "gelu(a,"), ("post", "b")],
    "fused attention": [
        (
            "        scores = torch",
            "        q, k, v = (each.transpose(1, 2) for each in (q, k, v))\n        unused = torch",
        ),
        ("        scores = scores.masked_fill(future, -math.inf)\n        pattern = scores.softmax(-1)\n", ""),
        ("bqnh,bknh->bnqk", "bnqh,bnkh->bnqk"),
        ('torch.einsum("bnqk,bknh->bqnh", pattern, v)', "nn.functional.scaled_dot_product_attention(q, k, v, ~future)"),
        ("bpnh,nhm->bpm", "bnph,nhm->bpm"),
    ],
}


@pytest.mark.parametrize("edits", OTHER_WAYS.values(), ids=OTHER_WAYS)
def test_another_way_to_write_it_is_silent(edits, changed):
    report = shapetrace.diff(changed(*edits), TOKENS)
    assert (report.ok, report.first_divergence) == (True, None)


def test_a_missing_key_bias_is_a_remark(changed):
    report = shapetrace.diff(changed(("x, self.W_K) + self.b_K", "x, self.W_K)")), TOKENS)
    assert (report.ok, report.first_divergence) == (True, None)
    assert report.remarks == (
        "blocks.0.attn.hook_k ... blocks.1.attn.hook_k  x2 differ and it heals: "
        "`b_K` is missing: add it to `k` at each position.",
    )


def test_what_heals_is_not_the_verdict(changed):
    model = changed(("x, self.W_K) + self.b_K", "x, self.W_K)"), (', approximate="tanh"', ""))
    report = shapetrace.diff(model, TOKENS)
    assert first_of(report)[:2] == ("blocks.0.mlp.hook_post", "nonlinearity")
    assert report.remarks == (
        "blocks.0.attn.hook_k differs and it heals: `b_K` is missing: add it to `k` at each position.",
    )


def test_the_screen_shows_the_line_the_values_and_the_cause(changed):
    report = shapetrace.diff(changed(("softmax(-1)", "softmax(-2)")), TOKENS)
    console = Console(width=80, color_system=None)
    with console.capture() as captured:
        console.print(report)
    lines = [line.rstrip() for line in captured.get().splitlines()]
    shown = [" ".join(line.split()) for line in lines]
    at = shown.index("ok model embed pos_embed 0")
    assert [without_figures(line) for line in shown[at : at + 6]] == [
        "ok model embed pos_embed #",
        "ok blocks.0 resid_pre #",
        "ok blocks.0.ln1 scale normalized out #",
        "ok blocks.0.attn q k v attn_scores #",
        "wrong blocks.0.attn pattern # mine.py:41",
        "... 33 tensors after it differ too",
    ]
    assert "First divergence: blocks.0.attn.pattern, your `pattern`, mine.py line 41." in lines
    assert "    pattern = scores.softmax(-2)" in lines
    assert "    (b, n, q, k)  yours (2, 5, 7, 7)  reference (2, 5, 7, 7)" in lines
    assert lines[
        lines.index("Why: The pattern sums to 1 along axis -2 (queries); the softmax goes over keys,") + 1
    ] == ("     axis -1.")


def without_figures(line):
    return re.sub(r"(?<= )(0|\d\.\de[-+]\d\d)(?=$| mine)", "#", line)


def test_the_divergence_as_json(changed):
    found = to_plain(shapetrace.diff(changed((" / math.sqrt(SIZES.d_head)", "")), TOKENS))["first_divergence"]
    assert {key: found[key] for key in ("module", "tensor", "axes", "shape")} == {
        **{"module": "blocks.0.attn", "tensor": "attn_scores"},
        **{"axes": "b n q k", "shape": [2, 5, 7, 7]},
    }
    assert found["yours"] == {
        **{"module": "blocks.0.attn", "tensor": "scores", "file": "mine.py", "line": 38},
        **{"source": 'scores = torch.einsum("bqnh,bknh->bnqk", q, k)', "shape": [2, 5, 7, 7]},
    }
    assert found["cause"]["number"] == pytest.approx(8**0.5)
    for entry in (*found["first"], *found["worst"]):
        assert entry["yours"] == pytest.approx(8**0.5 * entry["reference"], rel=1e-4)
