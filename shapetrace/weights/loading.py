"""Weights from a safetensors file for the modular GPT-2."""

from __future__ import annotations

import re
from difflib import get_close_matches
from pathlib import Path

from torch import Tensor

from shapetrace.errors import WeightsError
from shapetrace.gpt2 import Transformer
from shapetrace.weights.layouts import from_hugging_face, is_hugging_face


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
    """The weights under the model's names, one for each parameter, converted from Hugging Face's layout if need be.

    Raises WeightsError where a tensor is missing, of no use or of the wrong shape.
    """
    ours = from_hugging_face(state, model.cfg.n_heads) if is_hugging_face(state) else dict(state)
    # A mask of an older TransformerLens, and our own IGNORE, are constants and no weights.
    ours = {key: tensor for key, tensor in ours.items() if not re.fullmatch(r"blocks\.\d+\.attn\.(mask|IGNORE)", key)}
    wanted = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    missing = [name for name in wanted if name not in ours]
    unexpected = [key for key in ours if key not in wanted]
    mismatched = [name for name, shape in wanted.items() if name in ours and tuple(ours[name].shape) != shape]
    problems = [
        *(f"missing: {_listed(missing)}" for _ in missing[:1]),
        *(f"unexpected: {_listed(unexpected)}" for _ in unexpected[:1]),
        *(f"`{name}` is {tuple(ours[name].shape)}, the model's is {wanted[name]}" for name in mismatched[:5]),
        *(f"... and {len(mismatched) - 5} more of the wrong shape" for _ in mismatched[5:6]),
        *(
            f"`{name}` is {str(ours[name].dtype)[6:]}"
            for name in wanted
            if name in ours and not ours[name].is_floating_point()
        ),
    ]
    if problems:
        raise WeightsError(
            "\n  ".join([f"the weights in {origin} do not fit the model", *problems]),
            _next_step(missing, unexpected, mismatched),
        )
    return {name: ours[name] for name in wanted}


def _listed(names: list[str]) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:6])
    return shown + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def _next_step(missing: list[str], unexpected: list[str], mismatched: list[str]) -> str:
    near = get_close_matches(unexpected[0], missing, n=1, cutoff=0.8) if unexpected and missing else []
    if near:
        return f"`{unexpected[0]}`: did you mean `{near[0]}`?"
    if mismatched or any(name.startswith("blocks.") for name in (*missing, *unexpected)):
        return "give the sizes of the weights with `--model` or `--set`, such as `--set n_layers=2`"
    return "a file has GPT-2's weights under TransformerLens names (embed.W_E) or Hugging Face's (wte.weight)"
