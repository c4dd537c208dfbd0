"""The modular GPT-2: its sizes, its names, and its numbers against the formulas written out."""

import math

import pytest
import torch

from shapetrace.gpt2 import Config, Transformer
from shapetrace.parameters import count_parameters
from shapetrace.recorder.parameters import describe_modules

TINY = Config(n_layers=2, d_model=20, n_heads=5, d_head=4, d_mlp=80, d_vocab=31, n_ctx=16)


def built_on_meta(config):
    with torch.device("meta"):
        return Transformer(config)


@pytest.mark.parametrize(
    ("path", "count"),
    [
        ("", 163_087_441),
        ("embed", 38_597_376),
        ("pos_embed", 786_432),
        ("blocks", 85_054_464),
        ("blocks.0", 7_087_872),
        ("blocks.0.attn", 2_362_368),
        ("blocks.0.mlp", 4_722_432),
        ("ln_final", 1_536),
        ("unembed", 38_647_633),
    ],
)
def test_parameter_counts_of_gpt2_small(path, count):
    assert count_parameters(describe_modules(built_on_meta(Config())), path) == count


def test_names_are_those_of_transformer_lens():
    names = [name for name, _ in Transformer(TINY).state_dict().items() if not name.startswith("blocks.1.")]
    assert names == [
        "embed.W_E",
        "pos_embed.W_pos",
        *("blocks.0.ln1.w", "blocks.0.ln1.b"),
        *(f"blocks.0.attn.{name}" for name in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O", "IGNORE")),
        *("blocks.0.ln2.w", "blocks.0.ln2.b"),
        *(f"blocks.0.mlp.{name}" for name in ("W_in", "b_in", "W_out", "b_out")),
        *("ln_final.w", "ln_final.b"),
        *("unembed.W_U", "unembed.b_U"),
    ]


def test_only_the_unembedding_bias_is_frozen():
    frozen = [name for name, parameter in Transformer(TINY).named_parameters() if not parameter.requires_grad]
    assert frozen == ["unembed.b_U"]


def norm(x, w, b):
    mean = x.mean(-1, keepdim=True)
    return (x - mean) / ((x - mean).square().mean(-1, keepdim=True) + 1e-5).sqrt() * w + b


def gpt2_by_hand(state, tokens):
    """The same function, a head at a time and without a module: Radford et al. 2019 and Vaswani et al. 2017."""
    (posn,) = tokens.shape
    x = state["embed.W_E"][tokens] + state["pos_embed.W_pos"][:posn]
    for layer in range(TINY.n_layers):
        of = {name.removeprefix(f"blocks.{layer}."): tensor for name, tensor in state.items()}
        h = norm(x, of["ln1.w"], of["ln1.b"])
        total = of["attn.b_O"].clone()
        for head in range(TINY.n_heads):
            q, k, v = (h @ of[f"attn.W_{each}"][head] + of[f"attn.b_{each}"][head] for each in "QKV")
            scores = q @ k.T / math.sqrt(TINY.d_head)
            for query in range(posn):
                weights = scores[query, : query + 1].exp() / scores[query, : query + 1].exp().sum()
                row = torch.zeros(posn, TINY.d_model, dtype=x.dtype)
                row[query] = weights @ v[: query + 1] @ of["attn.W_O"][head]
                total = total + row
        x = x + total
        pre = norm(x, of["ln2.w"], of["ln2.b"]) @ of["mlp.W_in"] + of["mlp.b_in"]
        post = 0.5 * pre * (1 + torch.tanh(math.sqrt(2 / math.pi) * (pre + 0.044715 * pre**3)))
        x = x + post @ of["mlp.W_out"] + of["mlp.b_out"]
    return norm(x, state["ln_final.w"], state["ln_final.b"]) @ state["unembed.W_U"] + state["unembed.b_U"]


def test_the_logits_are_those_of_the_formulas():
    torch.manual_seed(0)
    model = Transformer(TINY).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    tokens = torch.tensor([[30, 1, 4, 1, 5, 9, 2]])
    expected = gpt2_by_hand(model.state_dict(), tokens[0])
    torch.testing.assert_close(model(tokens)[0], expected, rtol=1e-10, atol=1e-10)
