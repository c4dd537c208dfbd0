"""The traces of GPT-2 small that lie in `traces/`: the whole model, and one of each kind of module."""

from pathlib import Path

import pytest
import torch

from shapetrace import load
from shapetrace.target import build_target
from shapetrace.tokens import encode
from shapetrace.trace import tensors_of, walk_calls

TRACES = Path(__file__).parent.parent / "traces" / "test_goldens"
KINDS = {
    "embed": "embed",
    "pos_embed": "pos_embed",
    "transformer_block": "blocks.0",
    "layer_norm": "blocks.0.ln1",
    "attention": "blocks.0.attn",
    "mlp": "blocks.0.mlp",
    "unembed": "unembed",
}
TOKENS = torch.tensor([encode("The cat sat on the mat")])


@pytest.fixture(scope="module")
def model():
    return build_target("gpt2-small", weights="random").model


def test_the_whole_model(model, golden_trace):
    golden_trace.check(model, TOKENS, name="gpt2_small", comments=True)


@pytest.mark.parametrize(("kind", "path"), KINDS.items())
def test_a_module_of_each_kind(model, golden_trace, kind, path):
    given = TOKENS if kind in ("embed", "pos_embed") else torch.zeros(1, 7, 768)
    golden_trace.check(model.get_submodule(path), given, name=kind, comments=True)


def test_four_fifths_of_the_tensors_carry_a_comment():
    (root,) = load(TRACES / "gpt2_small.yaml").calls
    tensors = [tensor for call in walk_calls(root) for tensor in tensors_of(call)]
    assert sum(bool(tensor.comment) for tensor in tensors) >= 0.8 * len(tensors)


# What the first document prints for each module, in its order. `w, b` of a LayerNorm are two parameters here.
SEEDS = {
    "embed": [("in", (1, 7)), ("W_E", (50257, 768)), ("out", (1, 7, 768))],
    "pos_embed": [("in", (1, 7)), ("W_pos", (1024, 768)), ("sliced", (7, 768)), ("out", (1, 7, 768))],
    "layer_norm": [
        *(("residual", (1, 7, 768)), ("residual_mean", (1, 7, 1)), ("residual_std", (1, 7, 1))),
        *(("residual", (1, 7, 768)), ("w", (768,)), ("b", (768,)), ("out", (1, 7, 768))),
    ],
    "attention": [
        *(("normalized_resid_pre", (1, 7, 768)), ("W_Q", (12, 768, 64)), ("b_Q", (12, 64)), ("q", (1, 7, 12, 64))),
        *(("W_K", (12, 768, 64)), ("b_K", (12, 64)), ("k", (1, 7, 12, 64))),
        *(("W_V", (12, 768, 64)), ("b_V", (12, 64)), ("v", (1, 7, 12, 64))),
        *(("attn_scores", (1, 12, 7, 7)), ("mask", (7, 7)), ("attn_pattern", (1, 12, 7, 7))),
        *(("z", (1, 7, 12, 64)), ("W_O", (12, 64, 768)), ("b_O", (768,)), ("attn_out", (1, 7, 768))),
    ],
    "mlp": [
        *(("normalized_resid_mid", (1, 7, 768)), ("W_in", (768, 3072)), ("b_in", (3072,)), ("pre", (1, 7, 3072))),
        *(("post", (1, 7, 3072)), ("W_out", (3072, 768)), ("b_out", (768,)), ("mlp_out", (1, 7, 768))),
    ],
    "transformer_block": [("resid_pre", (1, 7, 768)), ("resid_mid", (1, 7, 768)), ("resid_post", (1, 7, 768))],
    "unembed": [
        *(("normalized_resid_final", (1, 7, 768)), ("W_U", (768, 50257)), ("b_U", (50257,)), ("logits", (1, 7, 50257))),
    ],
}


@pytest.mark.parametrize(("kind", "printed"), SEEDS.items())
def test_every_tensor_that_the_first_document_prints(kind, printed):
    (call,) = load(TRACES / f"{kind}.yaml").calls
    activations = [
        ("in" if kind in ("embed", "pos_embed") and each.role == "input" else each.name, each.shape)
        for each in tensors_of(call)
    ]
    parameters = [(each.name, each.shape) for each in call.parameters]
    for row in printed:
        assert row in (parameters if row[0][0] in "Wwb" else activations)
    # and in the same order
    wanted = [row for row in printed if row not in parameters and row[0] != "in"]
    rest = iter(activations)
    assert all(row in rest for row in wanted)
