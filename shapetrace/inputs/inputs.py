"""The arguments of a model's forward: those that were given, and token ids where it takes some."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from shapetrace.errors import ShapetraceError
from shapetrace.inputs.described import make_value, split_name
from shapetrace.inputs.text import DEFAULT_TEXT, read_ids, tokenize
from shapetrace.tokens import VOCABULARY, decode_each
from shapetrace.trace import InputRecord

# What forwards call their token ids; the first parameter of a model with a vocabulary is taken for them in any case.
_TOKENS = ("input_ids", "idx", "tokens", "token_ids", "ids")
_PROBE = 7  # tokens where the default text does not fit


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for on the command line."""

    text: str | None = None
    ids: str | None = None
    described: tuple[str, ...] = ()
    bos: bool = True


@dataclass(frozen=True, slots=True)
class Inputs:
    """What the model is called with; `given` tells of the tokens among it."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    given: InputRecord | None = None

    @property
    def tokens(self) -> torch.Tensor | None:
        """The token ids, (batch, posn), where there are some."""
        return torch.tensor([self.given.ids]) if self.given else None


@dataclass(frozen=True, slots=True)
class Interface:
    """A model as its inputs see it."""

    name: str
    signature: inspect.Signature
    vocabulary: int | None
    context: int | None
    main: str = ""  # what the model itself says of which argument is the main one
    example: str = "float32[1,7]"

    @classmethod
    def of(cls, name: str, model: nn.Module, vocabulary: int | None, context: int | None = None) -> Interface:
        main = str(getattr(model, "main_input_name", ""))
        return cls(name, _signature_of(model), vocabulary, context, main, _example_for(model))

    @property
    def token_name(self) -> str | None:
        """The parameter that takes token ids; None where the model takes none."""
        parameters = [each for each in self.signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        names = [each.name for each in parameters]
        if self.vocabulary is None:
            return None
        if self.main:
            return self.main if self.main in _TOKENS and self.main in names else None
        return next((name for name in _TOKENS if name in names), names[0] if names else None)

    def written(self) -> str:
        return f"forward{self.signature.replace(return_annotation=inspect.Signature.empty)}"


def gather_inputs(
    name: str,
    model: nn.Module,
    asked: Asked,
    vocabulary: int | None,
    context: int | None = None,
    seed: int = 0,
    device: str = "cpu",
    note: Any = lambda text: None,
) -> Inputs:
    """The arguments for the model's forward.

    vocabulary, context: how many token ids the model has, and how many it takes at once; None where that is not known.
    Raises ShapetraceError for what describes no value, ids that are none of the model's, and where the forward needs
    more than was given.
    """
    face = Interface.of(name, model, vocabulary, context)
    generator = torch.Generator().manual_seed(seed)
    pairs = [split_name(each) for each in asked.described]
    values = [(key, make_value(text, vocabulary, generator, device)) for key, text in pairs]
    args = tuple(value for key, value in values if not key)
    kwargs = {key: value for key, value in values if key}
    bound = _bind(face, args, kwargs)
    given = None
    slot = face.token_name or (_first_free(face, bound) if asked.ids is not None else None)
    if slot is None and asked.text is not None:
        raise ShapetraceError(
            f"{name} takes no token ids, as far as its config and its layers tell, so it cannot be given a text",
            f"give `--ids 1,2,3` if it does, or say what it takes: --input {_call_for(face, bound)}",
        )
    if slot is not None and slot in bound.arguments and (asked.text is not None or asked.ids is not None):
        raise ShapetraceError(f"`{slot}` is given twice, as tokens and by `--input`", "leave one of them out")
    if slot is not None and slot not in bound.arguments:
        given = _tokens(face, asked, generator, note)
        tokens = torch.tensor([given.ids], device=device)
        if args or face.signature.parameters[slot].kind is inspect.Parameter.KEYWORD_ONLY or slot != _first(face):
            kwargs[slot] = tokens
        else:
            args = (tokens,)
        config = getattr(model, "config", None)
        takes_more = getattr(config, "is_encoder_decoder", False) and "decoder_input_ids" in face.signature.parameters
        if takes_more and "decoder_input_ids" not in kwargs:
            kwargs["decoder_input_ids"] = tokens.clone()
            note("the decoder is given the same tokens as the encoder; others with --input decoder_input_ids=...")
    bound = _bind(face, args, kwargs)
    missing = _missing(face, bound)
    if missing:
        raise ShapetraceError(
            f"{name} needs {', '.join(f'`{each}`' for each in missing)}: {face.written()}",
            f"describe it, such as --input {_call_for(face, bound)}",
        )
    return Inputs(args, kwargs, given)


def _tokens(face: Interface, asked: Asked, generator: torch.Generator, note: Any) -> InputRecord:
    if asked.text is not None and asked.ids is not None:
        raise ShapetraceError("a text and `--ids` are two inputs for one argument", "leave one of them out")
    if asked.ids is not None:
        ids = read_ids(asked.ids, face.name, face.vocabulary)
        return _record(face, ids)
    try:
        text = DEFAULT_TEXT if asked.text is None else asked.text
        return tokenize(text, face.name, face.vocabulary, face.context, asked.bos)
    except ShapetraceError:
        if asked.text is not None or face.context is not None or not face.vocabulary:
            raise
    ids = tuple(torch.randint(face.vocabulary, (_PROBE,), generator=generator).tolist())
    note(f"{face.name} has {face.vocabulary:,} token ids, too few for GPT-2's tokenizer: running {_PROBE} random ids")
    return _record(face, ids)


def _record(face: Interface, ids: tuple[int, ...]) -> InputRecord:
    """Ids without a text: what they stand for is known where the model has GPT-2's tokens."""
    is_gpt2 = face.vocabulary in (None, VOCABULARY)
    return InputRecord("", ids, decode_each(ids) if is_gpt2 else tuple(f"<id {each}>" for each in ids))


def _signature_of(model: nn.Module) -> inspect.Signature:
    try:
        return inspect.signature(model.forward)
    except (TypeError, ValueError):  # written in C, or scripted
        every = inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)
        return inspect.Signature([every, inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD)])


def _bind(face: Interface, args: tuple[Any, ...], kwargs: dict[str, Any]) -> inspect.BoundArguments:
    try:
        return face.signature.bind_partial(*args, **kwargs)
    except TypeError as error:
        raise ShapetraceError(
            f"{face.name} does not take these inputs: {error}; its signature is {face.written()}",
            "name what it takes: --input NAME=float32[1,7]",
        ) from None


def _missing(face: Interface, bound: inspect.BoundArguments) -> list[str]:
    """The parameters without a default that were not given."""
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [
        each.name
        for each in face.signature.parameters.values()
        if each.default is each.empty and each.kind not in variable and each.name not in bound.arguments
    ]


def _first(face: Interface) -> str | None:
    return next(iter(face.signature.parameters), None)


def _first_free(face: Interface, bound: inspect.BoundArguments) -> str | None:
    return next((name for name in face.signature.parameters if name not in bound.arguments), None)


def _call_for(face: Interface, bound: inspect.BoundArguments) -> str:
    """`x=float32[1,3,32,32]` for each parameter that is missing."""
    missing = _missing(face, bound) or [name for name in (_first_free(face, bound),) if name]
    return " --input ".join(f"{name}={face.example}" for name in missing) or face.example


def _example_for(model: nn.Module) -> str:
    """A shape that the first layer with parameters takes, as a guess for a message."""
    for module in model.modules():
        if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d):
            return f"float32[{','.join(map(str, (1, module.in_channels, *[32] * len(module.kernel_size))))}]"
        if isinstance(module, nn.Linear):
            return f"float32[1,{module.in_features}]"
        if isinstance(module, nn.RNNBase):
            return f"float32[1,7,{module.input_size}]"
        if isinstance(module, nn.Embedding):
            return f"int64[1,7]<{module.num_embeddings}"
    return "float32[1,7]"
