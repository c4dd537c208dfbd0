"""From a name to what it stands for."""

from __future__ import annotations

import re
from dataclasses import fields

from shapetrace.errors import ShapetraceError
from shapetrace.target.built_in import BuiltIn
from shapetrace.target.forge import Forge
from shapetrace.target.hugging_face import HuggingFace
from shapetrace.target.importing import path_restored
from shapetrace.target.target import Advance, Note, Source, Target, ignore_advance, ignore_note
from shapetrace.target.user_model import UserModel
from shapetrace.weights.presets import gpt2_sizes


def find_source(name: str, settings: tuple[str, ...] = ()) -> Source:
    """Where the model of that name comes from.

    `gpt2-small`: a built-in, which `settings` such as `n_layers=2` change, as does `gpt2-small?n_layers=2`.
    `file.py:Name`, `package.module:Name`, with or without a call `Name(...)`: the user's own.
    `hf:NAME-OR-FOLDER?field=value`: one of transformers'.
    Raises ShapetraceError where the name is none of these.
    """
    is_hugging_face = name.startswith("hf:")
    is_user_model = not is_hugging_face and (":" in name or name.endswith(".py"))
    if settings and (is_hugging_face or is_user_model):
        example = f"{name}?n_layer=2" if is_hugging_face else re.sub(r"\(.*|$", "(n_layers=2)", name, count=1)
        raise ShapetraceError("`--set` changes a built-in model", f"change this one in its name: --model '{example}'")
    if is_hugging_face:
        return HuggingFace.parse(name.removeprefix("hf:"))
    if is_user_model:
        return UserModel.parse(name)
    name, _, query = name.partition("?")
    built_in = Forge if name.startswith("forge-") else BuiltIn
    return built_in.parse(name, (*settings, *filter(None, query.split("&"))))


def find_reference(name: str, beside: Source) -> Source:
    """Where the model comes from that another one is compared with: a built-in at the sizes that were set for that one.

    Raises ShapetraceError where the name is none.
    """
    source = find_source(name)
    if not (isinstance(source, BuiltIn | Forge) and isinstance(beside, BuiltIn | Forge)):
        return source
    sizes, published = gpt2_sizes(beside.config), gpt2_sizes(beside.preset.config)
    known = {each.name for each in fields(source.config)}
    changed = [f"{size}={sizes[size]}" for size in sizes if sizes[size] != published[size] and size in known]
    bare, _, query = name.partition("?")
    return find_source(f"{bare}?{'&'.join([*changed, query])}")


def build_on_meta(name: str, settings: tuple[str, ...] = ()) -> Target:
    """The model without any memory behind its weights: shapes only, at any size.

    Leaves sys.path and torch's random numbers, and the user's own instances, as they are.
    Raises ShapetraceError where it cannot be built.
    """
    with path_restored():
        return find_source(name, settings).outline(meta=True)


def build_target(
    name: str,
    settings: tuple[str, ...] = (),
    weights: str = "auto",
    seed: int = 0,
    note: Note = ignore_note,
    advance: Advance = ignore_advance,
) -> Target:
    """The model with its weights, ready to run. The folder of a user's model is then last on sys.path, for its forward.

    Raises ShapetraceError where it cannot be built, WeightsError for weights that cannot be had or do not fit.
    """
    source = find_source(name, settings)
    return source.complete(source.outline(seed), weights, seed, note, advance)
