"""Parameters that cannot hold what the reference has in their place: told before the model's lines are blamed."""

import importlib.util
from pathlib import Path

import pytest
import torch
from torch import nn

import shapetrace

TOKENS = torch.tensor([[100, 3, 1, 4, 1, 5, 9]])
SPEC = importlib.util.spec_from_file_location("other_layouts", Path(__file__).parent / "other_layouts.py")
models = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(models)


def renamed(module, before, after):
    """The module knows one of its own by another name, as its forward does."""
    child = getattr(module, before)
    delattr(module, before)
    setattr(module, after, child)
    # The forward was written with the old name.
    type(module).__getattr__ = lambda self, name: nn.Module.__getattr__(self, after if name == before else name)


class Renamed(models.Textbook):
    def __init__(self, owner, before, after):
        super().__init__()
        for path, module in list(self.named_modules()):
            if path.endswith(owner) and before in module._modules:
                module.__class__ = type(type(module).__name__, (type(module),), {})
                renamed(module, before, after)


def cause_of(model, **options):
    report = shapetrace.diff(model.eval(), TOKENS, **options)
    found = report.first_divergence
    return found and (found.row.reference, found.cause.kind, found.cause.detail)


def test_layers_that_are_one_module():
    model = models.Textbook()
    model.trf_blocks = nn.Sequential(*[models.TextbookBlock(40, 5, 24, True)] * 2)
    first, kind, detail = cause_of(model)
    assert (first, kind) == ("blocks.0.ln1.hook_out", "weights")
    assert detail.startswith(
        "`trf_blocks.0.norm1.scale` and `trf_blocks.1.norm1.scale` are one parameter, which cannot hold the "
        "reference's values for both: build a module for each, as by `[Block() for _ in range(n)]`, "
        "not `[Block()] * n`. "
    )


def test_two_norms_of_a_layer_that_are_one_module():
    model = models.Textbook()
    model.trf_blocks[1].norm2 = model.trf_blocks[1].norm1
    first, kind, detail = cause_of(model)
    assert (first, kind) == ("blocks.1.ln1.hook_out", "weights")
    assert detail.startswith(
        "`trf_blocks.1.norm1.scale` and `trf_blocks.1.norm2.scale` are one parameter, which cannot hold the "
        "reference's values for both: build a module for each. "
    )


@pytest.mark.parametrize(
    ("owner", "before", "after", "first", "detail"),
    [
        (
            "",
            "out_head",
            "head",
            "unembed.hook_out",
            "`head.weight` was never loaded: the reference has no tensor of that name, but `out_head.weight`.",
        ),
        (
            "0.att",
            "W_query",
            "q_proj",
            "blocks.0.attn.hook_q",
            "`trf_blocks.0.att.q_proj.weight` was never loaded: the reference has no tensor of that name, but "
            "`trf_blocks.0.att.W_query.weight`. `trf_blocks.0.att.q_proj.bias` was never loaded: the reference has no "
            "tensor of that name, but `trf_blocks.0.att.W_query.bias`.",
        ),
    ],
)
def test_a_module_of_another_name(owner, before, after, first, detail):
    assert cause_of(Renamed(owner, before, after)) == (first, "weights", detail)


def test_a_module_of_a_name_that_tells_nothing():
    model = Renamed("trf_blocks.1", "norm1", "before")
    for path, module in list(model.named_modules()):
        if path == "trf_blocks.1":
            renamed(module, "norm2", "afterwards")
            type(module).__getattr__ = lambda self, name: nn.Module.__getattr__(
                self, {"norm1": "before", "norm2": "afterwards"}.get(name, name)
            )
    assert cause_of(model) == (
        "blocks.1.ln1.hook_out",
        "weights",
        "Nothing of yours is `trf_blocks.1.norm1.scale`, unless it is `trf_blocks.1.before.scale` or "
        "`trf_blocks.1.before.shift` or `trf_blocks.1.afterwards.scale` or `trf_blocks.1.afterwards.shift`: say which "
        "one by `--weights-map FILE.yaml`.",
    )


class Transposed(models.NanoMLP):
    """Keeps the weight of c_fc as (in, out)."""

    def __init__(self, config):
        super().__init__(config)
        self.c_fc.weight = nn.Parameter(torch.randn(config.n_embd, 4 * config.n_embd))

    def forward(self, x):
        x = x @ self.c_fc.weight + self.c_fc.bias
        x = self.gelu(x)
        return self.c_proj(x)


def test_a_weight_whose_axes_stand_in_another_order():
    model = models.NanoGPT(models.GPTConfig())
    model.transformer.h[1].mlp = Transposed(models.GPTConfig())
    first, kind, detail = cause_of(model)
    assert kind == "weights"
    assert detail == (
        "`transformer.h.1.mlp.c_fc.weight` was never loaded: it is (40, 160), and the reference's is (160, 40), its "
        "axes in another order."
    )


def test_a_size_that_nothing_tells_is_asked_for_with_the_line_that_would():
    with pytest.raises(shapetrace.ShapetraceError) as raised:
        shapetrace.diff(Renamed("", "pos_emb", "position"), TOKENS)
    assert raised.value.message == (
        "Renamed's parameters do not tell n_ctx; these have no place in the textbook layout:\n"
        "  position.weight (24, 40)"
    )
    assert raised.value.hint == (
        "`pos_emb.weight` would tell it. Rename yours, or say which one it is by `--weights-map FILE.yaml` "
        "(`weights_map` from Python), a line each: `position.weight: pos_embed.W_pos`"
    )


def test_a_weights_map_completes_the_layout_that_was_recognised():
    model, given = Renamed("", "pos_emb", "position").eval(), {"position.weight": "pos_embed.W_pos"}
    report = shapetrace.diff(model, TOKENS, weights_map=given)
    assert (report.ok, report.layout) == (True, "textbook and the weights map")


def test_a_line_of_a_weights_map_for_every_layer():
    given = {
        f"trf_blocks.#.ff.net.{place}.{kind}": {"name": f"blocks.#.mlp.{name}", "transpose": True}
        if kind == "weight"
        else f"blocks.#.mlp.{name}"
        for place, kind, name in [
            (0, "weight", "W_in"),
            (0, "bias", "b_in"),
            (2, "weight", "W_out"),
            (2, "bias", "b_out"),
        ]
    }
    assert shapetrace.diff(Renamed(".ff", "layers", "net").eval(), TOKENS, weights_map=given).ok
    given.pop("trf_blocks.#.ff.net.2.bias")
    assert cause_of(Renamed(".ff", "layers", "net"), weights_map=given) == (
        "blocks.0.hook_mlp_out",
        "weights",
        "`trf_blocks.0.ff.net.2.bias` was never loaded: the reference has no tensor of that name, but "
        "`trf_blocks.0.ff.layers.2.bias`.",
    )
