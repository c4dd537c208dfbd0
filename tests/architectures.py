"""Every architecture that transformers can build, small, with random weights and inputs on which it runs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from likely_inputs import likely_inputs, parts_of
from small_configs import make_small, sizes
from torch import Tensor, nn
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

KINDS = {
    "causal": modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    "masked": modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    "seq2seq": modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    "speech": modeling_auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES,
    "base": modeling_auto.MODEL_MAPPING_NAMES,
}
# What a configuration has to be told that its class does not say: with the default alone there is no such model.
NEEDED: dict[str, dict[str, Any]] = {
    "deepseek_v2": {"num_experts_per_tok": 2},
    "cohere_compass_text": {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 10000.0}}},
    "dbrx": {"attn_config": {"rope_theta": 10000.0, "clip_qkv": 8.0}},
    "esm": {"vocab_size": 128, "mask_token_id": 3, "pad_token_id": 1},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "num_layers": 2},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_hidden_layers": 2},
    "causal:reformer": {"is_decoder": True},
    "xmod": {"default_language": "en_XX"},
    "dots1": {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1},
}
LARGEST = 400_000_000  # parameters: as float32, 1.6 GB


@dataclass(frozen=True, slots=True)
class Architecture:
    """A class of transformers and the name of its configuration."""

    kind: str  # causal, masked, seq2seq, or base for those that have no such head
    name: str
    class_name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


def list_architectures() -> list[Architecture]:
    """Each with each of its language-model heads, or else, without one, the bare model."""
    found: dict[tuple[str, str], Architecture] = {}
    headed: set[str] = set()
    for kind, names in KINDS.items():
        for name, class_name in names.items():
            each = class_name if isinstance(class_name, str) else class_name[0]
            if kind != "base" or name not in headed:
                found.setdefault((name, each), Architecture(kind, name, each))
        headed |= set(names)
    return list(found.values())


@dataclass(slots=True)
class Subject:
    """A model that runs without us, with the inputs on which it does."""

    model: nn.Module
    inputs: dict[str, Any]

    @torch.no_grad()
    def run(self) -> list[Tensor]:
        torch.manual_seed(0)
        return list(tensors_in(self.model(**self.inputs)))

    @torch.no_grad()
    def outputs(self) -> dict[str, Tensor]:
        """The tensors that the model returns by a name."""
        torch.manual_seed(0)
        output = self.model(**self.inputs)
        return {k: v for k, v in output.items() if isinstance(v, Tensor)} if isinstance(output, dict) else {}


class Unbuildable(Exception):
    """It does not run without us either."""


def make_subject(architecture: Architecture) -> Subject:
    """The model and inputs that first work; raises Unbuildable with the reasons where none do."""
    needed = NEEDED.get(architecture.name, {}) | NEEDED.get(str(architecture), {})
    default = CONFIG_MAPPING[architecture.name](**needed)
    reasons: list[str] = []
    # Some cannot keep a cache of what their few layers are.
    for cache in ({}, {"use_cache": False}) if hasattr(default, "use_cache") else ({},):
        for size in sizes():
            try:
                model = build(architecture, make_small(default, size, **needed, **cache))
                return find_inputs(model)
            except Exception as error:
                reasons.append(in_short(error))
    raise Unbuildable("; ".join(dict.fromkeys(reasons)))


def find_inputs(model: nn.Module) -> Subject:
    """The model with the first inputs on which it runs."""
    reasons = []
    for inputs in likely_inputs(model):
        try:
            subject = Subject(model, inputs)
            subject.run()
            return subject
        except Exception as error:
            reasons.append(in_short(error))
    raise Unbuildable("; ".join(dict.fromkeys(reasons)) or "no inputs could be guessed that its forward takes")


def in_short(error: BaseException) -> str:
    """What went wrong at the bottom, on one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = " ".join((str(error) if isinstance(error, Unbuildable) else f"{type(error).__name__}: {error}").split())
    return text if len(text) < 200 else f"{text[:200]} ..."


def build(architecture: Architecture, config: transformers.PretrainedConfig) -> nn.Module:
    model_class = getattr(transformers, architecture.class_name)
    config = next((each for each in parts_of(config) if isinstance(each, model_class.config_class)), config)
    with torch.device("meta"):
        size = sum(each.numel() for each in model_class(config).parameters())
    if size > LARGEST:
        raise Unbuildable(f"{size:,} parameters")
    torch.manual_seed(0)
    try:
        model = model_class._from_config(config, attn_implementation="eager")
    except (ValueError, TypeError, AttributeError):
        model = model_class(config)
    return model.eval()


def tensors_in(value: Any, seen: set[int] | None = None) -> Iterator[Tensor]:
    """Every tensor that can be reached from the value, also inside caches and other objects."""
    seen = set() if seen is None else seen
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, str | bytes | int | float | type | nn.Module) or value is None or id(value) in seen:
        return
    else:
        seen.add(id(value))
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
        for each in (*inner, *(getattr(value, "__dict__", None) or {}).values()):
            yield from tensors_in(each, seen)
