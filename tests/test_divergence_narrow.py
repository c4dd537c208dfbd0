"""A diff in bfloat16 or float16: what is rounding is let pass, what is not is found, and explained in float32."""

import copy
import json
from dataclasses import replace

import pytest
import torch
from click.testing import CliRunner
from torch import nn

import shapetrace
from shapetrace import forge
from shapetrace.cli import main
from shapetrace.divergence.widening import widened
from shapetrace.errors import ShapetraceError
from shapetrace.gpt2 import MLP, Attention, Config, Transformer, Unembed, gelu_new
from shapetrace.reference import build_reference
from shapetrace.weights.seeded import seeded_state

TINY = Config(n_layers=3, d_model=40, n_heads=5, d_head=8, d_mlp=160, d_vocab=101, n_ctx=16)
NARROW = [torch.bfloat16, torch.float16]
TOKENS = torch.tensor([[5, 17, 90, 3, 44, 8, 61]])
HUGGING_FACE = "hf:gpt2?n_layer=2&n_embd=40&n_head=5&n_positions=16"
HERE = torch.accelerator.current_accelerator(check_available=True)


def build(config=TINY):
    return Transformer(config).eval()


def build_forge(attention, config=TINY):
    sizes = {name: getattr(config, name) for name in ("n_layers", "d_model", "n_heads", "n_ctx", "d_vocab")}
    return forge.Transformer(forge.Config(**sizes, attention=attention)).eval()


def diff(model, dtype, reference=None, **how):
    return shapetrace.diff(model.to(dtype), TOKENS, reference, **how)


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("model", [build, lambda: build_forge("sdpa"), lambda: build_forge("manual")])
@pytest.mark.parametrize("seed", range(3))
def test_a_right_model_matches(model, dtype, seed):
    report = diff(model(), dtype, seed=seed)
    assert (report.ok, report.first_divergence, report.dtype) == (True, None, str(dtype)[6:])
    assert all(row.difference.ok for row in report.modules)
    eps = torch.finfo(dtype).eps
    assert report.tolerance[0] == 8 * eps
    assert 8 * eps < report.tolerance[1] < 30 * eps


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("factor", [2.5, 5.0])
def test_weights_that_round_badly_widen_the_limits(dtype, factor):
    config = replace(TINY, n_layers=8)
    state = seeded_state(config, 0)
    large = {name: each * factor if name.rpartition(".")[2].startswith("W") else each for name, each in state.items()}
    reference = build_reference(config, {name: each.to(dtype) for name, each in large.items()}, "enlarged")
    report = diff(build(config), dtype, reference, load=True)
    assert (report.ok, report.first_divergence) == (True, None)
    assert report.tolerance[1] > 16 * torch.finfo(dtype).eps


class Unscaled(nn.Module):
    """The mistake: the scores are not divided."""

    def __init__(self, attention):
        super().__init__()
        for name, each in attention.named_parameters():
            setattr(self, name, each)

    def forward(self, x):
        q = torch.einsum("bpm,nmh->bpnh", x, self.W_Q) + self.b_Q
        k = torch.einsum("bpm,nmh->bpnh", x, self.W_K) + self.b_K
        v = torch.einsum("bpm,nmh->bpnh", x, self.W_V) + self.b_V
        attn_scores = torch.einsum("bqnh,bknh->bnqk", q, k)
        future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        attn_scores = attn_scores.masked_fill(future, -torch.inf)
        pattern = attn_scores.softmax(-1)
        z = torch.einsum("bnqk,bknh->bqnh", pattern, v)
        return torch.einsum("bpnh,nhm->bpm", z, self.W_O) + self.b_O


class Half(nn.Module):
    """No mistake but one of precision: the variance as the mean of squares less the square of the mean."""

    def __init__(self, norm, offset):
        super().__init__()
        self.w, self.b, self.offset = norm.w, norm.b, offset

    def forward(self, x):
        shifted = x + self.offset
        mean = shifted.mean(-1, keepdim=True)
        variance = (shifted * shifted).mean(-1, keepdim=True) - mean * mean
        scale = (variance.clamp_min(0) + 1e-5).sqrt()
        normalized = (shifted - mean) / scale
        return normalized * self.w + self.b


class Large(nn.Module):
    """No mistake, but numbers on the way that float16 does not hold."""

    def __init__(self, mlp):
        super().__init__()
        self.W_in, self.b_in, self.W_out, self.b_out = mlp.W_in, mlp.b_in, mlp.W_out, mlp.b_out

    def forward(self, x):
        pre = x @ (1e6 * self.W_in) / 1e6 + self.b_in
        post = nn.functional.gelu(pre, approximate="tanh")
        return post @ self.W_out + self.b_out


@pytest.mark.parametrize("dtype", NARROW)
def test_a_mistake_is_found_and_explained_in_float32(dtype):
    model = build()
    model.blocks[1].attn = Unscaled(model.blocks[1].attn)
    report = diff(model, dtype)
    found = report.first_divergence
    assert (found.row.reference, found.cause.kind) == ("blocks.1.attn.hook_attn_scores", "scale")
    assert found.cause.number == pytest.approx(8**0.5, rel=1e-5)
    assert report.remarks[0] == (
        f"the cause, and the values beside it, are those of a run in float32 on the same {str(dtype)[6:]} weights"
    )
    assert not report.ok


def test_what_only_the_precision_spoils_is_told_as_that():
    model = build()
    model.blocks[1].ln1 = Half(model.blocks[1].ln1, 8.0)
    assert diff(copy.deepcopy(model), torch.float32).ok
    report = diff(model, torch.bfloat16)
    found = report.first_divergence
    assert (found.row.reference.rpartition(".")[0], found.cause.kind) == ("blocks.1.ln1", "precision")
    assert found.cause.detail == "In float32, on the same weights, it is right; in bfloat16 it is lost to rounding."


def test_a_smaller_mistake_beside_it_is_told_too():
    model = build()
    model.blocks[1].ln1 = Half(model.blocks[1].ln1, 30.0)
    report = diff(model, torch.bfloat16)
    found = report.first_divergence
    assert (found.row.reference, found.cause.kind) == ("blocks.1.ln1.hook_scale", "precision")
    assert found.cause.detail.startswith("In float32, on the same weights, it is off by no more than ")
    told = "in float32 something smaller is wrong too, at blocks.1.ln1.hook_scale: `--dtype float32` tells it"
    assert report.remarks == (told,)


def test_what_overflows_is_told_as_that():
    model = build()
    model.blocks[1].mlp = Large(model.blocks[1].mlp)
    assert diff(copy.deepcopy(model), torch.bfloat16).ok
    found = diff(model, torch.float16).first_divergence
    assert (found.row.reference, found.cause.kind) == ("blocks.1.mlp.hook_pre", "precision")
    assert found.cause.detail == "In float32, on the same weights, it is right; in float16 it is not finite."


class FarOff(Attention):
    """No mistake but one of precision: the scores go far away and back; hidden ones get the lowest number there is."""

    def apply_causal_mask(self, attn_scores):
        moved = attn_scores + 256
        attn_scores = moved - 256
        future = torch.ones(attn_scores.shape[-2:], dtype=torch.bool).triu(1)
        return attn_scores.masked_fill(future, torch.finfo(attn_scores.dtype).min)


def test_the_lowest_number_in_hidden_scores_is_no_overflow():
    model = build()
    for block in model.blocks:
        block.attn.__class__ = FarOff
    assert diff(copy.deepcopy(model), torch.float32).ok
    found = diff(model, torch.bfloat16).first_divergence
    assert (found.row.reference, found.cause.kind) == ("blocks.0.attn.hook_attn_scores", "precision")
    assert found.cause.detail == "In float32, on the same weights, it is right; in bfloat16 it is lost to rounding."


def test_a_limit_of_ones_own_finds_no_tensor_that_is_the_same():
    report = shapetrace.diff(build().bfloat16(), TOKENS, rtol=1e-4)
    assert not report.ok
    assert report.first_divergence.row.difference.ok is False


class Lowest(Attention):
    """Hides scores by the lowest number of their dtype."""

    def apply_causal_mask(self, attn_scores):
        hidden = torch.ones(attn_scores.shape[-2:]).triu(1).bool()
        return attn_scores.masked_fill(hidden, torch.finfo(attn_scores.dtype).min)


class Louder(Unembed):
    def forward(self, normalized_resid_final):
        logits = super().forward(normalized_resid_final) * 2
        return logits


@pytest.mark.parametrize(("dtype", "lowest"), [(torch.float16, "-65504"), (torch.bfloat16, "-3.38953e+38")])
def test_what_hides_scores_is_told_as_it_ran(dtype, lowest):
    model = build()
    for block in model.blocks:
        block.attn.__class__ = Lowest
    model.unembed.__class__ = Louder
    report = diff(model, dtype)
    assert report.first_divergence.row.reference == "unembed.hook_out"
    assert f"masked scores are {lowest} and not -inf" in " ".join(report.remarks)


class OnlyBfloat(MLP):
    """GPT-2's, in code that is tied to a dtype."""

    def forward(self, normalized_resid_mid):
        pre = normalized_resid_mid.to(torch.bfloat16) @ self.W_in + self.b_in
        post = gelu_new(pre) if self.right else pre.relu()
        return post @ self.W_out + self.b_out


@pytest.mark.parametrize("right", [True, False])
def test_a_reference_that_runs_in_its_own_dtype_only(right):
    reference = build().to(torch.bfloat16)
    reference.load_state_dict(seeded_state(TINY, 0, torch.bfloat16), strict=False)
    for block in reference.blocks:
        block.mlp.__class__, block.mlp.right = OnlyBfloat, right
    if right:
        assert diff(build(), torch.bfloat16, reference, load=True).ok
    else:
        with pytest.raises(ShapetraceError, match="Transformer is no GPT-2, and no reference: "):
            diff(build(), torch.bfloat16, reference, load=True)


def test_a_mistake_below_the_rounding_is_not_decided_and_the_screen_says_so():
    sizes = [word for size in ("n_layers=2", "d_model=40", "n_heads=5", "n_ctx=16") for word in ("--set", size)]
    words = ["diff", "The cat", "--model", "forge-small", *sizes, "--set", "activation=gelu", "--weights", "random"]
    right = CliRunner().invoke(main, [*words, "--dtype", "float32"])
    assert (right.exit_code, "GELU" in right.stdout) == (1, True), right.output
    narrow = CliRunner().invoke(main, [*words, "--dtype", "bfloat16"])
    assert narrow.exit_code == 0, narrow.output
    assert "\nprecision   bfloat16: a difference counts over 6.2e-02" in narrow.stdout
    verdict = " ".join(narrow.stdout.partition("Nothing differs")[2].split())
    assert verdict.startswith("by more than bfloat16's rounding: every module on its own within ")
    assert verdict.endswith(" does not show here: `--dtype float32` tells it.")


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize(
    "reference", ["gpt2-small", "forge-small", "hf:gpt2?n_layer=2&n_embd=40&n_head=5&n_positions=16"]
)
def test_a_recorded_reference(dtype, reference):
    sizes = [word for size in ("n_layers=2", "d_model=40", "n_heads=5", "n_ctx=16") for word in ("--set", size)]
    words = ["diff", "The cat", "--model", "forge-small", *sizes, "--reference", reference, "--weights", "random"]
    words += ["--dtype", str(dtype)[6:], "--json"]
    ran = CliRunner().invoke(main, words)
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout)["dtype"] == str(dtype)[6:]
    wrong = CliRunner().invoke(main, [*words, "--set", "activation=relu"])
    found = json.loads(wrong.stdout)["first_divergence"]
    assert (wrong.exit_code, found["reference"], found["cause"]["kind"]) == (
        *(1, "blocks.0.mlp.hook_post"),
        "nonlinearity",
    )


def test_a_reference_that_overflows():
    state = seeded_state(TINY, 0)
    state["blocks.1.mlp.W_in"] *= 1e5
    reference = build_reference(TINY, {name: each.to(torch.float16) for name, each in state.items()}, "huge")
    with pytest.raises(ShapetraceError) as raised:
        diff(build(), torch.float16, reference, load=True)
    assert str(raised.value).startswith(reference.name + " itself leaves the range of float16, whose largest number is")


def test_an_operation_that_torch_lacks_is_told_in_its_words():
    class Refusing(nn.Module):
        def forward(self, x):
            raise NotImplementedError("\"sort_cpu\" not implemented for 'Half'")

    model = build()
    refusing = Refusing()
    for name, each in model.blocks[1].mlp.named_parameters():
        setattr(refusing, name, each)
    model.blocks[1].mlp = refusing
    with pytest.raises(ShapetraceError) as raised:
        diff(model, torch.float16)
    assert str(raised.value).startswith("the model raised NotImplementedError: \"sort_cpu\" not implemented for 'Half'")
    assert str(raised.value).endswith(
        "\n\nhint: torch lacks this operation for the dtype on this device: take another `--dtype` or `--device`"
    )


class OnlyNarrow(nn.Module):
    """Code that is tied to its dtype, by a cast of its own."""

    def __init__(self, mlp, function=torch.relu):
        super().__init__()
        self.W_in, self.b_in, self.W_out, self.b_out = mlp.W_in, mlp.b_in, mlp.W_out, mlp.b_out
        self.function = function

    def forward(self, x):
        pre = x.to(torch.bfloat16) @ self.W_in + self.b_in
        post = self.function(pre)
        return post @ self.W_out + self.b_out


def test_a_model_that_runs_in_its_own_dtype_only():
    model = build()
    model.blocks[1].mlp = OnlyNarrow(model.blocks[1].mlp)
    found = diff(model, torch.bfloat16).first_divergence
    assert (found.row.reference, found.cause.kind) == ("blocks.1.mlp.hook_post", "unknown")
    assert found.cause.detail.startswith("It cannot be looked at in float32, where it raises RuntimeError: ")
    model.blocks[1].mlp.function = lambda x: nn.functional.gelu(x, approximate="tanh")
    assert diff(model, torch.bfloat16).ok


def test_the_model_is_left_as_it_was():
    model = build().to(torch.bfloat16)
    model.blocks[1].attn = Unscaled(model.blocks[1].attn)
    before = {name: (id(each), each.data_ptr(), each.dtype) for name, each in model.named_parameters()}
    assert not shapetrace.diff(model, TOKENS).ok
    assert {name: (id(each), each.data_ptr(), each.dtype) for name, each in model.named_parameters()} == before


def test_widened():
    model = nn.Linear(2, 3).to(torch.bfloat16)
    model.register_buffer("order", torch.arange(2))
    model.alias = model.weight
    weight = model.weight.data.clone()
    with pytest.raises(KeyError), widened(model):
        assert (model.weight.dtype, model.alias.dtype, model.order.dtype) == (torch.float32, torch.float32, torch.int64)
        assert torch.equal(model.weight, weight.float())
        raise KeyError
    assert model.weight.dtype == model.bias.dtype == torch.bfloat16
    assert torch.equal(model.weight, weight)


@pytest.mark.skipif(HERE is None, reason="torch finds no accelerator on this machine")
@pytest.mark.parametrize("dtype", [torch.float32, *NARROW])
def test_a_model_on_the_accelerator(dtype):
    model = build().to(HERE)
    report = diff(model, dtype)
    assert (report.ok, report.first_divergence) == (True, None)
    assert {each.device.type for each in model.parameters()} == {HERE.type}
    model.blocks[1].attn = Unscaled(model.blocks[1].attn)
    found = diff(model, dtype).first_divergence
    assert (found.row.reference, found.cause.kind) == ("blocks.1.attn.hook_attn_scores", "scale")


@pytest.mark.skipif(HERE is None, reason="torch finds no accelerator on this machine")
@pytest.mark.parametrize("model", ["gpt2-small", "forge-small"])
def test_the_command_on_the_accelerator(model):
    sizes = [word for size in ("n_layers=2", "d_model=40", "n_heads=5", "n_ctx=16") for word in ("--set", size)]
    sizes += ["--set", "d_head=8", "--set", "d_mlp=160"] if model == "gpt2-small" else []
    words = ["diff", "The cat", "--model", model, *sizes, "--weights", "random", "--device", HERE.type]
    for dtype in ("float32", "bfloat16"):
        ran = CliRunner().invoke(main, [*words, "--dtype", dtype])
        assert ran.exit_code == 0, ran.output
