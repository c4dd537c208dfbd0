"""Weights from a safetensors file, for the modular GPT-2 or any other module."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from difflib import get_close_matches
from pathlib import Path

import torch
from torch import Tensor, nn

from shapetrace.errors import WeightsError
from shapetrace.gpt2 import Transformer
from shapetrace.sharding import fill, is_distributed
from shapetrace.weights.layouts import find_layout, to_transformer_lens

_SHOWN = 6  # names

# Makes the hint of the names that are missing, unexpected and of the wrong shape.
Explain = Callable[[list[str], list[str], list[str]], str]


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file, or of `model.safetensors` in a folder, mapped and not copied.

    Raises WeightsError where there is no such file, or it is another kind of file. Pickles are never opened.
    """
    from safetensors import SafetensorError, safe_open

    file = path / "model.safetensors" if path.is_dir() else path
    if not file.is_file():
        raise WeightsError(
            f"there is no weights file `{file}`", "give `--weights` a .safetensors file, or a folder with one"
        )
    try:
        with safe_open(file, framework="pt") as opened:
            return {key: opened.get_tensor(key) for key in opened.keys()}  # noqa: SIM118 - it is no mapping
    except (SafetensorError, OSError) as error:
        raise WeightsError(
            f"`{file}` is no safetensors file: {error}",
            "convert it with `safetensors.torch.save_file(model.state_dict(), 'model.safetensors')`",
        ) from None


def fit_weights(model: Transformer, state: dict[str, Tensor], origin: str) -> dict[str, Tensor]:
    """The weights under the model's names, one for each parameter, converted from any known layout.

    Raises WeightsError where a tensor is missing, of no use or of the wrong shape.
    """
    layout = find_layout({key: tuple(tensor.shape) for key, tensor in state.items()})
    ours = to_transformer_lens(state, layout, model.cfg.n_heads) if layout else dict(state)
    wanted = dict(model.named_parameters())
    _check_fit(ours, wanted, wanted, origin, _explain_gpt2)
    return {name: ours[name] for name in wanted}


def explain_any(missing: list[str], unexpected: list[str], mismatched: list[str]) -> str:
    """For a model of whose names nothing is known but these."""
    if missing and unexpected:
        return f"the file has names such as `{unexpected[0]}` where the model's are such as `{missing[0]}`: rename them"
    if mismatched:
        return "build the model at the sizes of the weights, such as --model 'model.py:Net(width=64)'"
    if missing:
        return "the file was written by a model without these: build that one, or save this model's state_dict"
    return "the file was written by a model that has these as well: build that one, or leave them out of the file"


def load_weights(model: nn.Module, state: dict[str, Tensor], origin: str, explain: Explain = explain_any) -> list[str]:
    """Copy the weights into a module that has them under the same names; returns the buffers that the file lacks.

    One name of a tied parameter is enough. A prefix that a wrapper put before every name is dropped. A GPT-2 in one of
    the known layouts takes weights in any other of them. explain: makes the hint for weights that do not fit.
    Raises WeightsError where a tensor is missing, of no use or of the wrong shape.
    """
    ours = _without_prefix(_in_layout_of(model, state), model)
    own = model.state_dict(keep_vars=True)
    _check_tied(ours, own, origin)
    given = {id(own[key]) for key in ours if key in own}
    wanted = {
        key: each
        for key, each in own.items()
        if isinstance(each, Tensor) and (key in ours or (isinstance(each, nn.Parameter) and id(each) not in given))
    }
    _check_fit(ours, wanted, own, origin, explain)
    spread = {key for key in ours if key in own and is_distributed(own[key])}
    for key in spread:
        fill(own[key], ours[key])
    model.load_state_dict({key: each for key, each in ours.items() if key not in spread}, strict=False)
    return [key for key, each in own.items() if key not in ours and not isinstance(each, nn.Parameter)]


def _in_layout_of(model: nn.Module, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights under the model's names, where both are a GPT-2 in a known layout, and not in the same one."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    if any(map(nn.parameter.is_lazy, parameters.values())):
        return state
    layout = find_layout({key: tuple(each.shape) for key, each in parameters.items()})
    theirs = find_layout({key: tuple(each.shape) for key, each in state.items()})
    if layout is None or theirs is None or layout.name == theirs.name:
        return state
    slot = layout.slot_of("blocks.0.attn.W_Q")
    # Where heads lie side by side on both sides, they are never told apart.
    n_heads = parameters[slot.key].shape[0] if slot is not None and slot.theirs == "n m h" else 1
    spare = to_transformer_lens(state, theirs, n_heads)
    packed = {}
    for slot in layout.slots:
        if all(name in spare for name in slot.names):
            packed[slot.key] = slot.pack(spare)
    used = {name for slot in layout.slots if slot.key in packed for name in slot.names}
    if torch.equal(spare["unembed.W_U"], spare["embed.W_E"].T):
        used.add("unembed.W_U")
    if not spare["unembed.b_U"].any():
        used.add("unembed.b_U")
    left = {name: tensor for name, tensor in spare.items() if name not in used}
    slots = {name: theirs.slot_of(name) for name in left}
    # It is told under the names of the file, where they are none of the model, whose shapes are others.
    own = {name: slot.key for name, slot in slots.items() if slot and slot.key not in parameters}
    return packed | {own.get(name, name): tensor for name, tensor in left.items()}


def _check_tied(ours: Mapping[str, Tensor], own: Mapping[str, Tensor], origin: str) -> None:
    """Raise WeightsError where one tensor of the model would have to hold two."""
    first: dict[int, str] = {}
    for key in own:
        if key in ours:
            other = first.setdefault(id(own[key]), key)
            if other != key and not torch.equal(ours[other], ours[key]):
                raise WeightsError(
                    f"`{other}` and `{key}` are one tensor in the model, and two in {origin}",
                    "take weights whose head is the embedding, or a model whose head is its own",
                )


def _without_prefix(state: dict[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """The weights under names that the model knows, where only a wrapper's prefix stands between."""
    own = set(model.state_dict())
    for prefix in ("module.", "_orig_mod.", "model.", "transformer."):
        if state and not own & set(state) and all(key.startswith(prefix) for key in state):
            return {key.removeprefix(prefix): tensor for key, tensor in state.items()}
    return dict(state)


def _check_fit(
    ours: dict[str, Tensor],
    wanted: Mapping[str, Tensor],
    known: Container[str],
    origin: str,
    explain: Explain,
) -> None:
    """Raise WeightsError unless there is a tensor for each that is wanted, and none that is not known."""
    shapes = {name: _shape_of(tensor) for name, tensor in wanted.items()}
    missing = [name for name in wanted if name not in ours]
    unexpected = [key for key in ours if key not in known]
    given = [name for name in wanted if name in ours]
    mismatched = [name for name in given if shapes[name] not in (None, tuple(ours[name].shape))]
    problems = [
        *(f"missing: {_listed(missing)}" for _ in missing[:1]),
        *(f"unexpected: {_listed(unexpected)}" for _ in unexpected[:1]),
        *(f"`{name}` is {tuple(ours[name].shape)}, the model's is {shapes[name]}" for name in mismatched[:5]),
        *(f"... and {len(mismatched) - 5} more of the wrong shape" for _ in mismatched[5:6]),
        *(
            f"`{name}` is {str(ours[name].dtype)[6:]}"
            for name in given
            if wanted[name].is_floating_point() and not ours[name].is_floating_point()
        ),
    ]
    if problems:
        transposed = [name for name in mismatched if shapes[name] == tuple(reversed(ours[name].shape))]
        square = [name for name in given if ours[name].ndim == 2 and len(set(ours[name].shape)) == 1]
        raise WeightsError(
            "\n  ".join([f"the weights in {origin} do not fit the model", *problems]),
            _explain_transposed(transposed, square)
            or _find_near(missing, unexpected)
            or explain(missing, unexpected, mismatched),
        )


def _explain_transposed(transposed: list[str], square: list[str]) -> str:
    """Weights of a Conv1D in an nn.Linear, or the other way round, where that is what does not fit."""
    if not transposed:
        return ""
    told = (
        f"{len(transposed)} of them are exactly transposed: Hugging Face's Conv1D keeps (in, out), nn.Linear (out, in)"
    )
    if not square:
        return told
    return f"{told}; {len(square)} square ones, such as `{square[0]}`, fit either way and have to be transposed too"


def _shape_of(tensor: Tensor) -> tuple[int, ...] | None:
    """None for a lazy parameter, which takes any shape."""
    return None if nn.parameter.is_lazy(tensor) else tuple(tensor.shape)


def _listed(names: list[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:_SHOWN])
    return shown + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _explain_gpt2(missing: list[str], unexpected: list[str], mismatched: list[str]) -> str:
    if mismatched or any(name.startswith("blocks.") for name in (*missing, *unexpected)):
        return "give the sizes of the weights with `--model` or `--set`, such as `--set n_layers=2`"
    return "a file has GPT-2's weights under TransformerLens names (embed.W_E) or Hugging Face's (wte.weight)"


def _find_near(missing: list[str], unexpected: list[str]) -> str:
    """`a.bais`: did you mean `a.bias`?, for the first few that have a near name."""
    found = [(key, get_close_matches(key, missing, n=1, cutoff=0.8)) for key in unexpected[:_SHOWN]]
    return "\n      ".join(f"`{key}`: did you mean `{near[0]}`?" for key, near in found if near)
