"""Layouts of GPT-2's weights: told by names and shapes, and converted to TransformerLens' and back."""

import pytest
import torch

from shapetrace.gpt2 import Config
from shapetrace.weights.layouts import find_layout
from shapetrace.weights.layouts.layout import slots_of
from shapetrace.weights.layouts.tables import HUGGING_FACE, NANO_GPT, TABLES, TEXTBOOK, TRANSFORMER_LENS
from shapetrace.weights.seeded import seeded_state

SIZES = Config(n_layers=2, d_model=20, n_heads=5, d_head=4, d_mlp=60, d_vocab=31, n_ctx=16)


def packed(table, prefix=lambda row: ""):
    state = seeded_state(SIZES, 0)
    return {slot.key: slot.pack(state) for slot in slots_of(table, range(2), prefix)}


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_what_is_packed_is_unpacked_bit_for_bit(table):
    state = seeded_state(SIZES, 0)
    back = {}
    for slot in slots_of(table, range(2)):
        back |= slot.unpack(slot.pack(state), SIZES.n_heads)
    assert back.keys() == state.keys()
    assert all(torch.equal(back[name], tensor) for name, tensor in state.items())


def test_a_fused_projection_holds_q_k_and_v_one_after_the_other():
    state, theirs = seeded_state(SIZES, 0), packed(HUGGING_FACE)
    weight = theirs["h.1.attn.c_attn.weight"]
    assert weight.shape == (20, 60)
    # Head 2 of k begins after all of q and two heads of k.
    assert torch.equal(weight[:, 20 + 8 : 20 + 12], state["blocks.1.attn.W_K"][2])
    assert torch.equal(packed(NANO_GPT)["h.1.attn.c_attn.weight"], weight.T)
    assert torch.equal(packed(TEXTBOOK)["trf_blocks.1.att.W_key.weight"][8:12], state["blocks.1.attn.W_K"][2].T)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
@pytest.mark.parametrize("prefix", ["", "module.", "module._orig_mod.", "model."])
def test_a_layout_is_told_by_names_and_shapes(table, prefix):
    shapes = {prefix + key: tuple(tensor.shape) for key, tensor in packed(table).items()}
    layout = find_layout(shapes)
    assert (layout.name, layout.absent, len(layout.slots)) == (table.name, (), len(shapes))
    assert {slot.key for slot in layout.slots} == set(shapes)


def test_transformer_before_all_but_the_head():
    shapes = {
        key: tuple(tensor.shape)
        for key, tensor in packed(NANO_GPT, lambda row: "" if row.key.startswith("lm_head") else "transformer.").items()
    }
    del shapes["lm_head.bias"], shapes["transformer.h.0.attn.c_attn.bias"]
    layout = find_layout(shapes)
    assert layout.name == "nanoGPT"
    assert [(slot.key, slot.names) for slot in layout.absent] == [
        (
            "transformer.h.0.attn.c_attn.bias",
            ("blocks.0.attn.b_Q", "blocks.0.attn.b_K", "blocks.0.attn.b_V"),
        ),
        ("lm_head.bias", ("unembed.b_U",)),
    ]


def test_a_few_names_that_are_nobodys_do_not_hide_the_layout():
    shapes = {key: tuple(tensor.shape) for key, tensor in packed(TRANSFORMER_LENS).items()}
    shapes["blocks.0.mlp.W_ln"] = shapes.pop("blocks.0.mlp.W_in")
    layout = find_layout(shapes)
    assert [slot.key for slot in layout.absent] == ["blocks.0.mlp.W_in"]
    assert find_layout({"weight": (3, 2), "bias": (3,)}) is None
    assert find_layout({}) is None
