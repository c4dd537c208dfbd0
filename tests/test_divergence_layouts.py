"""Models whose weights have other names than TransformerLens': recognised, loaded and compared."""

import importlib.util
from pathlib import Path

import pytest
import torch
import yaml
from torch import nn

import shapetrace

TOKENS = torch.tensor([[100, 3, 1, 4, 1, 5, 9], [100, 2, 6, 5, 3, 5, 8]])
SPEC = importlib.util.spec_from_file_location("other_layouts", Path(__file__).parent / "other_layouts.py")
models = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(models)


def hugging_face(**options):
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"n_layer": 2, "n_embd": 40, "n_head": 5, "n_positions": 24, "vocab_size": 101}
    special = {"bos_token_id": 100, "eos_token_id": 100}
    return GPT2LMHeadModel(GPT2Config(**sizes, **special, **options)).eval()


def nano(**options):
    return models.NanoGPT(models.GPTConfig(**options)).eval()


def first_of(report):
    found = report.first_divergence
    return (found.row.reference, found.cause.kind, found.cause.detail)


class WithHead(nn.Module):
    """Hugging Face's GPT2Model, which has no head: its embedding is one."""

    def __init__(self):
        super().__init__()
        self.transformer = hugging_face().transformer
        self.n_head = 5

    def forward(self, ids):
        return self.transformer(ids).last_hidden_state @ self.transformer.wte.weight.T


@pytest.mark.parametrize(
    ("build", "layout"),
    [
        (nano, "nanoGPT"),
        (lambda: nano(flash=False), "nanoGPT"),
        (lambda: models.MinGPT(models.GPTConfig()).eval(), "nanoGPT"),
        (lambda: models.Textbook().eval(), "textbook"),
        (hugging_face, "Hugging Face"),
        (lambda: hugging_face(attn_implementation="eager"), "Hugging Face"),
        (WithHead, "Hugging Face"),
    ],
    ids=["nanoGPT, flash", "nanoGPT", "minGPT", "textbook", "sdpa", "eager", "without a head"],
)
def test_a_right_model_of_each_layout(build, layout):
    report = shapetrace.diff(build(), TOKENS)
    assert (report.ok, report.first_divergence, report.layout) == (True, None, layout)
    assert (report.keys.missing, report.keys.unexpected, report.keys.mismatched) == ((), (), ())
    modules = {row.module for row in report.modules if row.mode == "isolated"}
    assert {"embed", "blocks.0.attn", "blocks.1.ln2", "blocks.1", "ln_final"} <= modules
    assert all(row.difference.ok for row in report.modules)


def test_what_a_model_never_makes_is_told_and_not_wrong():
    report = shapetrace.diff(nano(), TOKENS)
    absent = [row.reference for row in report.tensors if row.difference is None]
    assert "blocks.0.attn.hook_attn_scores" in absent
    assert "blocks.1.attn.hook_pattern" in absent
    assert "not made by name in yours, and what comes of it is right: scale, normalized, attn_scores, pattern" in (
        report.remarks
    )


@pytest.mark.parametrize("flash", [True, False])
def test_nano_gpt_has_the_exact_gelu(flash):
    report = shapetrace.diff(nano(flash=flash, activation="none"), TOKENS)
    detail = '`post` is `pre` after the exact GELU, with erf: use `approximate="tanh"`.'
    assert first_of(report) == ("blocks.0.mlp.hook_post", "nonlinearity", detail)
    assert report.first_divergence.row.yours == "transformer.h.0.mlp.x"
    before = report.tensors[: [row.reference for row in report.tensors].index("blocks.0.mlp.hook_post")]
    assert all(row.difference is None or row.difference.ok for row in before)


def test_hugging_face_with_another_setting():
    report = shapetrace.diff(hugging_face(scale_attn_by_inverse_layer_idx=True), TOKENS)
    detail = "Yours is 0.5 times the reference: the scores are also divided by 2, the number of the layer plus one."
    assert first_of(report) == ("blocks.1.attn.hook_z", "scale", detail)
    report = shapetrace.diff(hugging_face(layer_norm_epsilon=1e-3), TOKENS)
    assert first_of(report) == ("blocks.0.ln1.hook_out", "normalisation", "Eps is 0.001; GPT-2 has 1e-05.")


def test_a_tied_head_and_mask_buffers_are_told():
    keys = shapetrace.diff(nano(), TOKENS).keys
    assert keys.tied == ("lm_head.weight is tied to transformer.wte.weight",)
    assert keys.buffers == ("transformer.h.0.attn.bias", "transformer.h.1.attn.bias")
    assert shapetrace.diff(models.MinGPT(models.GPTConfig()).eval(), TOKENS).keys.tied == ()


def test_biases_that_the_config_leaves_out_are_0_in_the_reference():
    report = shapetrace.diff(nano(bias=False), TOKENS)
    assert (report.ok, report.first_divergence) == (True, None)


def test_biases_that_models_in_the_layout_do_without():
    report = shapetrace.diff(models.Textbook(qkv_bias=False).eval(), TOKENS)
    assert (report.ok, report.keys.unexpected) == (True, ())
    assert report.remarks[0] == "your model has no b_K, b_Q, b_V, so the reference's are 0; GPT-2 has them"


def test_biases_that_are_just_not_there():
    model = nano()
    for block in model.transformer.h:
        block.attn.c_attn.bias = None
    report = shapetrace.diff(model, TOKENS)
    assert first_of(report)[:2] == ("blocks.0.attn.hook_q", "missing-term")
    assert report.keys.unexpected == ("transformer.h.0.attn.c_attn.bias", "transformer.h.1.attn.c_attn.bias")


class Wrapped(nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, tokens):
        return self.module(tokens)


@pytest.mark.parametrize("build", [nano, hugging_face, lambda: models.Textbook().eval()])
def test_a_prefix_before_every_key(build):
    report = shapetrace.diff(Wrapped(build()), TOKENS, n_heads=5)
    assert (report.ok, report.keys.missing) == (True, ())


def test_a_compiled_model():
    assert shapetrace.diff(torch.compile(nano()), TOKENS).ok


def test_a_renamed_parameter_has_a_suggestion():
    model = nano()
    mlp = model.transformer.h[1].mlp
    mlp.c_fcc = mlp.c_fc
    del mlp.c_fc
    mlp.forward = lambda x: mlp.c_proj(mlp.gelu(mlp.c_fcc(x)))
    report = shapetrace.diff(model, TOKENS)
    assert report.keys.missing == ("transformer.h.1.mlp.c_fcc.weight", "transformer.h.1.mlp.c_fcc.bias")
    assert report.keys.suggestions[0] == (
        "`transformer.h.1.mlp.c_fcc.weight`: did you mean `transformer.h.1.mlp.c_fc.weight`?"
    )
    assert first_of(report)[:2] == ("blocks.1.mlp.hook_post", "weights")
    assert report.first_divergence.cause.at == "blocks.1.mlp.hook_pre"


def test_how_many_heads_is_asked_for_where_nothing_tells():
    model = models.MinGPT(models.GPTConfig()).eval()
    for block in model.transformer.h:
        block.attn.n_head = None
    with pytest.raises(shapetrace.ShapetraceError, match=r"does not tell how many attention heads it has"):
        shapetrace.diff(model, TOKENS)
    with pytest.raises(shapetrace.ShapetraceError, match=r"3 heads cannot share a d_model of 40"):
        shapetrace.diff(model, TOKENS, n_heads=3)
    for block in model.transformer.h:
        block.attn.n_head = 5
    assert shapetrace.diff(model, TOKENS, n_heads=5).ok


class Own(nn.Module):
    """Names that are nobody else's, one matrix the other way round."""

    def __init__(self):
        super().__init__()
        self.tok, self.where = nn.Parameter(torch.randn(101, 40)), nn.Parameter(torch.randn(24, 40))
        self.gain, self.offset = nn.Parameter(torch.ones(40)), nn.Parameter(torch.zeros(40))
        self.layer = models.NanoBlock(models.GPTConfig(n_layer=1))
        self.head = nn.Linear(40, 101, bias=False)

    def forward(self, tokens):
        x = self.layer(self.tok[tokens] + self.where[: tokens.shape[1]])
        return self.head(nn.functional.layer_norm(x, (40,), self.gain, self.offset))


OWN = {
    "tok": "embed.W_E",
    "where": "pos_embed.W_pos",
    "gain": "ln_final.w",
    "offset": "ln_final.b",
    "head.weight": {"name": "unembed.W_U", "transpose": True},
    "layer.ln_1.weight": "blocks.0.ln1.w",
    "layer.ln_1.bias": "blocks.0.ln1.b",
    "layer.ln_2.weight": "blocks.0.ln2.w",
    "layer.ln_2.bias": "blocks.0.ln2.b",
    "layer.attn.c_attn.weight": {
        "name": ["blocks.0.attn.W_Q", "blocks.0.attn.W_K", "blocks.0.attn.W_V"],
        "transpose": True,
    },
    "layer.attn.c_attn.bias": ["blocks.0.attn.b_Q", "blocks.0.attn.b_K", "blocks.0.attn.b_V"],
    "layer.attn.c_proj.weight": {"name": "blocks.0.attn.W_O", "transpose": True},
    "layer.attn.c_proj.bias": "blocks.0.attn.b_O",
    "layer.mlp.c_fc.weight": {"name": "blocks.0.mlp.W_in", "transpose": True},
    "layer.mlp.c_fc.bias": "blocks.0.mlp.b_in",
    "layer.mlp.c_proj.weight": {"name": "blocks.0.mlp.W_out", "transpose": True},
    "layer.mlp.c_proj.bias": "blocks.0.mlp.b_out",
}


def test_a_weights_map_for_a_layout_of_your_own(tmp_path):
    (tmp_path / "map.yaml").write_text(yaml.safe_dump(OWN))
    for given in (OWN, tmp_path / "map.yaml", str(tmp_path / "map.yaml")):
        report = shapetrace.diff(Own().eval(), TOKENS, weights_map=given)
        assert (report.ok, report.keys.loaded, report.layout) == (True, 17, "as the weights map says")


def test_a_weights_map_is_asked_for_where_no_layout_fits():
    with pytest.raises(shapetrace.ShapetraceError) as raised:
        shapetrace.diff(Own().eval(), TOKENS)
    assert raised.value.message.startswith(
        "Own's parameters are in no known layout of GPT-2:\n  tok (101, 40)\n  where "
    )
    assert "`tok.weight: embed.W_E`" in raised.value.hint


@pytest.mark.parametrize(
    ("given", "message", "hint"),
    [
        ({"tik": "embed.W_E"}, "the weights map names `tik`, which the model has not", "did you mean `tok`"),
        ({"tok": "embed.W_e"}, "the weights map gives `tok` `embed.W_e`", "did you mean `embed.W_E`"),
        ({"tok": {"transpose": True}}, "the weights map gives `tok` no name", "write `key: name`"),
        (
            {"tok": {"name": "embed.W_E", "transposed": True}},
            "the weights map gives `tok` a `transposed`, which means nothing",
            "did you mean `transpose`?",
        ),
        (
            {"tok": {"name": "embed.W_E", "transpose": "yes"}},
            "the weights map gives `tok` a `transpose` of 'yes'",
            "it is true or false",
        ),
        ("/nowhere/map.yaml", "the weights map `/nowhere/map.yaml` cannot be read", ""),
    ],
)
def test_a_weights_map_that_cannot_be(given, message, hint):
    with pytest.raises(shapetrace.ShapetraceError) as raised:
        shapetrace.diff(Own().eval(), TOKENS, weights_map=given)
    assert raised.value.message.startswith(message)
    assert raised.value.hint.startswith(hint)
