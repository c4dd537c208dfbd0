"""Options that several commands share."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    import torch

    from shapetrace.tokens import Tokenizer

model_option = click.option(
    "--model",
    default="gpt2-small",
    show_default=True,
    metavar="NAME",
    help="A built-in (gpt2-small, -medium, -large, -xl, forge-small and so on), your own (file.py:Name, "
    "package.module:Name, with or without arguments: 'file.py:GPT(Config(n_layers=2))'), or one of Hugging Face's "
    "(hf:NAME-OR-FOLDER, 'hf:gpt2?n_layer=2').",
)
set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="FIELD=VALUE",
    help="Change a field of a built-in model's Config: n_layers=2, or of a forge activation=swiglu. Repeatable.",
)
module_option = click.option(
    "--module", metavar="PATH", help="Only this module, such as blocks.0.attn, or those that match 'blocks.*.mlp'."
)


def _check_seed(context: click.Context, parameter: click.Parameter, value: int) -> int:
    if not -(2**63) <= value < 2**64:  # what torch takes
        raise click.BadParameter("a number of 64 bits")
    return value


seed_option = click.option(
    "--seed", default=0, show_default=True, callback=_check_seed, help="Seed of all that is random."
)
weights_option = click.option(
    "--weights",
    default="auto",
    show_default=True,
    metavar="auto|pretrained|random|PATH",
    help="auto: pretrained where they can be had within seconds, else random; your own model as it is built. "
    "random: every parameter drawn anew. PATH: a safetensors file.",
)
text_argument = click.argument("text", required=False, metavar="[TEXT]")
ids_option = click.option("--ids", metavar="1,2,3", help="Token ids instead of a text.")
input_option = click.option(
    "--input",
    "described",
    multiple=True,
    metavar="[NAME=]VALUE",
    help="An argument of the model's forward: x=float32[2,3,32,32], ids=int64[1,7]<100, mask=bool[7,7], flag=true, or "
    "x=file.safetensors:key. Repeatable; without NAME by position.",
)


def _load_tokenizer(context: click.Context, parameter: click.Parameter, value: str | None) -> Tokenizer | None:
    from shapetrace.tokens.folder import load_tokenizer

    return None if value is None else load_tokenizer(value)


tokenizer_option = click.option(
    "--tokenizer",
    type=click.Path(),
    callback=_load_tokenizer,
    metavar="DIR",
    help="A tokenizer other than GPT-2's: a folder that `shapetrace tokens --train` or transformers wrote.",
)
parallel_option = click.option(
    "--parallel",
    metavar="tensor|fsdp",
    help="Spread the model over the processes that torchrun has started: tensor parallel, FSDP, or both, "
    "fsdp=2,tensor=2.",
)
bos_option = click.option("--no-bos", is_flag=True, help="Do not put <|endoftext|> before the text.")


def _check_rtol(context: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    if value is not None and not value >= 0:  # not `<`: nan is refused too
        raise click.BadParameter("a number from 0 up")
    return value


rtol_option = click.option(
    "--rtol", type=float, callback=_check_rtol, help="Largest relative difference of figures that counts as equal."
)


def _find_device(context: click.Context, parameter: click.Parameter, value: str | None) -> torch.device | None:
    if value is None:
        return None
    from shapetrace.target.placement import find_device

    return find_device(value)


device_option = click.option(
    "--device",
    callback=_find_device,
    metavar="NAME",
    help="Where the model runs: cpu, cuda, cuda:1, mps and so on. By default where it was built.",
)


def _find_dtype(context: click.Context, parameter: click.Parameter, value: str | None) -> torch.dtype | None:
    if value is None:
        return None
    import torch

    dtype: torch.dtype = getattr(torch, value)
    return dtype


def dtype_option(default: str | None, help: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """In which precision the model runs: its floating-point parameters, buffers and inputs; None: as it was built."""
    return click.option(
        "--dtype",
        type=click.Choice(["float32", "float64", "bfloat16", "float16"]),
        default=default,
        show_default=default is not None,
        callback=_find_dtype,
        help=help,
    )


cast_option = dtype_option(None, "Precision of parameters and inputs. By default as the model was built.")
svg_option = click.option("--svg", type=click.Path(), metavar="FILE.svg", help="Also write the screen as a picture.")
html_option = click.option("--html", type=click.Path(), metavar="FILE.html", help="Also write a page to click through.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead.")
expand_option = click.option("--expand", is_flag=True, help="Show every block, also where they are all alike.")


def depth_option(default: int | None) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """How many levels of modules to open."""
    return click.option(
        "--depth",
        type=click.IntRange(min=0),
        default=default,
        show_default=default is not None,
        help="Open this many levels of modules.",
    )


def inputs_of(*words: str) -> list[str]:
    """The files that `--model`, `--weights`, `--input` and their like may name: `net.py` in `net.py:Net(2)`."""
    found = []
    for word in words:
        if word in ("auto", "random", "pretrained"):
            continue
        said = word.partition("=")[2] if re.match(r"\w+=", word) else word  # x=in.safetensors:x
        parts = [said[: each.start()] for each in re.finditer(":", said)]
        module = said.partition(":")[0].replace(".", "/")
        found += [said, *parts, f"{module}.py", os.path.join(said, "model.safetensors")]
    return found
