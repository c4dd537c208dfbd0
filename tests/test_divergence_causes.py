"""The first wrong tensor and why: a GPT-2 in view, right but for one edit of its source."""

from pathlib import Path

import pytest
import torch

from shapetrace import diff
from shapetrace.target import build_target

MODELS = Path(__file__).parent / "models"
IDS = torch.tensor([[5, 60, 3, 9, 17, 33, 8]])
BASES = {
    "modular": (MODELS.joinpath("modular.py").read_text(), "Model"),
    # nanoGPT's layout, with its one slip mended.
    "fused": (
        MODELS.joinpath("unscaled.py").read_text().replace("math.sqrt(C)", "math.sqrt(k.size(-1))"),
        "GPT(GPTConfig(vocab_size=61, n_embd=24, n_head=3))",
    ),
}


def diff_after(folder, base, *edits):
    """The report on the base after these edits of its source, (old, new) each."""
    text, expression = BASES[base]
    for old, new in edits:
        assert text.count(old) >= 1, old
        text = text.replace(old, new)
    file = folder / f"{base}.py"
    file.write_text(text)
    model = build_target(f"{file}:{expression}").model
    return diff(model, IDS % model.cfg.d_vocab if hasattr(model, "cfg") else IDS)


Q = 'query = einsum(x, self.W_Q, "b p m, n m h -> b p n h") + self.b_Q'
POST = 'post = nn.functional.gelu(pre, approximate="tanh")'
SCALED = 'scores = einsum(query, key, "b q n h, b k n h -> b n q k") / self.d_head**0.5'
MASK = "hidden = torch.ones(scores.shape[-2:]).triu(1).bool()"
NORMAL = "scale = (centred.pow(2).mean(-1, keepdim=True) + self.eps).sqrt()"
CASES = {
    # A factor.
    "scores-not-scaled": ("modular", (SCALED, SCALED.split(" / ")[0]), "blocks.0.attn.hook_attn_scores", "scale"),
    "scores-scaled-twice": (
        "modular",
        (SCALED, SCALED + " / self.d_head**0.5"),
        "blocks.0.attn.hook_attn_scores",
        "scale",
    ),
    "embedding-scaled": ("modular", ("return self.W_E[ids]", "return self.W_E[ids] * 24**0.5"), "hook_embed", "scale"),
    # A term too few or too many.
    "no-b_O": (
        "modular",
        (' "b q n h, n h m -> b q m") + self.b_O', ' "b q n h, n h m -> b q m")'),
        "blocks.0.hook_attn_out",
        "missing-term",
    ),
    "no-b_in": ("modular", ("x @ self.W_in + self.b_in", "x @ self.W_in"), "blocks.0.mlp.hook_pre", "missing-term"),
    "no-positions": (
        "modular",
        ("self.embed(ids) + self.pos_embed(ids)", "self.embed(ids)"),
        "blocks.0.hook_resid_pre",
        "missing-term",
    ),
    "stream-lost": (
        "modular",
        ("return mid + self.mlp", "return self.mlp"),
        "blocks.0.hook_resid_post",
        "missing-term",
    ),
    "stream-twice": (
        "modular",
        ("mid = x + self.attn", "mid = x + x + self.attn"),
        "blocks.0.hook_resid_mid",
        "extra-term",
    ),
    "b_out-twice": ("modular", ("+ self.b_out", "+ 2 * self.b_out"), "blocks.0.hook_mlp_out", "extra-term"),
    # Another order.
    "heads-reversed": ("modular", (Q, Q + "\n        query = query.flip(2)"), "blocks.0.attn.hook_q", "permutation"),
    "heads-interleaved": (
        "fused",
        ("q = q.view(B, T, self.n_head, -1).transpose(1, 2)", "q = q.view(B, T, -1, self.n_head).permute(0, 3, 1, 2)"),
        "blocks.0.attn.hook_q",
        "permutation",
    ),
    "positions-shifted": (
        "modular",
        ("self.W_pos[: ids.size(1)]", "self.W_pos[1 : ids.size(1) + 1]"),
        "hook_pos_embed",
        "shift",
    ),
    "positions-reversed": (
        "modular",
        ("self.W_pos[: ids.size(1)]", "self.W_pos[: ids.size(1)].flip(0)"),
        "hook_pos_embed",
        "shift",
    ),
    # The mask.
    "no-mask": ("modular", ("hidden, -torch.inf", "hidden, 0.0"), "blocks.0.attn.hook_attn_scores", "mask"),
    "diagonal-hidden": (
        "modular",
        (MASK, MASK.replace("triu(1)", "triu(0)")),
        "blocks.0.attn.hook_attn_scores",
        "mask",
    ),
    "one-future-key-seen": (
        "modular",
        (MASK, MASK.replace("triu(1)", "triu(2)")),
        "blocks.0.attn.hook_attn_scores",
        "mask",
    ),
    "past-hidden": ("modular", (MASK, MASK.replace("triu(1)", "tril(-1)")), "blocks.0.attn.hook_attn_scores", "mask"),
    # Another function.
    "exact-gelu": ("modular", (POST, "post = nn.functional.gelu(pre)"), "blocks.0.mlp.hook_post", "nonlinearity"),
    "relu": ("modular", (POST, "post = pre.relu()"), "blocks.0.mlp.hook_post", "nonlinearity"),
    "silu": ("modular", (POST, "post = nn.functional.silu(pre)"), "blocks.0.mlp.hook_post", "nonlinearity"),
    "exact-gelu-fused": (
        "fused",
        ('F.gelu(self.c_fc(x), approximate="tanh")', "F.gelu(self.c_fc(x))"),
        "blocks.0.mlp.hook_post",
        "nonlinearity",
    ),
    # The normalisation.
    "variance-over-n-1": (
        "modular",
        (NORMAL, "scale = (x.var(-1, keepdim=True) + self.eps).sqrt()"),
        "blocks.0.ln1.hook_scale",
        "normalisation",
    ),
    "another-eps": ("modular", ("eps: float = 1e-5", "eps: float = 1e-2"), "blocks.0.ln1.hook_scale", "normalisation"),
    # Another axis.
    "softmax-over-queries": ("modular", ("softmax(-1)", "softmax(-2)"), "blocks.0.attn.hook_pattern", "axis"),
    "softmax-over-heads": ("modular", ("softmax(-1)", "softmax(1)"), "blocks.0.attn.hook_pattern", "axis"),
    # Another operand.
    "key-from-W_V": ("modular", ("einsum(x, self.W_K", "einsum(x, self.W_V"), "blocks.0.attn.hook_k", "wrong-operand"),
    "attention-of-the-stream": (
        "modular",
        ("self.attn(self.ln1(x))", "self.attn(x)"),
        "blocks.0.ln1.hook_out",
        "wrong-operand",
    ),
    "q-k-v-in-another-order": ("fused", ("q, k, v = self", "k, q, v = self"), "blocks.0.attn.hook_q", "wrong-operand"),
    "mlp-of-the-first-norm": (
        "modular",
        ("self.mlp(self.ln2(mid))", "self.mlp(self.ln1(mid))"),
        "blocks.0.ln2.hook_out",
        "wrong-operand",
    ),
    # Chance, and precision.
    "dropout": (
        "modular",
        ("pattern = scores.softmax(-1)", "pattern = nn.functional.dropout(scores.softmax(-1), 0.3)"),
        "blocks.0.attn.hook_pattern",
        "random",
    ),
    "half-precision": (
        "modular",
        (POST, "post = nn.functional.gelu(pre.half(), approximate='tanh').float()"),
        "blocks.0.mlp.hook_post",
        "precision",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_tensor_and_the_cause(tmp_path, case):
    base, edit, reference, kind = CASES[case]
    found = diff_after(tmp_path, base, edit).first_divergence
    assert (found.row.reference, found.cause.kind) == (reference, kind), found.cause.detail
    assert found.row.line.startswith(f"{base}.py:")
    assert found.cause.detail


CONTROLS = {
    "as it is": ("modular", ("ids", "ids")),
    "fused": ("fused", ("idx", "idx")),
    "another contraction": ("modular", (Q, "query = torch.einsum('bpm,nmh->bpnh', x, self.W_Q) + self.b_Q")),
    "a finite mask": ("modular", ("hidden, -torch.inf", "hidden, -1e9")),
    "no b_K, which softmax cancels": ("modular", ('n m h -> b p n h") + self.b_K', 'n m h -> b p n h")')),
    "GELU written out": (
        "modular",
        (POST, "post = 0.5 * pre * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (pre + 0.044715 * pre**3)))"),
    ),
    "double precision inside": (
        "modular",
        (POST, "post = nn.functional.gelu(pre.double(), approximate='tanh').float()"),
    ),
    "one expression": (
        "modular",
        (
            "pre = x @ self.W_in + self.b_in\n        " + POST + "\n        return post",
            "return nn.functional.gelu(x @ self.W_in + self.b_in, approximate='tanh')",
        ),
    ),
    "other names": ("modular", ("pattern", "zwq")),
    "fused attention": (
        "fused",
        (
            "        att = q @ k.transpose(-2, -1) / math.sqrt(k.size(-1))  # (B, nh, T, T)\n"
            '        att = att.masked_fill(torch.ones(T, T).triu(1).bool(), float("-inf"))\n'
            "        y = att.softmax(dim=-1) @ v  # (B, nh, T, hs)\n",
            "        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)\n",
        ),
    ),
    "torch's LayerNorm": (
        "modular",
        (
            "        " + NORMAL + "\n        normal = centred / scale\n        return normal * self.w + self.b",
            "        return nn.functional.layer_norm(x, (24,), self.w, self.b, self.eps)",
        ),
    ),
    "the last position only": ("fused", ("self.transformer.ln_f(x))", "self.transformer.ln_f(x[:, [-1]]))")),
    "a tuple": (
        "fused",
        ("return self.lm_head(self.transformer.ln_f(x))", "return self.lm_head(self.transformer.ln_f(x)), None"),
    ),
}


@pytest.mark.parametrize("control", CONTROLS)
def test_what_is_only_written_otherwise_is_right(tmp_path, control):
    base, *edits = CONTROLS[control]
    report = diff_after(tmp_path, base, *edits)
    assert (report.first_divergence, report.ok) == (None, True)
    assert report.logits.relative < 5e-6


def test_a_slip_in_one_layer_is_found_in_that_layer(tmp_path):
    edit = ("for block in self.blocks:", "self.blocks[1].mlp.W_in.data.mul_(1)\n        for block in self.blocks:")
    late = ("self.ln2, self.mlp = LayerNorm(sizes), MLP(sizes)", "self.ln2, self.mlp = LayerNorm(sizes), MLP(sizes)")
    patched = (
        "self.ln_final, self.unembed = LayerNorm(sizes), Unembed(sizes)",
        "self.ln_final, self.unembed = LayerNorm(sizes), Unembed(sizes)\n        self.blocks[1].attn.d_head = 2",
    )
    found = diff_after(tmp_path, "modular", edit, late, patched).first_divergence
    assert (found.row.reference, found.cause.kind) == ("blocks.1.attn.hook_attn_scores", "scale")
    assert found.cause.number == pytest.approx(2)


def test_what_heals_is_a_remark(tmp_path):
    report = diff_after(tmp_path, "modular", CONTROLS["no b_K, which softmax cancels"][1])
    assert any("b_K" in remark for remark in report.remarks), report.remarks


def test_what_is_not_seen_is_called_right_only_where_something_that_matches_comes_of_it(tmp_path):
    """Here the pattern is never made, and what comes of it is what is wrong."""
    fused = CONTROLS["fused attention"][1]
    report = diff_after(tmp_path, "fused", fused, ("is_causal=True", "is_causal=False"))
    assert report.first_divergence.cause.kind == "mask"
    assert not any("pattern" in remark for remark in report.remarks), report.remarks
    right = diff_after(tmp_path, "fused", fused)
    assert right.remarks == (
        "not made by name in yours, and what comes of it is right: scale, normalized, attn_scores, pattern",
    )


def test_a_model_that_predicts_one_token_is_compared_there(tmp_path):
    gelu = ('F.gelu(self.c_fc(x), approximate="tanh")', "F.gelu(self.c_fc(x))")
    report = diff_after(tmp_path, "fused", ("self.transformer.ln_f(x))", "self.transformer.ln_f(x[:, [-1]]))"), gelu)
    unembed = [row.difference.relative for row in report.modules if row.module == "unembed"]
    assert (report.first_divergence.row.reference, report.first_divergence.cause.kind) == (
        *("blocks.0.mlp.hook_post", "nonlinearity"),
    )
    assert all(each < 1e-3 for each in (*unembed, report.logits.relative))
