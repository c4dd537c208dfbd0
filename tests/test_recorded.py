"""Any GPT-2 as the reference: it gives the activations that transformer_lens does, and what is none is told."""

import importlib.util
import re
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest
import torch
from torch import nn

import shapetrace
from shapetrace import forge, gpt2
from shapetrace.divergence.recorded import record_reference
from shapetrace.reference import build_reference
from shapetrace.weights import convert
from shapetrace.weights.seeded import draw_weights, seeded_state

TOKENS = torch.tensor([[100, 3, 1, 4, 1, 5, 9], [100, 2, 6, 5, 3, 5, 8]])
SPEC = importlib.util.spec_from_file_location("other_layouts", Path(__file__).parent / "other_layouts.py")
models = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(models)

CONFIG = gpt2.Config(n_layers=2, d_model=40, n_heads=5, d_head=8, d_mlp=160, d_vocab=101, n_ctx=24)
FORGE = forge.Config(n_layers=2, d_model=40, n_heads=5, d_vocab=101, n_ctx=24)


def modular():
    return gpt2.Transformer(CONFIG).eval()


def fused(**options):
    model = forge.Transformer(replace(FORGE, **options)).eval()
    draw_weights(model, 1)
    return model


def hugging_face(**options):
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_layer": 2, "n_embd": 40, "n_head": 5, "n_positions": 24, "vocab_size": 101}
    special = {"bos_token_id": 100, "eos_token_id": 100}
    return GPT2LMHeadModel(GPT2Config(**sizes, **special, **options)).eval()


def nano(**options):
    return models.NanoGPT(models.GPTConfig(**options)).eval()


BUILD = {
    "modular": modular,
    "fused": fused,
    "by hand": lambda: fused(attention="manual"),
    "Hugging Face": hugging_face,
    "nanoGPT": nano,
    "minGPT": lambda: models.MinGPT(models.GPTConfig()).eval(),
    "textbook": lambda: models.Textbook().eval(),
}


@pytest.mark.parametrize(("one", "other"), [*permutations(BUILD, 2)])
def test_every_gpt2_is_the_reference_of_every_other(one, other):
    report = shapetrace.diff(BUILD[one](), TOKENS, BUILD[other](), load=True)
    assert (report.ok, report.first_divergence) == (True, None)
    assert (report.keys.missing, report.keys.unexpected, report.keys.different) == ((), (), ())
    assert all(row.difference.ok for row in report.modules)
    assert {"embed", "blocks.0.attn", "blocks.1", "ln_final"} <= {row.module for row in report.modules}
    assert (report.reference, report.weights) == (type(BUILD[other]()).__name__, "random (seed 0)")


@pytest.mark.parametrize("name", BUILD)
def test_it_gives_what_transformer_lens_does(name):
    model = BUILD[name]()
    reference = record_reference(model, n_heads=5)
    lens = build_reference(CONFIG, {key: tensor.clone() for key, tensor in reference.state().items()})
    ours, theirs = reference.run(TOKENS), lens.run(TOKENS)
    assert list(ours.activations) == list(theirs.activations)
    assert list(ours.outputs) == [*theirs.outputs]
    pairs = [
        (ours.activations, theirs.activations),
        (ours.outputs, theirs.outputs),
        (ours.inputs, {key: tensor for key, tensor in theirs.inputs.items() if tensor.is_floating_point()}),
        ({"": ours.logits}, {"": theirs.logits}),
    ]
    for own, other in pairs:
        for key, tensor in other.items():
            expected = tensor
            if "attn_scores" in key:  # transformer_lens 3.9 hides with a finite number or -inf
                expected = tensor.masked_fill(tensor <= torch.finfo(tensor.dtype).min, -torch.inf)
            torch.testing.assert_close(own[key].expand_as(expected), expected, rtol=1e-5, atol=1e-4, msg=key)


def test_what_it_makes_itself_is_not_computed():
    """The reference's own tensors, bit for bit, where it has them."""
    model = fused(attention="manual")
    trace = {}
    model.layers[1].attn.register_forward_hook(lambda module, args, output: trace.update(attn_out=output))
    model.layers[1].mlp.mlp_up_proj.register_forward_hook(lambda module, args, output: trace.update(pre=output))
    activations = record_reference(model).run(TOKENS).activations
    assert torch.equal(activations["blocks.1.hook_attn_out"], trace["attn_out"])
    assert torch.equal(activations["blocks.1.mlp.hook_pre"], trace["pre"])


def first_of(report):
    found = report.first_divergence
    return found.row.reference, found.row.yours, found.cause.kind, found.cause.detail


@pytest.mark.parametrize(
    "build",
    [
        lambda: nano(activation="none"),
        lambda: fused(activation="relu", attention="manual"),
        lambda: fused(scale_embedding=True),
        lambda: fused(activation="swiglu", d_mlp=160),
        lambda: hugging_face(layer_norm_epsilon=1e-3),
        lambda: hugging_face(scale_attn_by_inverse_layer_idx=True),
    ],
    ids=["exact GELU", "ReLU", "scaled embedding", "SwiGLU", "eps", "scaled by layer"],
)
def test_what_is_wrong_is_what_transformer_lens_says_it_is(build):
    assert first_of(shapetrace.diff(build(), TOKENS, modular(), load=True)) == first_of(
        shapetrace.diff(build(), TOKENS)
    )


@pytest.mark.parametrize("attention", ["sdpa", "manual"])
def test_without_load_each_holds_its_own_weights(attention):
    donor, model = modular(), fused(attention=attention)
    state = seeded_state(CONFIG, 3)
    state |= {"unembed.W_U": state["embed.W_E"].T, "unembed.b_U": torch.zeros(101)}
    donor.load_state_dict(state, strict=False)
    model.load_state_dict(convert(donor.state_dict(), "forge"))
    report = shapetrace.diff(model, TOKENS, donor)
    assert (report.ok, report.weights, report.keys.different) == (True, "its own", ())
    with torch.no_grad():
        model.layers[1].mlp.mlp_up_proj.bias[7] += 0.5
    report = shapetrace.diff(model, TOKENS, donor)
    assert report.keys.different == ("layers.1.mlp.mlp_up_proj.bias",)
    assert first_of(report) == (
        "blocks.1.mlp.hook_pre",
        "layers.1.mlp.pre",
        "weights",
        "`layers.1.mlp.mlp_up_proj.bias` holds other values than the reference's: was it loaded?",
    )


def test_on_the_model_s_own_weights():
    model, other = fused(), modular()
    before = {key: tensor.clone() for key, tensor in other.state_dict().items()}
    report = shapetrace.diff(model, TOKENS, other, load=True, own="mine.safetensors")
    assert (report.ok, report.weights) == (True, "mine.safetensors")
    assert all(torch.equal(tensor, before[key]) for key, tensor in other.state_dict().items())
    untied = modular()
    draw_weights(untied, 0)
    message = (
        "the reference Transformer cannot hold your unembed.W_U, unembed.b_U: "
        "its head is its embedding, or it has no biases"
    )
    with pytest.raises(shapetrace.ShapetraceError, match=re.escape(message)):
        shapetrace.diff(untied, TOKENS, fused(), load=True, own="mine.safetensors")


def test_biases_that_one_side_leaves_out_are_0_on_the_other():
    for one, other in ((fused(use_bias=False), modular()), (modular(), fused(use_bias=False))):
        assert shapetrace.diff(one, TOKENS, other, load=True).ok


class Raising(models.NanoGPT):
    def forward(self, idx):
        raise ValueError("not today")


def wrong(name, activation, own):
    return (
        f"{name} is no GPT-2, and no reference: {activation}, its `{own}` is not what GPT-2 computes there\n\n"
        "hint: a reference has GPT-2's layers"
    )


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: fused(activation="relu"), wrong("Transformer", "blocks.0.mlp.post", "layers.0.mlp.post")),
        (lambda: fused(scale_embedding=True), wrong("Transformer", "blocks.0.resid_pre", "hidden_state")),
        (lambda: fused(positions="sinusoidal"), wrong("Transformer", "blocks.0.resid_pre", "hidden_state")),
        (
            lambda: fused(activation="swiglu", d_mlp=160),
            wrong("Transformer", "blocks.0.mlp.post", "layers.0.mlp.post"),
        ),
        (lambda: hugging_face(layer_norm_epsilon=1e-3), "GPT2LMHeadModel is no GPT-2, and no reference: blocks.0.ln1"),
        (lambda: nn.Linear(3, 2), "Linear cannot be the reference: Linear's parameters are in no known layout of"),
        (
            lambda: nano(n_layer=1, n_embd=20),
            "the reference has other sizes than the model: n_layers 2 beside 1, d_model 40 beside 20, "
            "d_head 8 beside 4, d_mlp 160 beside 80",
        ),
        (lambda: nano(block_size=12), "the reference has other sizes than the model: n_ctx 24 beside 12"),
        (lambda: nano().double(), "the reference is torch.float64 and the model torch.float32"),
        (lambda: Raising(models.GPTConfig()), "the reference Raising raised ValueError: not today"),
        (
            lambda: fused(drop_prob=0.5).train(),
            "is not what GPT-2 computes there\n\nhint: it is in training mode, in which dropout is on",
        ),
    ],
    ids=["ReLU", "scaled", "sinusoidal", "SwiGLU", "eps", "no GPT-2", "sizes", "n_ctx", "dtype", "raises", "training"],
)
def test_what_can_be_no_reference(build, message):
    with pytest.raises(shapetrace.ShapetraceError, match=re.escape(message)):
        shapetrace.diff(modular(), TOKENS, build(), load=True)
