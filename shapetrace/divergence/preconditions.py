"""What is checked before a model is blamed: the tokens, the reference, and how the model is set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from shapetrace.divergence.observation import Observation
from shapetrace.divergence.sizes import told_sizes
from shapetrace.errors import ShapetraceError
from shapetrace.gpt2.config import Config
from shapetrace.recorder.tensors import name_of
from shapetrace.reference import Reference

_SIZES = ("n_layers", "d_model", "n_heads", "d_head", "d_mlp", "d_vocab")
_ROWS = 4096  # of a table, in a higher precision at a time


def check_values(model: nn.Module, tokens: Tensor, config: Config) -> None:
    """Raise ShapetraceError unless the model and the tokens have values, and the tokens are some of the model's."""
    if any(each.is_meta for each in (*model.parameters(), *model.buffers(), tokens)):
        raise ShapetraceError(
            "a diff compares values, and there are none on the meta device", "build the model on the CPU"
        )
    if tokens.ndim != 2 or not tokens.numel() or tokens.is_floating_point() or tokens.dtype == torch.bool:
        what = f"{name_of(tokens.dtype)} {tuple(tokens.shape)}"
        raise ShapetraceError(
            f"tokens are whole numbers of shape (batch, posn), not {what}", "such as torch.tensor([[1, 2]])"
        )
    if not (int(tokens.min()) >= 0 and int(tokens.max()) < config.d_vocab):
        raise ShapetraceError(
            f"token ids go from 0 to {config.d_vocab - 1}; here they go from {int(tokens.min())} to {int(tokens.max())}"
        )
    if tokens.shape[1] > config.n_ctx:
        raise ShapetraceError(f"{tokens.shape[1]} tokens are more than n_ctx = {config.n_ctx}", "give fewer")


def check_reference(reference: Reference, config: Config, dtype: torch.dtype, to_hold: bool = False) -> None:
    """Raise ShapetraceError where the reference cannot stand beside a model of this size and dtype.

    to_hold: whether both are to hold the same weights; else one of them may know more positions.
    """
    its_dtype = next(iter(reference.state().values())).dtype
    if its_dtype != dtype:
        raise ShapetraceError(f"the reference is {its_dtype} and the model {dtype}", "bring both to one dtype")
    sizes = (*_SIZES, "n_ctx") if to_hold else _SIZES
    other = [size for size in sizes if getattr(reference.config, size) != getattr(config, size)]
    if other:
        told = ", ".join(f"{size} {getattr(config, size)} beside {getattr(reference.config, size)}" for size in other)
        example = "&".join(f"{size}={getattr(config, size)}" for size in other)
        raise ShapetraceError(
            f"the reference has other sizes than the model: {told}",
            f"build it at the model's; on the command line --reference 'gpt2-small?{example}'",
        )


def dtype_of(model: nn.Module) -> torch.dtype:
    """The dtype that most of the model's parameters have."""
    sizes: dict[torch.dtype, int] = {}
    for parameter in model.parameters():
        if parameter.is_floating_point():
            sizes[parameter.dtype] = sizes.get(parameter.dtype, 0) + parameter.numel()
    return max(sizes, key=lambda each: sizes[each], default=torch.float32)


def remark_on_setting(
    model: nn.Module, config: Config, state: Mapping[str, Tensor], tokens: Tensor, seen: Observation
) -> Iterator[str]:
    """What may make a right model look wrong, or a comparison say less than it seems to."""
    if model.training:
        yield "your model is in training mode, in which dropout is on: call `.eval()` first"
    told = told_sizes(model)
    wrong = [name for name in _SIZES if told.get(name, getattr(config, name)) != getattr(config, name)]
    for name in wrong:
        yield f"your config says {name} = {told[name]}, and your weights are of {getattr(config, name)}"
    dtype = dtype_of(model)
    others = {name_of(each.dtype) for each in model.parameters() if each.dtype != dtype}
    if others:
        yield f"some of your parameters are {', '.join(sorted(others))}"
    if is_processed(state):
        yield (
            "the reference's weights look processed: the rows of W_E have mean 0, and LayerNorms are 1 and 0; "
            "load it without folding and centring"
        )
    lengths = {
        each.value.shape[-1]
        for each in seen.inputs.values()
        if each.value.dtype == tokens.dtype and each.value.ndim == 2
    }
    longer = sorted(length for length in lengths if length == tokens.shape[1] + 1)
    if longer:
        yield (
            f"your model embeds {longer[0]} tokens where {tokens.shape[1]} were given: "
            "does it put <|endoftext|> in front by itself?"
        )


def remark_on_biases(without: frozenset[str]) -> Iterator[str]:
    """Which biases the reference was given as 0 because the model has none."""
    biases = sorted({name.rpartition(".")[2] for name in without} - {"b_U"})
    if biases:
        yield f"your model has no {', '.join(biases)}, so the reference's are 0; GPT-2 has them"


def is_processed(state: Mapping[str, Tensor]) -> bool:
    """Whether weights were folded and centred, as TransformerLens does by default: outputs agree, tensors do not."""
    table = state["embed.W_E"].detach()  # a quarter of all weights: looked at without a copy
    largest = max(map(abs, map(float, table.aminmax())))
    means = (rows.double().mean(-1) for rows in torch.split(table, _ROWS))
    centred = all(float(mean.abs().max()) <= 1e-5 * largest for mean in means)
    gain = state.get("blocks.0.ln1.w")
    return centred and (gain is None or bool((gain == 1).all()))
