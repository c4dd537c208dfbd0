"""A model of transformers: `hf:gpt2`, `hf:folder`, `hf:llama?num_hidden_layers=2`. Its code is transformers' own."""

from __future__ import annotations

import ast
import contextlib
import copy
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from shapetrace.errors import ShapetraceError, WeightsError, suggest
from shapetrace.meta import on_meta
from shapetrace.target.seeding import seeded
from shapetrace.target.target import Advance, Note, Target
from shapetrace.target.weights import give_weights
from shapetrace.weights.pretrained import find_hub_file

_EXAMPLE = "write hf:NAME, hf:FOLDER or hf:CONFIG.json, such as 'hf:gpt2?n_layer=2&n_embd=64'"
_WEIGHTS_FILES = ("model.safetensors", "model.safetensors.index.json")
_ATTENTION = "attn_implementation"
_READABLE = 300  # characters of what transformers raises
# A language model where the config has one, the whole of it before a part: Whisper's decoder alone is a causal one.
_MAPPINGS = (
    ("MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING", lambda config: config.is_encoder_decoder),
    ("MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING", lambda config: config.is_encoder_decoder),
    ("MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING", lambda config: hasattr(config, "text_config")),
    ("MODEL_FOR_MASKED_LM_MAPPING", lambda config: not getattr(config, "is_decoder", False)),
    ("MODEL_FOR_CAUSAL_LM_MAPPING", lambda config: True),
    ("MODEL_MAPPING", lambda config: True),
)


@dataclass(frozen=True, slots=True)
class HuggingFace:
    """A name on the hub, a model type, a folder or a config file, and the fields of the config to change."""

    place: str
    changes: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def parse(cls, text: str) -> HuggingFace:
        """`gpt2?n_layer=2&n_embd=64`; raises ShapetraceError where a part is missing."""
        place, _, query = text.partition("?")
        changes = []
        for part in filter(None, query.split("&")):
            field, equals, value = (each.strip() for each in part.partition("="))
            if not (field and equals):
                raise ShapetraceError(f"`{part}` changes no field of the config", _EXAMPLE)
            changes.append((field, _read_value(value)))
        if not place:
            raise ShapetraceError("`hf:` names no model", _EXAMPLE)
        return cls(place, tuple(changes))

    @property
    def name(self) -> str:
        """Without the folders, which are this machine's."""
        query = "&".join(f"{field}={value}" for field, value in self.changes)
        known = Path(self.place).exists()
        place = os.path.basename(os.path.normpath(self.place)) if known else self.place
        return f"hf:{place}" + (f"?{query}" if query else "")

    def outline(self, seed: int = 0, meta: bool = False) -> Target:
        """Shapes only; raises ShapetraceError where there is no such config, or no model can be built from it."""
        config, _ = self._configure()
        with on_meta():
            return Target(self.name, _build(config), "none (shapes only)")

    def complete(self, outline: Target, weights: str, seed: int, note: Note, advance: Advance) -> Target:
        """`auto`: the published weights where they can be had within seconds and no field was changed, else as
        transformers initialises them; `random` draws every parameter anew from the seed.

        Raises WeightsError for weights that cannot be had or do not fit, or a model that fits in no memory.
        """
        config, remark = self._configure()
        if remark:
            note(remark)
        if weights == "pretrained" or (weights == "auto" and not remark):
            try:
                return self._load_pretrained(type(outline.model), config)
            except WeightsError as error:
                if weights == "pretrained":
                    raise
                note(f"{error.message}; going on with random weights")
        _check_memory(outline.model)
        with seeded(seed):
            built = Target(self.name, _build(config), f"random (seed {seed})")
        return built if weights == "auto" else give_weights(built, weights, seed, note, advance)

    def _configure(self) -> tuple[Any, str]:
        """The config with the changes, and what is to be said of where it came from.

        It is built anew, as its class does it: what a config works out from a field, such as the width of a head from
        that of the model, follows the change.
        """
        cls, file, fields, remark = _find_fields(self.place)
        config = _make_config(cls, fields, f"`{file}` is no {cls.__name__}")
        if not self.changes:
            return config, remark
        changed = copy.deepcopy(fields)
        for field, value in self.changes:
            *parents, last = field.split(".")
            owner, own = config, changed
            for parent in parents:
                owner = owner.get(parent) if isinstance(owner, dict) else getattr(owner, parent, None)
                if not isinstance(own.get(parent), dict):
                    own[parent] = dict(owner) if isinstance(owner, dict) else _own_fields(owner)
                own = own[parent]
            alike = getattr(owner, "attribute_map", {})
            known = [*(owner if isinstance(owner, dict) else getattr(owner, "to_dict", dict)()), *alike, _ATTENTION]
            if last not in known:
                raise ShapetraceError(f"{type(config).__name__} has no field `{field}`", suggest(last, known))
            own[alike.get(last, last)] = value
        return _make_config(cls, changed, f"{self.name} is no {cls.__name__}"), remark

    def _load_pretrained(self, cls: Any, config: Any) -> Target:
        others = [field for field, _ in self.changes if field != _ATTENTION]  # which runs on the same weights
        if others:
            fields = ", ".join(others)
            raise WeightsError(
                f"no pretrained weights are for {self.place} with another {fields}", "leave out what follows the `?`"
            )
        folder = Path(self.place)
        if folder.exists():
            folder = folder if folder.is_dir() else folder.parent
            if not any((folder / file).is_file() for file in _WEIGHTS_FILES):
                raise WeightsError(f"{self.place} holds no {_WEIGHTS_FILES[0]}", "use `--weights random`")
            source = str(folder)
        else:
            source = self.place
            find_hub_file((self.place,), _WEIGHTS_FILES[0], f"{self.place}'s pretrained weights")
        with _loading_errors(f"{self.place}'s weights"), _bars_on_terminals_only():
            model = cls.from_pretrained(source, config=config, use_safetensors=True, dtype=torch.float32)
        return Target(self.name, model.eval(), f"pretrained ({self.name.removeprefix('hf:')})", True)


@cache
def _find_fields(place: str) -> tuple[Any, str, dict[str, Any], str]:
    """The config class for a folder, a file, a name on the hub or a model type; its file, the fields in that, a remark.

    A model type has no file, and no fields but its defaults: the remark says so.
    """
    from transformers import CONFIG_MAPPING

    path = Path(place)
    if path.exists() or place.startswith((".", "/", "~")) or place.endswith(".json"):
        return (*_read_fields(path / "config.json" if path.is_dir() else path), "")
    try:
        return (*_read_fields(find_hub_file((place,), "config.json", f"{place}'s config")), "")
    except WeightsError as error:
        if place in CONFIG_MAPPING:
            remark = f"{error.message}; going on with transformers' default {place} config and random weights"
            return CONFIG_MAPPING[place], "", {}, remark
        raise ShapetraceError(
            error.message, f"give a folder or a config.json, or a model type ({suggest(place, CONFIG_MAPPING)})"
        ) from None


def _read_fields(file: Path) -> tuple[Any, str, dict[str, Any]]:
    from transformers import CONFIG_MAPPING

    if not file.is_file():
        raise ShapetraceError(f"there is no config file `{file}`", _EXAMPLE)
    try:
        fields = json.loads(file.read_text())
    except (ValueError, OSError) as error:
        raise ShapetraceError(f"`{file}` is no JSON file: {error}", _EXAMPLE) from None
    if not isinstance(fields, dict) or "model_type" not in fields:
        raise ShapetraceError(
            f"`{file}` does not say which kind of model it is of", 'give it a "model_type", such as "llama"'
        )
    kind = fields.pop("model_type")
    if not isinstance(kind, str) or kind not in CONFIG_MAPPING:
        raise ShapetraceError(f"`{file}` has model_type {kind!r}", suggest(str(kind), CONFIG_MAPPING))
    return CONFIG_MAPPING[kind], str(file), fields


def _make_config(cls: Any, fields: dict[str, Any], problem: str) -> Any:
    try:
        return cls.from_dict(copy.deepcopy(fields))
    except Exception as error:  # configs check what they are given, each in its own way
        raise ShapetraceError(f"{problem}: {_reason(error)}", "mend that field") from None


def _own_fields(config: Any) -> dict[str, Any]:
    """What a part of a config has that it would not have by default."""
    if not hasattr(config, "to_dict"):
        return {}
    default = type(config)().to_dict()
    own = {key: value for key, value in config.to_dict().items() if key not in default or default[key] != value}
    return {"model_type": config.model_type, **own}


def _build(config: Any) -> nn.Module:
    """The model that the config's `architectures` names, else the language model of its kind; in eval mode."""
    import transformers

    cls = next((getattr(transformers, name, None) for name in config.architectures or ()), None)
    for mapping, is_meant in _MAPPINGS:
        if cls is None and is_meant(config) and type(config) in getattr(transformers, mapping, ()):
            cls = getattr(transformers, mapping)[type(config)]
    if cls is None:
        raise ShapetraceError(f"transformers has no model for {type(config).__name__}", _EXAMPLE)
    cls = cls[0] if isinstance(cls, tuple) else cls
    try:
        model: nn.Module = cls._from_config(config)
        return model.eval()
    except Exception as error:
        sizes = "its sizes may not go together, such as a width that is no multiple of the heads"
        raise ShapetraceError(f"{cls.__name__} cannot be built: {_reason(error)}", sizes) from error


def _check_memory(model: nn.Module) -> None:
    """Raise WeightsError before the machine runs out of memory."""
    needed = sum(each.numel() * each.element_size() for each in model.parameters())
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # not Linux
        return
    if needed > max(free, total * 3 // 4):
        raise WeightsError(
            f"{needed:,} bytes of weights do not fit into memory",
            "see the shapes with `--meta`, or make it smaller, such as 'hf:llama?num_hidden_layers=2&hidden_size=64'",
        )


@contextlib.contextmanager
def _loading_errors(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise WeightsError(f"{what} cannot be loaded: {_reason(error)}", "use `--weights random`") from error


@contextlib.contextmanager
def _bars_on_terminals_only() -> Iterator[None]:
    """transformers draws its progress wherever standard error goes."""
    from transformers.utils import logging

    were_on = logging.is_progress_bar_enabled()
    if not sys.stderr.isatty():
        logging.disable_progress_bar()  # type: ignore[no-untyped-call] # transformers has no types there
    try:
        yield
    finally:
        if were_on:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call] # as above


def _read_value(text: str) -> Any:
    """`2`, `1e-5`, `true`, `[1, 2]`; else the text itself."""
    words = {"true": True, "false": False, "none": None, "null": None}
    if text.lower() in words:
        return words[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _reason(error: Exception) -> str:
    """On one line, and no longer than one reads."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text if len(text) <= _READABLE else text[:_READABLE] + ' ...'}"
