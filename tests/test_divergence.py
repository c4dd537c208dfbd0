"""Our GPT-2 beside the installed transformer_lens, whole and with one thing wrong."""

import copy
import math
import re

import pytest
import torch
from rich.console import Console
from torch import nn

import shapetrace
from shapetrace.divergence.keys import compare_keys, holding
from shapetrace.divergence.observation import observe
from shapetrace.gpt2 import MLP, Attention, Config, LayerNorm, Transformer, TransformerBlock
from shapetrace.reference import build_reference
from shapetrace.reference.lens import installed_version
from shapetrace.reference.reference import activation_names
from shapetrace.report import Report, to_plain
from shapetrace.weights.seeded import seeded_state

# Sizes that are all different, so that no two axes can be taken for each other.
TINY = Config(n_layers=3, d_model=40, n_heads=5, d_head=8, d_mlp=160, d_vocab=101, n_ctx=16)
TOKENS = torch.tensor([[100, 3, 1, 4, 1, 5, 9], [100, 2, 6, 5, 3, 5, 8]])
GENERATION = int(installed_version().split(".")[0])


@pytest.fixture(scope="module")
def reference():
    return build_reference(TINY, seeded_state(TINY, 0), "random (seed 0)")


@pytest.fixture(scope="module")
def double_reference():
    return build_reference(TINY, seeded_state(TINY, 0, torch.float64), "random (seed 0)")


def model_with(change=lambda model: None, dtype=torch.float32):
    """A GPT-2 of ours in which something was changed."""
    torch.manual_seed(1)
    model = Transformer(TINY).eval().to(dtype)
    change(model)
    return model


def diff_of(model, reference, **options):
    return shapetrace.diff(model, TOKENS, reference, load=True, **options)


def wrong_in(report):
    """The modules that differ when fed the reference's input, and the tensors that differ from token ids."""
    modules = [row.module for row in report.modules if row.mode == "isolated" and not row.difference.ok]
    return modules, [row.reference for row in report.tensors if row.difference and not row.difference.ok]


def text_of(report):
    """The screen, at 80 columns."""
    console = Console(width=80, color_system=None)
    with console.capture() as captured:
        console.print(report)
    return captured.get()


def first_of(report):
    row = report.first_divergence.row
    return row.reference, row.yours, row.line.partition(":")[0], report.first_divergence.cause.kind


def test_everything_matches(reference):
    report = diff_of(model_with(), reference)
    assert wrong_in(report) == ([], [])
    assert (report.ok, report.first_divergence, report.same_argmax, report.remarks) == (True, None, True, ())
    assert [row.reference for row in report.tensors] == activation_names(3)
    assert len(report.modules) == 2 * len(
        [name for name, _ in model_with().named_modules() if name not in ("", "blocks")]
    )
    assert max(row.difference.max_abs_diff for row in report.modules if row.mode == "isolated") < 1e-4
    assert report.logits.max_abs_diff < 1e-3
    assert max(row.difference.scale for row in report.modules) < 12


def test_the_state_dict_report_of_each_generation(reference):
    keys = diff_of(model_with(), reference).keys
    masks = tuple(f"blocks.{layer}.attn.mask" for layer in range(3))
    constants = tuple(f"blocks.{layer}.attn.IGNORE" for layer in range(3))
    assert keys.missing == keys.mismatched == keys.different == ()
    if GENERATION == 3:
        assert (keys.loaded, keys.unexpected, keys.buffers) == (54, masks, ())
    else:
        assert (keys.loaded, keys.unexpected, keys.buffers) == (54, (), constants)


def test_float64_tells_more(double_reference):
    report = diff_of(model_with(dtype=torch.float64), double_reference)
    assert report.ok
    assert report.logits.relative < 1e-13

    def slip(model):
        model.blocks[2].ln1.cfg = Config(**{**vars(TINY), "layer_norm_eps": 1.001e-5})

    assert (
        diff_of(model_with(slip, torch.float64), double_reference).first_divergence.row.reference
        == "blocks.2.ln1.hook_scale"
    )


def test_one_weight_perturbed(reference):
    model = model_with()
    model.load_state_dict(reference.state(), strict=False)
    assert shapetrace.diff(model, TOKENS, reference).ok
    with torch.no_grad():
        model.blocks[1].attn.W_V[2, 3, 4] += 0.5
    report = shapetrace.diff(model, TOKENS, reference)
    assert report.keys.different == ("blocks.1.attn.W_V",)
    assert "same on both sides" not in text_of(report)
    assert first_of(report) == ("blocks.1.attn.hook_v", "blocks.1.attn.v", "attention.py", "weights")
    assert report.first_divergence.cause.detail == (
        "`blocks.1.attn.W_V` holds other values than the reference's: was it loaded?"
    )
    assert wrong_in(report)[0] == ["blocks.1.attn", "blocks.1"]


class RenamedMLP(MLP):
    def __init__(self, cfg):
        super().__init__(cfg)
        self.W_ln = self.W_in
        del self.W_in

    def forward(self, x):
        self.W_in = self.W_ln
        out = super().forward(x)
        del self.W_in
        return out


def test_one_key_renamed(reference):
    def rename(model):
        model.blocks[1].mlp = RenamedMLP(TINY)

    report = diff_of(model_with(rename), reference)
    assert report.keys.missing == ("blocks.1.mlp.W_ln",)
    assert "blocks.1.mlp.W_in" in report.keys.unexpected
    assert report.keys.suggestions == ("`blocks.1.mlp.W_ln`: did you mean `W_in`?",)
    assert first_of(report)[0::3] == ("blocks.1.mlp.hook_pre", "weights")
    assert report.first_divergence.cause.detail == (
        "`blocks.1.mlp.W_ln` was never loaded: the reference has no tensor of that name, but `blocks.1.mlp.W_in`."
    )


def test_one_shape_wrong(reference):
    def widen(model):
        model.blocks[0].mlp.W_in = nn.Parameter(torch.ones(40, 161))
        model.blocks[0].mlp.b_in = nn.Parameter(torch.ones(161))
        model.blocks[0].mlp.W_out = nn.Parameter(torch.ones(161, 40))

    report = diff_of(model_with(widen), reference)
    assert report.keys.mismatched == (
        "blocks.0.mlp.W_in: yours (40, 161), reference (40, 160)",
        "blocks.0.mlp.b_in: yours (161,), reference (160,)",
        "blocks.0.mlp.W_out: yours (161, 40), reference (160, 40)",
    )
    assert first_of(report)[0::3] == ("blocks.0.mlp.hook_pre", "weights")
    assert report.first_divergence.row.difference.max_abs_diff == math.inf
    assert to_plain(report)["first_divergence"]["max_abs_diff"] is None


class ExactGelu(MLP):
    def forward(self, x):
        pre = x @ self.W_in + self.b_in
        post = nn.functional.gelu(pre)
        return post @ self.W_out + self.b_out


class NoKeyBias(Attention):
    def forward(self, x):
        self.b_K = nn.Parameter(torch.zeros_like(self.b_K))
        return super().forward(x)


class FiniteMask(Attention):
    def apply_causal_mask(self, attn_scores):
        mask = torch.ones_like(attn_scores[0, 0]).triu(1).bool()
        return attn_scores.masked_fill(mask, -1e5)


class UnbiasedNorm(LayerNorm):
    def forward(self, residual):
        residual_std = (residual.var(-1, keepdim=True) + self.cfg.layer_norm_eps).sqrt()
        residual = (residual - residual.mean(-1, keepdim=True)) / residual_std
        return residual * self.w + self.b


class InPlaceBlock(TransformerBlock):
    def forward(self, resid_pre):
        resid_pre += self.attn(self.ln1(resid_pre))
        resid_pre += self.mlp(self.ln2(resid_pre))
        return resid_pre


class NanMLP(MLP):
    def forward(self, x):
        out = super().forward(x)
        out[0, 0, 0] = math.nan
        return out


@pytest.mark.parametrize(
    ("path", "module", "first", "kind", "modules"),
    [
        ("blocks.1.mlp", ExactGelu, "blocks.1.mlp.hook_post", "nonlinearity", ["blocks.1.mlp", "blocks.1"]),
        ("blocks.2.ln2", UnbiasedNorm, "blocks.2.ln2.hook_scale", "normalisation", ["blocks.2.ln2", "blocks.2"]),
        ("ln_final", UnbiasedNorm, "ln_final.hook_scale", "normalisation", ["ln_final"]),
        ("blocks.0.mlp", NanMLP, "blocks.0.hook_mlp_out", "unknown", ["blocks.0.mlp", "blocks.0"]),
    ],
)
def test_one_module_broken(path, module, first, kind, modules, reference):
    def change(model):
        model.set_submodule(path, module(TINY))

    report = diff_of(model_with(change), reference)
    assert not report.ok
    assert (wrong_in(report)[0], report.first_divergence.row.reference) == (modules, first)
    assert report.first_divergence.row.line.startswith("test_divergence.py:")
    assert report.first_divergence.cause.kind == kind


def test_a_missing_key_bias_shows_in_no_output(reference):
    def change(model):
        model.blocks[1].attn = NoKeyBias(TINY)

    report = diff_of(model_with(change), reference)
    assert wrong_in(report) == ([], ["blocks.1.attn.hook_k", "blocks.1.attn.hook_attn_scores"])
    assert report.same_argmax
    assert report.first_divergence is None


def test_a_finite_mask_is_a_remark(reference):
    def change(model):
        for block in model.blocks:
            block.attn = FiniteMask(TINY)

    report = diff_of(model_with(change), reference)
    assert report.ok
    assert report.remarks == (
        "masked scores are -100000 and not -inf "
        "(blocks.0.attn.hook_attn_scores ... blocks.2.attn.hook_attn_scores  x3); the pattern is the same",
    )


def test_code_that_works_in_place_disturbs_neither_side(reference):
    def change(model):
        for layer in range(3):
            model.blocks[layer] = InPlaceBlock(TINY)

    report = diff_of(model_with(change), reference)
    assert wrong_in(report)[0] == []
    assert report.ok
    assert report.remarks == ()


def test_the_model_has_its_own_weights_afterwards(reference):
    model = model_with()
    before = {name: (tensor, tensor.clone()) for name, tensor in model.state_dict(keep_vars=True).items()}
    report = diff_of(model, reference)
    assert report.keys.different == ()
    for name, tensor in model.state_dict(keep_vars=True).items():
        assert tensor is before[name][0]
        assert torch.equal(tensor, before[name][1])


def test_weights_are_lent_and_not_copied(reference):
    model, state = model_with(), reference.state()
    with holding(model, state, share=True):
        assert all(each.data_ptr() == state[name].data_ptr() for name, each in model.named_parameters())
        assert not model.unembed.b_U.requires_grad
        assert compare_keys(model, state).different == ()
    assert len(compare_keys(model, state).different) == 54


def test_without_a_reference_one_is_built_at_the_models_sizes():
    model = model_with()
    report = shapetrace.diff(model, TOKENS, seed=3)
    assert (report.ok, report.weights) == (True, "random (seed 3)")
    assert report.reference == f"transformer_lens {installed_version()}"
    del model.cfg
    assert shapetrace.diff(model, TOKENS).ok


def test_a_model_in_no_known_layout():
    with pytest.raises(shapetrace.ShapetraceError) as refused:
        shapetrace.diff(nn.Linear(2, 2), TOKENS)
    assert refused.value.message == (
        "Linear's parameters are in no known layout of GPT-2:\n  weight (2, 2)\n  bias (2,)"
    )
    assert "`--weights-map FILE.yaml`" in refused.value.hint


class Doubled(Transformer):
    def forward(self, tokens):
        return 2 * super().forward(tokens)


class Centred(Transformer):
    def forward(self, tokens):
        return super().forward(tokens).log_softmax(-1)


class LastOnly(Transformer):
    def forward(self, tokens):
        return super().forward(tokens)[:, -1:]


class ReturnsNothing(Transformer):
    def forward(self, tokens):
        super().forward(tokens)


class RunsNoModule(Transformer):
    def forward(self, tokens):
        return self.embed.W_E[tokens] @ self.unembed.W_U


class ForgetsBias(Transformer):
    def forward(self, tokens):
        residual = self.embed(tokens) + self.pos_embed(tokens)
        for block in self.blocks:
            residual = block(residual)
        return self.ln_final(residual) @ self.unembed.W_U


@pytest.mark.parametrize(
    ("broken", "kind"),
    [
        (Doubled, "scale"),
        (Centred, "nonlinearity"),
        (ReturnsNothing, "unknown"),
        (RunsNoModule, "unknown"),
        (ForgetsBias, "missing-term"),
    ],
)
def test_logits_that_are_wrong_though_no_tensor_is(broken, kind, reference):
    report = diff_of(broken(TINY).eval(), reference)
    assert not report.ok
    assert (report.first_divergence.row.reference, report.first_divergence.cause.kind) == ("unembed.hook_out", kind)
    assert to_plain(report)["first_divergence"]["module"] == "unembed"


def test_logits_of_the_last_position_only(reference):
    report = diff_of(LastOnly(TINY).eval(), reference)
    assert (report.ok, report.first_divergence, report.same_argmax) == (True, None, True)


class LogitsTurned(Transformer):
    def forward(self, tokens):
        return super().forward(tokens).transpose(1, 2)


def test_logits_in_another_shape(reference):
    report = diff_of(LogitsTurned(TINY).eval(), reference)
    batch, posn = TOKENS.shape
    assert (report.ok, report.remarks) == (
        True,
        (
            f"your logits are ({batch}, {TINY.d_vocab}, {posn}) and the reference's ({batch}, {posn}, {TINY.d_vocab}): "
            "the same numbers in another shape",
        ),
    )


class LossAndLogits(Transformer):
    def forward(self, tokens):
        logits = super().forward(tokens)
        return logits.mean(), logits


def test_logits_among_other_outputs(reference):
    assert diff_of(LossAndLogits(TINY).eval(), reference).ok


def test_a_weight_that_these_tokens_do_not_touch(reference):
    model = model_with()
    model.load_state_dict(reference.state(), strict=False)
    with torch.no_grad():
        model.embed.W_E[50, 0] += 5
    report = shapetrace.diff(model, TOKENS, reference)
    assert (report.ok, report.first_divergence, report.keys.different) == (False, None, ("embed.W_E",))


def test_a_constant_of_yours_is_not_mended_by_loading(reference):
    def change(model):
        model.blocks[1].attn.IGNORE = torch.tensor(-1.0)

    report = diff_of(model_with(change), reference)
    assert first_of(report)[0::3] == ("blocks.1.attn.hook_attn_scores", "mask")
    detail = "Future cells hold -1 instead of -inf, and so they still receive attention."
    assert (report.first_divergence.cause.detail, report.remarks) == (detail, ())


def test_a_mask_of_yours_is_no_parameter(reference):
    def change(model):
        model.blocks[0].attn.register_buffer("mask", torch.ones(16, 16).tril())

    assert diff_of(model_with(change), reference).ok


class HeadFirst(Attention):
    def forward(self, x):
        q = torch.einsum("bpd,hde->bhpe", x, self.W_Q) + self.b_Q[:, None]
        k = torch.einsum("bpd,hde->bhpe", x, self.W_K) + self.b_K[:, None]
        v = torch.einsum("bpd,hde->bhpe", x, self.W_V) + self.b_V[:, None]
        scores = (q @ k.mT) / self.cfg.d_head**0.5
        masked = scores.masked_fill(torch.ones_like(scores[0, 0]).triu(1).bool(), -torch.inf)
        pattern = masked.softmax(-1)
        z = pattern @ v
        return torch.einsum("bhpe,hed->bpd", z, self.W_O) + self.b_O


class SmallPositions(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.W_pos = nn.Parameter(torch.ones(cfg.n_ctx, cfg.d_model))

    def forward(self, tokens):
        return self.W_pos[: tokens.shape[1]]


class InverseScale(LayerNorm):
    def forward(self, x):
        scale = 1 / (x.var(-1, keepdim=True, unbiased=False) + self.cfg.layer_norm_eps).sqrt()
        normalized = (x - x.mean(-1, keepdim=True)) * scale
        return normalized * self.w + self.b


@pytest.mark.parametrize(
    ("path", "module"), [("blocks.1.attn", HeadFirst), ("pos_embed", SmallPositions), ("blocks.0.ln1", InverseScale)]
)
def test_another_way_to_write_it_is_no_divergence(path, module, reference):
    def change(model):
        model.set_submodule(path, module(TINY))

    report = diff_of(model_with(change), reference)
    assert (report.ok, report.first_divergence) == (True, None)


class ScaledMask(Attention):
    def forward(self, x):
        q, k, v = (torch.einsum("bpd,hde->bphe", x, each) for each in (self.W_Q, self.W_K, self.W_V))
        q, k, v = q + self.b_Q, k + self.b_K, v + self.b_V
        scores = torch.einsum("bqhe,bkhe->bhqk", q, k) / self.cfg.d_head**0.5
        masked = (1.5 * scores).masked_fill(torch.ones_like(scores[0, 0]).triu(1).bool(), -torch.inf)
        return torch.einsum("bhqk,bkhe,hed->bqd", masked.softmax(-1), v, self.W_O) + self.b_O


def test_masked_scores_come_before_those_that_are_not_masked_yet(reference):
    def change(model):
        model.blocks[0].attn = ScaledMask(TINY)

    report = diff_of(model_with(change), reference)
    assert first_of(report)[:2] == ("blocks.0.attn.hook_attn_scores", "blocks.0.attn.masked")
    assert "inf" not in report.first_divergence.cause.detail


class TwoInputs(Attention):
    def forward(self, x, scale):
        return super().forward(x) * scale


class PassesTwo(TransformerBlock):
    def __init__(self, cfg):
        super().__init__(cfg)
        self.attn = TwoInputs(cfg)

    def forward(self, resid_pre):
        resid_mid = self.attn(self.ln1(resid_pre), 1.0) + resid_pre
        return self.mlp(self.ln2(resid_mid)) + resid_mid


def test_a_module_that_wants_more_than_the_references_input(reference):
    def change(model):
        model.blocks[0] = PassesTwo(TINY)

    report = diff_of(model_with(change), reference)
    assert (report.ok, report.remarks) == (True, ())
    assert "blocks.0.attn" in [row.module for row in report.modules if row.mode == "isolated"]


class WritesToItsWeights(SmallPositions):
    def forward(self, tokens):
        return self.W_pos[: tokens.shape[1]].mul_(2)


def test_code_that_writes_to_its_weights_leaves_the_reference_alone(reference):
    def change(model):
        model.pos_embed = WritesToItsWeights(TINY)

    before = reference.state()["pos_embed.W_pos"].clone()
    assert not diff_of(model_with(change), reference).ok
    assert torch.equal(reference.state()["pos_embed.W_pos"], before)


def test_training_mode_is_remarked(reference):
    report = diff_of(model_with().train(), reference)
    assert report.remarks == ("your model is in training mode, in which dropout is on: call `.eval()` first",)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (torch.tensor([1, 2]), "tokens are whole numbers of shape (batch, posn), not int64 (2,)"),
        (torch.tensor([[1.0]]), "tokens are whole numbers of shape (batch, posn), not float32 (1, 1)"),
        (torch.zeros(1, 0, dtype=torch.long), "tokens are whole numbers of shape (batch, posn), not int64 (1, 0)"),
        (torch.tensor([[101]]), "token ids go from 0 to 100; here they go from 101 to 101"),
        (torch.tensor([[-1]]), "token ids go from 0 to 100; here they go from -1 to -1"),
        (torch.zeros(1, 17, dtype=torch.long), "17 tokens are more than n_ctx = 16"),
        (torch.zeros(1, 2, dtype=torch.long, device="meta"), "a diff compares values, and there are none"),
    ],
)
def test_tokens_that_are_none(tokens, message, reference):
    with pytest.raises(shapetrace.ShapetraceError, match=re.escape(message)):
        shapetrace.diff(model_with(), tokens, reference)


def test_a_reference_that_cannot_stand_beside(reference, double_reference):
    with pytest.raises(shapetrace.ShapetraceError, match=r"the reference is torch.float64 and the model torch.float32"):
        shapetrace.diff(model_with(), TOKENS, double_reference)
    with pytest.raises(shapetrace.ShapetraceError, match="other sizes than the model: n_layers 2 beside 3"):
        shapetrace.diff(Transformer(Config(**{**vars(TINY), "n_layers": 2})), TOKENS, reference)


def test_a_model_that_raises(reference):
    def break_it(model):
        model.unembed.W_U = nn.Parameter(torch.ones(101, 40))

    with pytest.raises(shapetrace.ShapetraceError, match=r"(?s)the model raised .*unembed.W_U: yours \(101, 40\)"):
        diff_of(model_with(break_it), reference)


def test_building_a_reference_moves_no_random_state():
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    build_reference(TINY, seeded_state(TINY, 0))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_heads_in_front_where_positions_are_as_many(reference):
    def change(model):
        model.blocks[1].attn = HeadFirst(TINY)

    report = shapetrace.diff(model_with(change), TOKENS[:, : TINY.n_heads], reference, load=True)
    assert (report.ok, report.first_divergence) == (True, None)


class Inference(TransformerBlock):
    @torch.inference_mode()
    def forward(self, resid_pre):
        resid_post = self.attn(self.ln1(resid_pre)) + resid_pre
        resid_post += self.mlp(self.ln2(resid_post))
        return resid_post


def test_changes_in_place_that_torch_does_not_count(reference):
    def change(model):
        model.blocks[2] = Inference(TINY)

    assert diff_of(model_with(change), reference).first_divergence is None


class KeepsItsWeights(MLP):
    def __init__(self, cfg):
        super().__init__(cfg)
        self.pair = [self.W_in, self.W_out]

    def forward(self, x):
        pre = x @ self.pair[0] + self.b_in
        return nn.functional.gelu(pre, approximate="tanh") @ self.pair[1] + self.b_out


def test_parameters_that_the_model_keeps_under_other_names(reference):
    def change(model):
        model.blocks[0].mlp = KeepsItsWeights(TINY)

    assert diff_of(model_with(change), reference).ok


def test_a_model_that_is_strict_about_loading(reference):
    def change(model):
        def refuse(module, keys):
            raise RuntimeError("no")

        model.register_load_state_dict_post_hook(refuse)

    model = model_with(change)
    assert diff_of(model, reference).ok
    assert not torch.equal(model.embed.W_E, reference.state()["embed.W_E"])


class ForgetsQueryBias(Attention):
    def __init__(self, cfg):
        super().__init__(cfg)
        self.temperature = nn.Parameter(torch.ones(1))

    def forward(self, x):
        keep, self.b_Q = self.b_Q, nn.Parameter(torch.zeros_like(self.b_Q))
        out = super().forward(x)
        self.b_Q = keep
        return out


def test_a_parameter_that_has_nothing_to_do_with_it_is_not_the_cause(reference):
    def change(model):
        model.blocks[0].attn = ForgetsQueryBias(TINY)

    report = diff_of(model_with(change), reference)
    assert report.keys.missing == ("blocks.0.attn.temperature",)
    assert first_of(report)[0::3] == ("blocks.0.attn.hook_q", "missing-term")


def test_layers_that_differ_are_not_folded_over_those_between(reference):
    def change(model):
        model.blocks[0].mlp = ExactGelu(TINY)
        model.blocks[2].mlp = ExactGelu(TINY)

    rows = [
        line.split()
        for line in text_of(diff_of(model_with(change), reference)).splitlines()
        if line.startswith("blocks") and ".mlp" in line
    ]
    assert [(row[0], row[-1]) for row in rows if len(row) == 7] == [
        ("blocks.0,2.mlp", "differs"),
        ("blocks.1.mlp", "follows"),
    ]


def test_rtol_overrides(reference):
    with pytest.raises(shapetrace.ShapetraceError, match="rtol is a number from 0 up, not nan"):
        diff_of(model_with(), reference, rtol=math.nan)

    def change(model):
        model.blocks[1].mlp = ExactGelu(TINY)

    assert diff_of(model_with(change), reference, rtol=0.1).ok
    assert not diff_of(model_with(), reference, rtol=0.0).ok


def test_what_is_observed_is_a_copy():
    class Toy(nn.Module):
        def forward(self, x):
            y = x + 1
            z = y
            y.zero_()
            return y

    seen = observe(Toy(), torch.ones(2))
    assert [(each.name, each.value.tolist()) for each in seen.tensors] == [
        *(("x", [1, 1]), ("y", [2, 2]), ("z", [2, 2]), ("y", [0, 0])),
    ]
    assert seen.outputs[""].value.tolist() == [0, 0]
    assert seen.tensors[1].value is seen.tensors[2].value


def test_the_reference_is_the_same_twice(reference):
    one, other = reference.run(TOKENS), reference.run(TOKENS)
    assert list(one.activations) == activation_names(3)
    assert all(torch.equal(one.activations[name], other.activations[name]) for name in one.activations)
    assert one.logits.shape == (2, 7, 101)


def test_reports_are_values(reference):
    report = diff_of(model_with(), reference)
    assert isinstance(report, Report)
    assert copy.deepcopy(report) == report == diff_of(model_with(), reference)
