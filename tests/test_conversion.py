"""Weights from any layout to any other: bit for bit there and back, and into the models that have them."""

import importlib.util
import re
from itertools import permutations
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from shapetrace import forge, gpt2
from shapetrace.errors import WeightsError
from shapetrace.target import build_target
from shapetrace.weights import convert, read_weights
from shapetrace.weights.layouts.layout import slots_of
from shapetrace.weights.layouts.tables import TABLES, TRANSFORMER_LENS
from shapetrace.weights.seeded import seeded_state

SPEC = importlib.util.spec_from_file_location("other_layouts", Path(__file__).parent / "other_layouts.py")
models = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(models)

SIZES = gpt2.Config(n_layers=2, d_model=20, n_heads=5, d_head=4, d_mlp=80, d_vocab=31, n_ctx=16)
SETTINGS = tuple(f"{name}={getattr(SIZES, name)}" for name in ("n_layers", "d_model", "n_heads", "d_vocab", "n_ctx"))
TOKENS = torch.tensor([[30, 1, 4, 1, 5, 9, 2]])
NAMES = [table.name for table in TABLES]


def tied_state():
    """Random weights of the modular GPT-2, the head the embedding as in GPT-2 itself."""
    state = seeded_state(SIZES, 0)
    return state | {"unembed.W_U": state["embed.W_E"].T, "unembed.b_U": torch.zeros(31)}


def bits_of(tensor):
    return tensor.view({1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()])


def same_bits(one, other):
    """Also of nan and of -0.0, which no comparison of numbers tells."""
    assert one.keys() == other.keys()
    return all(
        one[key].dtype == other[key].dtype and torch.equal(bits_of(one[key]), bits_of(other[key])) for key in one
    )


@st.composite
def weights(draw):
    """A GPT-2's weights in one of the layouts, of any bits at all; without a head's bias, or with one."""
    n_heads, d_head = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    config = gpt2.Config(
        n_layers=draw(st.integers(1, 3)),
        n_heads=n_heads,
        d_head=d_head,
        d_model=n_heads * d_head,
        d_mlp=n_heads * d_head + draw(st.integers(1, 9)),  # a GPT-2's is wider: it tells Hugging Face's from nanoGPT's
        d_vocab=draw(st.integers(2, 9)),
        n_ctx=draw(st.integers(1, 5)),
    )
    dtype = draw(st.sampled_from([torch.float32, torch.float16, torch.bfloat16, torch.float64]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))

    def any_bits(tensor):
        size = (tensor.numel() * dtype.itemsize,)
        return torch.randint(256, size, generator=generator, dtype=torch.uint8).view(dtype).view(tensor.shape)

    ours = {name: any_bits(tensor) for name, tensor in seeded_state(config, 0).items()}
    ours["unembed.b_U"] = torch.ones(config.d_vocab, dtype=dtype) * draw(st.booleans())
    return ours, n_heads


@settings(max_examples=40, deadline=None)
@given(weights(), st.sampled_from([*permutations(NAMES, 2)]))
def test_there_and_back_is_the_same_bit_for_bit(drawn, names):
    ours, n_heads = drawn
    one, other = names
    start = convert(ours, one)
    there = convert(start, other, n_heads)
    assert same_bits(convert(there, one, n_heads), start)
    assert same_bits(convert(there, "TransformerLens", n_heads), ours)
    if "TransformerLens" not in names:  # the heads need not be told apart
        assert same_bits(convert(start, other), there)


@pytest.mark.parametrize("name", NAMES)
def test_to_its_own_layout_nothing_changes(name):
    state = convert(tied_state(), name)
    assert same_bits(convert(state, name), state)


@pytest.mark.parametrize("name", NAMES)
def test_what_comes_out_can_be_written_to_a_file(name, tmp_path):
    state = convert(tied_state(), name)
    save_file(state, tmp_path / "model.safetensors")
    assert same_bits(load_file(tmp_path / "model.safetensors"), state)
    assert same_bits(convert(read_weights(tmp_path), "TransformerLens", 5), convert(tied_state(), "TransformerLens"))


def model_of(name):
    """A model of each layout, its weights its own."""
    if name == "TransformerLens":
        return gpt2.Transformer(SIZES).eval()
    if name == "forge":
        return forge.Transformer(forge.Config(n_layers=2, d_model=20, n_heads=5, d_vocab=31, n_ctx=16)).eval()
    if name == "nanoGPT":
        return models.NanoGPT(models.GPTConfig(n_embd=20, n_head=5, vocab_size=31, block_size=16)).eval()
    from transformers import GPT2Config, GPT2LMHeadModel

    special = {"bos_token_id": 30, "eos_token_id": 30}
    return GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=20, n_head=5, n_positions=16, vocab_size=31, **special)).eval()


def last_logits(model):
    output = model(TOKENS)
    logits = output.logits if hasattr(output, "logits") else output[0] if isinstance(output, tuple) else output
    return logits[:, -1]


MODELS = ["TransformerLens", "forge", "nanoGPT", "Hugging Face"]


@pytest.mark.parametrize(("one", "other"), [*permutations(MODELS, 2)])
def test_a_model_s_state_dict_is_another_one_s(one, other):
    donor, model = model_of(one), model_of(other)
    donor.load_state_dict(convert(tied_state(), one), strict=False)
    state = {key: tensor.clone() for key, tensor in donor.state_dict().items()}
    given = convert(state, other, 5)
    missing, unexpected = model.load_state_dict(given, strict=False)
    constants = re.compile(r".*\.(IGNORE|attn\.bias)")
    assert ([key for key in missing if not constants.fullmatch(key)], unexpected) == ([], [])
    torch.testing.assert_close(last_logits(model), last_logits(donor), rtol=1e-5, atol=1e-4)
    back = convert(model.state_dict(), one, 5)
    assert same_bits(back, {key: tensor for key, tensor in state.items() if not constants.fullmatch(key)})


@pytest.mark.parametrize("attention", ["sdpa", "manual"])
def test_forge_with_gpt2_s_weights_has_its_logits(attention):
    """At every position, within float32 noise and, in float64, within its noise."""
    donor = gpt2.Transformer(SIZES).eval()
    donor.load_state_dict(tied_state(), strict=False)
    config = forge.Config(n_layers=2, d_model=20, n_heads=5, d_vocab=31, n_ctx=16, attention=attention)
    model = forge.Transformer(config).eval()
    model.load_state_dict(convert(donor.state_dict(), "forge"))
    scale = donor(TOKENS).abs().max().item()
    torch.testing.assert_close(model(TOKENS, TOKENS)[0], donor(TOKENS), rtol=0, atol=5e-6 * scale)
    model, donor = model.double(), donor.double()
    torch.testing.assert_close(model(TOKENS, TOKENS)[0], donor(TOKENS), rtol=0, atol=2e-14 * scale)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("built_in", ["gpt2-small", "forge-small"])
def test_a_built_in_reads_a_file_in_any_layout(name, built_in, tmp_path):
    save_file(convert(tied_state(), name), tmp_path / "model.safetensors")
    sizes = (*SETTINGS, "d_head=4", "d_mlp=80") if built_in == "gpt2-small" else SETTINGS
    target = build_target(built_in, sizes, str(tmp_path / "model.safetensors"))
    assert (target.weights, target.are_trained) == ("model.safetensors", True)
    donor = gpt2.Transformer(SIZES).eval()
    donor.load_state_dict(tied_state(), strict=False)
    torch.testing.assert_close(last_logits(target.model), last_logits(donor), rtol=1e-5, atol=1e-4)


def test_a_variant_reads_a_file_of_its_own(tmp_path):
    options = (*SETTINGS, "activation=swiglu", "use_bias=false", "positions=sinusoidal")
    donor = build_target("forge-small", options, "random", seed=7)
    state = {key: tensor.clone() for key, tensor in donor.model.state_dict().items()}
    save_file(state, tmp_path / "model.safetensors")
    model = build_target("forge-small", options, str(tmp_path / "model.safetensors")).model
    assert torch.equal(model(TOKENS)[0], donor.model(TOKENS)[0])


@pytest.mark.parametrize("other", ["n_layers=3", "d_vocab=30", "activation=swiglu", "use_bias=false"])
def test_weights_of_another_forge_say_what_to_set(other, tmp_path):
    save_file(convert(tied_state(), "forge"), tmp_path / "x.safetensors")
    with pytest.raises(WeightsError, match="say with `--set` what the weights were made with, such as `--set n_layers"):
        build_target("forge-small", (*SETTINGS, other), str(tmp_path / "x.safetensors"))


@pytest.mark.parametrize(
    ("layout", "option", "key"),
    [
        ("Hugging Face", "positions=sinusoidal", "transformer.wpe.weight"),
        ("TransformerLens", "positions=sinusoidal", "pos_embed.W_pos"),
        ("nanoGPT", "use_bias=false", "transformer.h.0.attn.c_attn.bias"),
    ],
)
def test_what_a_forge_has_no_place_for_is_told_under_the_names_of_the_file(layout, option, key, tmp_path):
    save_file(convert(tied_state(), layout), tmp_path / "x.safetensors")
    with pytest.raises(WeightsError, match=rf"unexpected: .*`{re.escape(key)}`"):
        build_target("forge-small", (*SETTINGS, option), str(tmp_path / "x.safetensors"))


def test_weights_of_no_forge_say_what_the_names_are(tmp_path):
    save_file({"conv.weight": torch.ones(2, 3)}, tmp_path / "x.safetensors")
    with pytest.raises(
        WeightsError, match=r"a file has the forge's names \(token_embedding.weight\), or GPT-2's weights"
    ):
        build_target("forge-small", SETTINGS, str(tmp_path / "x.safetensors"))


def test_a_head_of_its_own_does_not_fit_a_tied_one(tmp_path):
    save_file(convert(seeded_state(SIZES, 0) | {"unembed.b_U": torch.zeros(31)}, "nanoGPT"), tmp_path / "x.safetensors")
    message = "`token_embedding.weight` and `lm_head.weight` are one tensor in the model, and two in x.safetensors"
    with pytest.raises(WeightsError, match=re.escape(message)):
        build_target("forge-small", SETTINGS, str(tmp_path / "x.safetensors"))


@pytest.mark.parametrize(
    ("state", "to", "message"),
    [
        (tied_state(), "nanogtp", "there is no layout `nanogtp`\n\nhint: did you mean `nanoGPT`"),
        ({"conv.weight": torch.ones(3, 2)}, "forge", "weights such as `conv.weight` are in no known layout of GPT-2"),
        ({}, "forge", "there are no weights to convert"),
        (
            convert(tied_state(), "nanoGPT"),
            "TransformerLens",
            "nanoGPT's weights do not tell how many heads they have, and TransformerLens' are one a head",
        ),
        (
            {**convert(tied_state(), "forge"), "layers.0.mlp.mlp_gate_proj.weight": torch.ones(80, 20)},
            "Hugging Face",
            "Hugging Face's layout has no place for `layers.0.mlp.mlp_gate_proj.weight`",
        ),
        (
            {name: tensor for name, tensor in tied_state().items() if name != "blocks.1.attn.W_K"},
            "forge",
            "`layers.1.attn.qkv_proj.weight` is made of `blocks.1.attn.W_Q`, `blocks.1.attn.W_K`, `blocks.1.attn.W_V`, "
            "and there is no `blocks.1.attn.W_K`",
        ),
        (
            {**convert(tied_state(), "forge"), "layers.0.attn.qkv_proj.weight": torch.ones(61, 20)},
            "nanogpt",
            "`layers.0.attn.qkv_proj.weight` has shape (61, 20), which does not hold q, k and v",
        ),
    ],
)
def test_what_cannot_be_converted(state, to, message):
    with pytest.raises(WeightsError, match=re.escape(message)):
        convert(state, to)


@pytest.mark.parametrize("n_heads", [0, -1, "4", 4.0])
def test_what_is_no_number_of_heads(n_heads):
    with pytest.raises(WeightsError, match=re.escape(f"n_heads is {n_heads!r}, which is no number of heads")):
        convert(convert(tied_state(), "forge"), "TransformerLens", n_heads)


def test_every_layout_has_a_place_for_every_tensor():
    every = {name for slot in slots_of(TRANSFORMER_LENS, [0]) for name in slot.names}
    for table in TABLES:
        assert {name for slot in slots_of(table, [0]) for name in slot.names} == every
