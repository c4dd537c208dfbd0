"""Slips in a right GPT-2: the wiring, attention, LayerNorm, GELU. Each is told in one exact sentence."""

from pathlib import Path

import pytest
import torch

import shapetrace
from shapetrace.target import build_target

HERE = Path(__file__).parent
TOKENS = torch.tensor([[60, 3, 1, 4, 1, 5, 9], [60, 2, 6, 5, 3, 5, 8]])
BASES = {
    "handwritten": (HERE.joinpath("handwritten.py").read_text(), "GPT2"),
    # nanoGPT's layout, with its one slip mended: attention rebinds `att`, and the block `x`.
    "fused": (
        HERE.joinpath("models", "unscaled.py").read_text().replace("math.sqrt(C)", "math.sqrt(k.size(-1))"),
        "GPT(GPTConfig(vocab_size=61, n_embd=40, n_head=5))",
    ),
}


def diff_after(folder, base, *edits, tokens=TOKENS):
    """The report on the base after these edits of its source, (old, new) each."""
    text, expression = BASES[base]
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    file = folder / "mine.py"
    file.write_text(text)
    return shapetrace.diff(build_target(f"{file}:{expression}").model, tokens)


def told(report):
    first = report.first_divergence
    return None if first is None else (first.row.reference, first.cause.kind, first.cause.detail)


BLOCK = "        x = x + self.attn(self.ln_1(x))\n        return x + self.mlp(self.ln_2(x))"
WIRING = [
    (
        "handwritten",
        ("self.ln_final(stream)", "self.ln_final(self.embed(tokens))"),
        "ln_final.hook_scale",
        "wrong-operand",
        "`ln_final` is computed from `embed` instead of `resid_post`.",
    ),
    (
        "fused",
        ("self.transformer.ln_f(x)", "self.transformer.ln_f(x + self.transformer.wte(idx))"),
        "ln_final.hook_out",
        "extra-term",
        "`embed` is added, and is no term of `resid_post`: `resid_pre` of block 0 holds it already.",
    ),
    (
        "fused",
        (BLOCK, "        return x + self.attn(self.ln_1(x)) + self.mlp(self.ln_2(x))"),
        "blocks.0.ln2.hook_out",
        "wrong-operand",
        "`ln2` is computed from `resid_pre` instead of `resid_mid`.",
    ),
    (
        "fused",
        ("x = block(x)", "x = x + block(x)"),
        "blocks.1.hook_resid_pre",
        "extra-term",
        "`resid_pre` of block 0 is added, and is no term of `resid_pre`: `resid_mid` of block 0 holds it already.",
    ),
    (
        "handwritten",
        ("middle + self.mlp(self.ln2(middle))", "middle + self.mlp(self.ln2(middle)) + x"),
        "blocks.0.hook_resid_post",
        "extra-term",
        "`resid_pre` is added, and is no term of `resid_post`: `resid_mid` holds it already.",
    ),
]
ORDER = [
    (
        "handwritten",
        ("for block in self.blocks:", "for block in reversed(self.blocks):"),
        "blocks.0.hook_resid_pre",
        "The blocks run in the order 1, 0: it is 0, 1.",
    ),
    (
        "handwritten",
        ("for block in self.blocks:", "for block in [*self.blocks, self.blocks[1]]:"),
        "ln_final.hook_scale",
        "Block 1 runs twice; the blocks run in the order 0, 1, 1: it is 0, 1.",
    ),
    (
        "fused",
        ("for block in self.transformer.h:", "for block in self.transformer.h[1:]:"),
        "blocks.1.hook_resid_pre",
        "Block 0 never runs; the blocks run in the order 1: it is 0, 1.",
    ),
    (
        "fused",
        (BLOCK, "        x = x + self.mlp(self.ln_2(x))\n        return x + self.attn(self.ln_1(x))"),
        "blocks.0.ln1.hook_out",
        "The MLP runs before attention: `ln1` is given `resid_pre` + `mlp_out`, and `ln2` is given `resid_pre`.",
    ),
    (
        "fused",
        (BLOCK, "        x = x + self.mlp(self.ln_1(x))\n        return x + self.attn(self.ln_2(x))"),
        "blocks.0.attn.hook_q",
        "The MLP runs before attention: it is given the output of `ln1`, and attention that of `ln2`.",
    ),
    (
        "fused",
        ("y = att.softmax(dim=-1) @ v", "y = F.scaled_dot_product_attention(q, v, k, is_causal=True)"),
        "blocks.0.attn.hook_z",
        "Attention is given `q`, `v` and `k` for `q`, `k` and `v`.",
    ),
]
GELU, FORMULA = (
    'nn.functional.gelu(pre, approximate="tanh")',
    "0.5 * pre * (1 + torch.tanh((2 / math.pi) ** 0.5 * (pre + 0.044715 * pre**3)))",
)
RIGHT = "It is 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x**3)))."
SLIPS_OF_GELU = [
    (("pre**3", "pre**2"), f"GELU has a slip: x**2 stands in place of x**3. {RIGHT}"),
    (("(1 + torch", "(torch"), f"GELU has a slip: the 1 that is added to tanh is missing. {RIGHT}"),
    (
        ("* (pre + 0.044715 * pre**3)))", "* pre + 0.044715 * pre**3))"),
        f"GELU has a slip: sqrt(2 / pi) multiplies x alone, and not the cubic term. {RIGHT}",
    ),
    (
        ("0.044715", "0.44715"),
        "`post` is not GPT-2's GELU of `pre`: its cubic term has 0.44715 in place of 0.044715.",
    ),
    (
        ("(2 / math.pi) ** 0.5", "2 / math.pi"),
        "`post` is not GPT-2's GELU of `pre`: inside its tanh is 0.6366 (that is 2 / pi, without its root) "
        "in place of sqrt(2 / pi) = 0.7979.",
    ),
]
SCORES, HIDE = "scores = torch", "scores = scores.masked_fill(future, -math.inf)"
PLACE = "blocks.0.attn.hook_"
ATTENTION = [
    (
        ("scores.softmax(-1)", "scores.log_softmax(-1).nan_to_num(neginf=0)"),
        ("pattern", "nonlinearity", "The pattern is made with log_softmax in place of the softmax."),
    ),
    (
        ("pattern = scores.softmax(-1)", "pattern = scores.softmax(-1) / scores.softmax(-1).sum(-2, keepdim=True)"),
        (
            "pattern",
            "axis",
            "The pattern is divided by its sum along axis -2 (queries) after the softmax, which needs none.",
        ),
    ),
    (
        (HIDE, "scores = scores + ~future"),
        (
            "attn_scores",
            "mask",
            "1 is added where a key is visible, as by a mask of 0 and 1: fill the rest with -inf.",
        ),
    ),
    (
        (HIDE, "scores = scores.masked_fill(future, 1e9)"),
        ("attn_scores", "mask", "Future cells hold 1e+09 instead of -inf, and so they still receive attention."),
    ),
    (
        (HIDE, HIDE.replace("-math.inf", "math.inf")),
        ("attn_scores", "mask", "Future cells hold inf instead of -inf: the softmax makes nan of their rows."),
    ),
]
NORMS = [
    (
        ("normed * self.w + self.b", "normed + self.w * self.b"),
        "out",
        "`ln1.w` multiplies `ln1.b`, and not the normalised stream: it is x * w + b.",
    ),
    (
        ("normed * self.w + self.b", "normed * (self.w + self.b)"),
        "out",
        "`ln1.b` is added to `ln1.w`, and not to the product with it: it is x * w + b.",
    ),
    (
        ("(x - mean) / std", "x - mean / std"),
        "normalized",
        "The mean is divided by the spread, and not what is left without it: it is (x - mean) / sqrt(var + eps).",
    ),
    (
        ("(x - mean) / std", "(x - mean) * std"),
        "normalized",
        "The stream is multiplied by its spread, and not divided by it: it is (x - mean) / sqrt(var + eps).",
    ),
    (
        ("(x - mean) / std", "(x * self.w - mean) / std"),
        "normalized",
        "`ln1.w` is applied to the stream before it is normalised: it belongs after it.",
    ),
    (
        ("self.attn(self.ln1(x))", "self.attn(self.ln1(self.ln1(x)))"),
        "out",
        "`ln1` is applied twice: its output goes through it once more.",
    ),
]
SUMS = [
    (
        "handwritten",
        (GELU, FORMULA.replace("0.5 * pre", "pre")),
        "blocks.0.mlp.hook_post",
        "scale",
        "Yours is 2 times the reference: the factor 0.5 of GELU is missing.",
    ),
    (
        "handwritten",
        ("normed * self.w + self.b", "normed * self.w.mean() + self.b.mean()"),
        "blocks.0.ln1.hook_out",
        "normalisation",
        "One number, their mean, stands for all of `ln1.w` and one for `ln1.b`: each entry has its own.",
    ),
    (
        "handwritten",
        ("torch.sqrt(x.var(-1, keepdim=True, unbiased=False) + 1e-5)", "torch.sqrt(x.std(-1, keepdim=True) + 1e-5)"),
        "blocks.0.ln1.hook_scale",
        "normalisation",
        "The stream is divided by sqrt(std + eps), a root too many and with N - 1; LayerNorm divides by the root of "
        "the variance.",
    ),
    (
        "fused",
        ("self.transformer.wpe(torch.arange(idx.size(1)))", "self.transformer.wpe(torch.arange(idx.size(1))).flip(0)"),
        "blocks.0.hook_resid_pre",
        "shift",
        "`pos_embed` goes in with its numbers in another order: the position axis runs backwards.",
    ),
    (
        "fused",
        ("self.mlp(self.ln_2(x))", "self.mlp(self.ln_2(x) + x)"),
        "blocks.0.ln2.hook_out",
        "extra-term",
        "`resid_mid` is added, and is no term of the output of `ln2`.",
    ),
    (
        "handwritten",
        ("x, self.W_V) + self.b_V", "x, self.W_V.flip(0)) + self.b_V"),
        "blocks.0.attn.hook_v",
        "permutation",
        "`W_V` runs backwards along axis 0.",
    ),
    (
        "handwritten",
        ("self.embed(tokens) + self", "self.embed(tokens) * self"),
        "blocks.0.hook_resid_pre",
        "wrong-operand",
        "`embed` and `pos_embed` are multiplied, and not added.",
    ),
    (
        "fused",
        ("x + self.mlp(self.ln_2(x))", "x + self.ln_2(self.mlp(self.ln_2(x)))"),
        "blocks.0.hook_resid_post",
        "normalisation",
        "`mlp_out` goes through `ln2` before it is added, which does not belong there.",
    ),
    (
        "handwritten",
        ("return self.unembed(self.ln_final(stream))", "return self.ln_final(stream) @ self.embed.W_E.T"),
        "unembed.hook_out",
        "wrong-operand",
        "The logits are computed with `W_E` transposed instead of `W_U`, and without `b_U`.",
    ),
    (
        "handwritten",
        ("        scores = torch", "        q = q / math.sqrt(SIZES.d_head)\n        scores = torch"),
        "blocks.0.attn.hook_q",
        "scale",
        "Yours is 0.3536 (that is 1 / sqrt(d_head)) times the reference: the scores are divided by sqrt(d_head) after "
        "that, once more.",
    ),
]
SEVERAL_AXES = [
    (
        ("mean = x.mean(-1, keepdim=True)", "mean = x.mean((-2, -1), keepdim=True)"),
        "normalized",
        "The mean is taken over positions too; LayerNorm takes each position alone.",
    ),
    (
        ("x.var(-1, keepdim=True, unbiased=False)", "x.var(unbiased=False)"),
        "scale",
        "The variance is taken over positions and the batch too; LayerNorm takes each position alone.",
    ),
]
TABLES = [
    "torch.stack([angles.sin(), angles.cos()], -1).flatten(1)",
    "torch.cat([angles.sin(), angles.cos()], -1)",
]
SUB_LAYERS = [
    ("self.mlp(self.ln2(middle))", "self.attn(self.ln2(middle))", "mlp_out", "Attention runs in place of the MLP."),
    ("self.attn(self.ln1(x))", "self.mlp(self.ln1(x))", "attn_out", "The MLP runs in place of attention."),
    (
        "self.mlp(self.ln2(middle))",
        "self.mlp(self.mlp(self.ln2(middle)))",
        "mlp_out",
        "The MLP runs twice: what it returns goes through it once more.",
    ),
]
CASES = [
    *WIRING,
    (
        "fused",
        ("self.n_head = config.n_head", "self.n_head = 8"),
        "blocks.0.attn.hook_attn_scores",
        "permutation",
        "Attention runs with 8 heads of 5 in place of 5 of 8.",
    ),
    (
        "fused",
        ("self.ln_1 = nn.LayerNorm(", "self.ln_1 = nn.RMSNorm("),
        "blocks.0.ln1.hook_out",
        "normalisation",
        "This is RMSNorm, and with an eps of 1.19e-07 where GPT-2 has 1e-05; LayerNorm takes the mean off first, and "
        "adds `ln1.b`.",
    ),
    *(
        ("handwritten", (old, new), f"blocks.0.hook_{tensor}", "wrong-operand", detail)
        for old, new, tensor, detail in SUB_LAYERS
    ),
    *SUMS,
    *(("handwritten", edit, f"blocks.0.ln1.hook_{tensor}", "normalisation", detail) for edit, tensor, detail in NORMS),
    *(
        (
            "handwritten",
            (
                "return self.W_pos[: tokens.shape[1]]",
                "angles = torch.arange(tokens.shape[1])[:, None] / 10000 ** (torch.arange(0, 40, 2) / 40)\n"
                f"        return {table}",
            ),
            "hook_pos_embed",
            "wrong-operand",
            "Positions are sines and cosines, as in the first transformer; GPT-2 has a table that is learned, `W_pos`.",
        )
        for table in TABLES
    ),
    *(("handwritten", edit, f"blocks.0.ln1.hook_{tensor}", "axis", detail) for edit, tensor, detail in SEVERAL_AXES),
    (
        "handwritten",
        ("normed * self.w + self.b", "normed * self.b + self.w"),
        "blocks.0.ln1.hook_out",
        "wrong-operand",
        "`ln1.w` and `ln1.b` stand in each other's place: it is x * w + b.",
    ),
    *((base, edit, reference, "wrong-operand", detail) for base, edit, reference, detail in ORDER),
    (
        "fused",
        ("self.c_proj(y.transpose(1, 2).reshape(B, T, C))", "y.transpose(1, 2).reshape(B, T, C)"),
        "blocks.0.hook_attn_out",
        "missing-term",
        "`z` goes on as it is: the output projection, `W_O` and `b_O`, is missing.",
    ),
    *(
        ("handwritten", (GELU, FORMULA.replace(*edit)), "blocks.0.mlp.hook_post", "nonlinearity", detail)
        for edit, detail in SLIPS_OF_GELU
    ),
    *(("handwritten", edit, PLACE + tensor, kind, detail) for edit, (tensor, kind, detail) in ATTENTION),
    (
        "handwritten",
        ("self.ln_final(stream))", "self.ln_final(stream)).flip(-1)"),
        "unembed.hook_out",
        "permutation",
        "Yours has the reference's numbers in another order: the d_vocab axis runs backwards.",
    ),
    (
        "fused",
        (
            'return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))',
            'return F.gelu(self.c_proj(self.c_fc(x)), approximate="tanh")',
        ),
        "blocks.0.mlp.hook_post",
        "nonlinearity",
        "GELU comes after `W_out`: it belongs between `W_in` and `W_out`.",
    ),
    (
        "fused",
        ("x + self.attn(self.ln_1(x))", "x + torch.relu(self.attn(self.ln_1(x)))"),
        "blocks.0.hook_resid_mid",
        "nonlinearity",
        "ReLU is applied to `attn_out` before it is added, which needs none.",
    ),
]


def test_values_without_their_pattern_are_no_attention_across_a_batch_of_one(tmp_path):
    found = told(
        diff_after(tmp_path, "handwritten", ('torch.einsum("bnqk,bknh->bqnh", pattern, v)', "v"), tokens=TOKENS[:1])
    )
    assert found == ("blocks.0.attn.hook_z", "wrong-operand", "Yours is `v` itself, where `z` belongs.")


def test_logits_that_are_not_returned(tmp_path):
    found = told(diff_after(tmp_path, "handwritten", ("return self.unembed", "self.unembed")))
    assert found == (
        "unembed.hook_out",
        "unknown",
        "Your model returns no tensor: let its `forward` return the logits.",
    )


def test_a_model_that_raises_is_told_where(tmp_path):
    with pytest.raises(shapetrace.ShapetraceError) as caught:
        diff_after(tmp_path, "handwritten", ("return self.W_E[tokens]", "return self.W_E[tokens].nothing"))
    file = tmp_path / "mine.py"
    line = 1 + file.read_text().partition(".nothing")[0].count("\n")
    message, _, where = str(caught.value).partition("\n")
    assert message == "the model raised AttributeError: 'Tensor' object has no attribute 'nothing'"
    assert where.startswith("  in embed at ")
    assert f"mine.py:{line}" in where


def test_one_block_in_every_layer(tmp_path):
    many = "[Block() for _ in range(SIZES.n_layers)]"
    place, kind, detail = told(diff_after(tmp_path, "handwritten", (many, "[Block()] * SIZES.n_layers")))
    assert (place, kind) == ("blocks.0.ln1.hook_out", "weights")
    assert detail.startswith(
        "`blocks.0.ln1.w` and `blocks.1.ln1.w` are one parameter, which cannot hold the reference's"
    )


@pytest.mark.parametrize(("base", "edit", "reference", "kind", "detail"), CASES, ids=lambda each: None)
def test_the_slip_is_told(base, edit, reference, kind, detail, tmp_path):
    assert told(diff_after(tmp_path, base, edit)) == (reference, kind, detail)


SOFTMAX = "y = att.softmax(dim=-1) @ v"


@pytest.mark.parametrize(
    ("edit", "reference"),
    [
        ((SOFTMAX, "att = att.softmax(dim=-1) ** 1.1\n        y = att @ v"), "blocks.0.attn.hook_pattern"),
        ((SOFTMAX, "att = att.softmax(dim=-1).cumsum(-1)\n        y = att @ v"), "blocks.0.attn.hook_pattern"),
        ((SOFTMAX, "y = (att.softmax(dim=-1) @ v).cumsum(2)"), "blocks.0.attn.hook_z"),
    ],
)
def test_a_right_tensor_of_the_same_name_gives_no_cause(edit, reference, tmp_path):
    found = told(diff_after(tmp_path, "fused", edit))
    assert found[:2] == (reference, "unknown")
    assert found[2].startswith("Furthest apart at [")


def test_a_tensor_with_the_name_of_another_is_no_difference(tmp_path):
    """The scores are called `att`, as a pattern would be; the pattern itself has no name."""
    report = diff_after(tmp_path, "fused", ('approximate="tanh"', 'approximate="none"'))
    assert told(report)[:2] == ("blocks.0.mlp.hook_post", "nonlinearity")
    assert report.remarks == ("not made by name in yours, and what comes of it is right: scale, normalized",)


def test_two_sums_that_are_wrong_in_one_way_are_told_where_the_first_is(tmp_path):
    lines = ("x = self.ln_1(x)", "x = x + self.attn(x)", "x = self.ln_2(x)", "return x + self.mlp(x)")
    normed = "\n".join(" " * 8 + line for line in lines)
    assert told(diff_after(tmp_path, "fused", (BLOCK, normed))) == (
        "blocks.0.hook_resid_mid",
        "wrong-operand",
        "`resid_mid` is computed from the output of `ln1` instead of `resid_pre`.",
    )


def test_two_sums_that_lack_the_stream_are_told_at_the_first(tmp_path):
    lost = "        x = self.attn(self.ln_1(x))\n        return self.mlp(self.ln_2(x))"
    assert told(diff_after(tmp_path, "fused", (BLOCK, lost))) == (
        "blocks.0.hook_resid_mid",
        "missing-term",
        "`resid_pre` is missing: `resid_mid` is `resid_pre` + `attn_out`.",
    )


def test_the_division_that_comes_after_the_softmax(tmp_path):
    division = " / math.sqrt(SIZES.d_head)"
    report = diff_after(
        tmp_path, "handwritten", (division, ""), ("scores.softmax(-1)", f"scores.softmax(-1){division}")
    )
    assert told(report) == (
        "blocks.0.attn.hook_pattern",
        "scale",
        "The pattern is divided by sqrt(d_head) after the softmax: divide the scores by it, before the softmax.",
    )


ROTATE = """
        half = q.shape[-1] // 2
        angles = (torch.arange(T)[:, None] * 10000.0 ** (-torch.arange(half) / half)).repeat(1, 2)
        turn = lambda x: x * angles.cos() + torch.cat([-x[..., half:], x[..., :half]], -1) * angles.sin()
        {}
        att = q @"""


@pytest.mark.parametrize(
    ("turned", "detail"),
    [
        ("q, k = turn(q), turn(k)", "`q` and `k` are rotated by their positions, as in RoPE"),
        ("q = turn(q)", "`q` is rotated by its positions, as in RoPE, and `k` is not"),
    ],
)
def test_rotary_positions(turned, detail, tmp_path):
    edit = ("\n        att = q @", ROTATE.format(turned))
    found = told(diff_after(tmp_path, "fused", edit))
    assert found == ("blocks.0.attn.hook_q", "extra-term", f"{detail}: GPT-2 tells positions by `W_pos` alone.")
