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


def diff_after(folder, base, *edits):
    """The report on the base after these edits of its source, (old, new) each."""
    text, expression = BASES[base]
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    file = folder / "mine.py"
    file.write_text(text)
    return shapetrace.diff(build_target(f"{file}:{expression}").model, TOKENS)


def told(report):
    first = report.first_divergence
    return None if first is None else (first.row.reference, first.cause.kind, first.cause.detail)


BLOCK = "        x = x + self.attn(self.ln_1(x))\n        return x + self.mlp(self.ln_2(x))"
WIRING = [
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


@pytest.mark.parametrize(("base", "edit", "reference", "kind", "detail"), WIRING, ids=lambda each: None)
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
