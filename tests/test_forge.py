"""The fused decoder in all its variants: counts and shapes by formula, and its numbers against those written out."""

import math
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch

from shapetrace import check, forge, record
from shapetrace.forge import Config, SinusoidalEmbedding, Transformer
from shapetrace.parameters import count_parameters
from shapetrace.recorder.parameters import describe_modules
from shapetrace.trace import tensors_of, walk_calls
from shapetrace.weights.seeded import draw_weights

TINY = Config(n_layers=2, d_model=20, n_heads=5, d_vocab=31, n_ctx=16)
TOKENS = torch.tensor([[30, 1, 4, 1, 5, 9, 2]])
VARIANTS = {
    "default": {},
    "manual": {"attention": "manual"},
    "relu": {"activation": "relu"},
    "gelu": {"activation": "gelu"},
    "swiglu": {"activation": "swiglu"},
    "no_bias": {"use_bias": False},
    "swiglu_no_bias": {"activation": "swiglu", "use_bias": False},
    "vaswani": {"positions": "sinusoidal", "scale_embedding": True, "activation": "relu"},
    "d_mlp": {"d_mlp": 48},
}
WIDTH = {"relu": 80, "gelu": 80, "gelu_tanh": 80, "swiglu": 56}  # 8/3 of 20 is 53.3: the next multiple of 8


def drawn(config):
    """A model in float64, every parameter of it random."""
    model = Transformer(config).eval()
    draw_weights(model, 0)
    return model.double()


def parameters_by_formula(cfg):
    """V d + C d + L (attention 4 d^2 + 4 d, MLP 2 or 3 d f + its biases, two norms) + a norm."""
    d, f, bias = cfg.d_model, cfg.mlp_width(), int(cfg.use_bias)
    gated = cfg.activation == "swiglu"
    norm = d + bias * d
    attn = 4 * d * d + bias * 4 * d
    mlp = (3 if gated else 2) * d * f + bias * ((2 if gated else 1) * f + d)
    embedded = cfg.d_vocab * d + (cfg.n_ctx * d if cfg.positions == "learned" else 0)
    return embedded + cfg.n_layers * (attn + mlp + 2 * norm) + norm


EVERY = [
    {"activation": activation, "use_bias": use_bias, "positions": positions, "attention": attention}
    for activation, use_bias, positions, attention in product(
        WIDTH, (True, False), ("learned", "sinusoidal"), ("sdpa", "manual")
    )
]


@pytest.mark.parametrize("options", EVERY, ids=lambda options: " ".join(map(str, options.values())))
def test_parameters_of_every_variant(options):
    cfg = replace(TINY, **options)
    assert cfg.mlp_width() == WIDTH[cfg.activation]
    model = Transformer(cfg)
    assert count_parameters(describe_modules(model)) == parameters_by_formula(cfg)
    masks = [name for name, _ in model.named_buffers() if name.endswith("causal_mask")]
    assert len(masks) == (2 if cfg.attention == "manual" else 0)
    assert not any("mask" in name for name in model.state_dict())


@pytest.mark.parametrize(
    ("options", "path", "count"),
    [
        ({}, "", 124_439_808),
        ({}, "layers.0", 7_087_872),
        ({}, "layers.0.attn", 2_362_368),
        ({}, "layers.0.mlp", 4_722_432),
        ({"activation": "swiglu", "use_bias": False}, "layers.0.mlp", 3 * 768 * 2048),
        ({"positions": "sinusoidal"}, "", 124_439_808 - 1024 * 768),
    ],
)
def test_parameter_counts_at_gpt2_small_s_sizes(options, path, count):
    with torch.device("meta"):
        model = Transformer(Config(**options))
    assert count_parameters(describe_modules(model), path) == count


def checked(options):
    """Each shape comment of the source and its status: for a text, and for training with targets and dropout."""
    for targets in (None, TOKENS):
        model = Transformer(replace(TINY, **options, drop_prob=0.1 if targets is not None else 0.0))
        given = () if targets is None else (targets.repeat(3, 1),)
        findings = check(model.train(targets is not None), TOKENS.repeat(3, 1), *given).findings
        yield from ((Path(each.file).name, each.line, each.said, each.status) for each in findings)


def test_every_shape_comment_is_true_in_some_variant_and_false_in_none():
    found = {each for options in VARIANTS.values() for each in checked(options)}
    statuses = {status for *_, status in found}
    assert statuses == {"true", "not reached"}
    true = {tuple(place) for *place, status in found if status == "true"}
    rest = {tuple(place) for *place, status in found} - true
    # Bound while the model was built, before it was watched.
    assert {(file, said) for file, _, said in rest} == {
        ("attention.py", "(query, key)"),
        ("positions.py", "(n_ctx, pairs)"),
        ("positions.py", "(n_ctx, d_model)"),
        ("transformer.py", "(d_vocab, d_model)"),
    }
    assert len(true) > 50


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("training", [False, True])
def test_every_tensor_of_its_own_has_a_shape_comment(variant, training):
    tokens, drop_prob = TOKENS.repeat(3, 1), 0.1 if training else 0.0
    model = Transformer(replace(TINY, **VARIANTS[variant], drop_prob=drop_prob)).train(training)
    (root,) = record(model, tokens, *([tokens] if training else [])).calls
    own = [call for call in walk_calls(root) if hasattr(forge, call.class_name)]
    assert len(own) > 10
    # What torch's modules are given and return has no line here; the loss without targets is None.
    bare = [(call.module, each.name) for call in own for each in tensors_of(call) if not each.comment.startswith("(")]
    assert bare == ([] if training else [("", "out.1")])


def shapes_of(model, path, *inputs):
    """By name, the last shape of each tensor of a module."""
    for whole in record(model, *inputs).calls:
        for call in walk_calls(whole):
            if call.module == path:
                return {each.name: each.shape for each in tensors_of(call)}


@pytest.mark.parametrize("variant", VARIANTS)
def test_shapes_of_every_variant(variant):
    cfg = replace(TINY, **VARIANTS[variant])
    width, tokens = cfg.mlp_width(), TOKENS.repeat(3, 1)
    model = Transformer(cfg).eval()
    parameters = {name: tuple(each.shape) for name, each in model.layers[0].named_parameters()}
    matrices = {
        "attn.qkv_proj.weight": (60, 20),
        "attn.attn_out_proj.weight": (20, 20),
        "mlp.mlp_up_proj.weight": (width, 20),
        "mlp.mlp_down_proj.weight": (20, width),
        **({"mlp.mlp_gate_proj.weight": (width, 20)} if cfg.activation == "swiglu" else {}),
    }
    vectors = {"pre_attn_norm.weight": (20,), "pre_mlp_norm.weight": (20,)}
    biases = {name.replace("weight", "bias"): shape[:1] for name, shape in (matrices | vectors).items()}
    assert parameters == matrices | vectors | (biases if cfg.use_bias else {})

    attn = shapes_of(model, "layers.1.attn", tokens)
    by_hand = {"attn_scores": (3, 5, 7, 7), "visible": (7, 7), "attn_pattern": (3, 5, 7, 7)}
    assert attn == {
        "normed": (3, 7, 20),
        "qkv": (3, 7, 60),
        **dict.fromkeys("qkv", (3, 5, 7, 4)),
        **(by_hand if cfg.attention == "manual" else {}),
        "z": (3, 7, 20),
        "attn_out": (3, 7, 20),
    }
    mlp = shapes_of(model, "layers.1.mlp", tokens)
    gate = {"gate": (3, 7, width)} if cfg.activation == "swiglu" else {}
    assert mlp == {"normed": (3, 7, 20), "pre": (3, 7, width), "post": (3, 7, width), "mlp_out": (3, 7, 20), **gate}
    root = shapes_of(model, "", tokens)
    assert (root["tok_vec"], root["pos_vec"], root["logits"]) == ((3, 7, 20), (7, 20), (3, 1, 31))


def norm(state, name, x):
    variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
    return (x - mean) / (variance + 1e-5).sqrt() * state[f"{name}.weight"] + state.get(f"{name}.bias", 0)


def linear(state, name, x):
    return x @ state[f"{name}.weight"].T + state.get(f"{name}.bias", 0)


ACTIVATIONS = {
    "relu": lambda x: x.clamp(min=0),
    "gelu": lambda x: x * (1 + torch.erf(x / math.sqrt(2))) / 2,
    "gelu_tanh": lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "swiglu": lambda x: x / (1 + torch.exp(-x)),
}


def position_by_formula(cfg, posn):
    columns = range(cfg.d_model)
    angle = [posn / 10000 ** ((column - column % 2) / cfg.d_model) for column in columns]
    return torch.tensor([math.cos(angle[column]) if column % 2 else math.sin(angle[column]) for column in columns])


def forge_by_hand(cfg, state, tokens):
    """The same function, one sequence, a head and a query at a time and without a module."""
    d, d_head, activation = cfg.d_model, cfg.d_model // cfg.n_heads, ACTIVATIONS[cfg.activation]
    x = state["token_embedding.weight"][tokens] * (math.sqrt(d) if cfg.scale_embedding else 1)
    if cfg.positions == "learned":
        x = x + state["position_embedding.weight"][: len(tokens)]
    else:
        x = x + torch.stack([position_by_formula(cfg, posn) for posn in range(len(tokens))])
    for layer in range(cfg.n_layers):
        path = f"layers.{layer}"
        qkv = linear(state, f"{path}.attn.qkv_proj", norm(state, f"{path}.pre_attn_norm", x))
        z = torch.zeros_like(x)
        for head in range(cfg.n_heads):
            q, k, v = (qkv[:, part * d + head * d_head :][:, :d_head] for part in range(3))
            for query in range(len(tokens)):
                weights = (k[: query + 1] @ q[query] / math.sqrt(d_head)).exp()
                z[query, head * d_head :][:d_head] = weights / weights.sum() @ v[: query + 1]
        x = x + linear(state, f"{path}.attn.attn_out_proj", z)
        h = norm(state, f"{path}.pre_mlp_norm", x)
        post = linear(state, f"{path}.mlp.mlp_up_proj", h)
        if cfg.activation == "swiglu":
            post = activation(linear(state, f"{path}.mlp.mlp_gate_proj", h)) * post
        else:
            post = activation(post)
        x = x + linear(state, f"{path}.mlp.mlp_down_proj", post)
    return norm(state, "final_norm", x) @ state["token_embedding.weight"].T


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_logits_are_those_of_the_formulas(variant):
    cfg = replace(TINY, **VARIANTS[variant])
    model = drawn(cfg)
    expected = forge_by_hand(cfg, model.state_dict(), TOKENS[0])
    tolerance = {"rtol": 1e-10, "atol": 1e-10} if cfg.positions == "learned" else {"rtol": 1e-5, "atol": 1e-5}
    logits, loss = model(TOKENS)
    assert loss is None
    torch.testing.assert_close(logits, expected[None, -1:], **tolerance)
    every, _ = model(TOKENS, TOKENS)
    torch.testing.assert_close(every, expected[None], **tolerance)


@pytest.mark.parametrize("use_bias", [True, False])
def test_fused_and_manual_attention_agree(use_bias):
    fused = drawn(replace(TINY, use_bias=use_bias))
    manual = drawn(replace(TINY, use_bias=use_bias, attention="manual"))
    tokens = torch.randint(31, (4, 16), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(manual(tokens, tokens), fused(tokens, tokens), rtol=1e-12, atol=1e-12)
    single = [model.float()(tokens, tokens)[0] for model in (fused, manual)]
    torch.testing.assert_close(*single, rtol=1e-5, atol=1e-4)


def test_the_loss_is_the_mean_over_the_targets_that_are_not_minus_1():
    model = drawn(TINY)
    targets = torch.tensor([[1, -1, 1, 5, -1, -1, 7]])
    logits, loss = model(TOKENS, targets)
    chances = logits[0].log_softmax(-1)
    expected = -(chances[0, 1] + chances[2, 1] + chances[3, 5] + chances[6, 7]) / 4
    torch.testing.assert_close(loss, expected)
    loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("attention", ["sdpa", "manual"])
def test_dropout_is_at_work_in_training_only(attention):
    model = Transformer(replace(TINY, attention=attention, drop_prob=0.5))
    torch.manual_seed(0)
    assert not torch.equal(model(TOKENS)[0], model(TOKENS)[0])
    model.eval()
    assert torch.equal(model(TOKENS)[0], model(TOKENS)[0])
    # Of attention weights alone, too.
    attn, normed = model.layers[0].attn.train(), torch.randn(1, 7, 20)
    attn.resid_dropout.p = 0.0
    assert not torch.equal(attn(normed), attn(normed))


def test_the_head_is_the_embedding():
    model = Transformer(TINY)
    assert model.lm_head.weight is model.token_embedding.weight
    assert list(dict(model.named_parameters())) == [name for name in model.state_dict() if name != "lm_head.weight"]


def test_an_odd_width_has_a_sine_more_than_cosines():
    table = SinusoidalEmbedding(replace(TINY, d_model=5)).table
    torch.testing.assert_close(table[3], position_by_formula(replace(TINY, d_model=5), 3))


def test_sizes_that_do_not_go_together():
    with pytest.raises(ValueError, match="d_model = 20 is no multiple of n_heads = 3"):
        Transformer(replace(TINY, n_heads=3))


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"attention": "flash"}, "attention is one of sdpa, manual, not 'flash'"),
        ({"positions": "rotary"}, "positions is one of learned, sinusoidal, not 'rotary'"),
        ({"activation": "silu"}, "activation is one of relu, gelu, gelu_tanh, swiglu, not 'silu'"),
    ],
)
def test_a_variant_that_does_not_exist(option, message):
    with pytest.raises(ValueError, match=message):
        replace(TINY, **option)


@pytest.mark.parametrize("variant", [*VARIANTS, "training"])
def test_golden_trace_of_every_variant(variant, golden_trace):
    """With another size for each axis: 3 sequences, 7 positions, 5 heads 4 wide."""
    tokens = TOKENS.repeat(3, 1)
    if variant == "training":
        golden_trace.check(Transformer(replace(TINY, drop_prob=0.1)), tokens, tokens, name=variant, comments=True)
    else:
        golden_trace.check(Transformer(replace(TINY, **VARIANTS[variant])).eval(), tokens, name=variant, comments=True)
