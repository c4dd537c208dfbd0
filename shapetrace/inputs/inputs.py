"""The arguments of a model's forward: those that were given, and token ids where it takes some."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from shapetrace.errors import ShapetraceError
from shapetrace.inputs.described import make_value, split_name
from shapetrace.inputs.interface import DECODER, Interface
from shapetrace.inputs.text import tokenize
from shapetrace.tokens import Tokenizer, load_gpt2, read_ids, words_of
from shapetrace.tokens.text import DEFAULT_TEXT
from shapetrace.trace import InputRecord

_PROBE = 7  # tokens where the default text does not fit


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for on the command line."""

    text: str | None = None
    ids: str | None = None
    described: tuple[str, ...] | None = ()  # None: by a command that takes tokens alone
    bos: bool = True
    tokenizer: Tokenizer | None = None  # None: GPT-2's


@dataclass(frozen=True, slots=True)
class Inputs:
    """What the model is called with; `given` tells of the tokens among it."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    given: InputRecord | None = None
    tokenizer: Tokenizer | None = None  # that of the tokens, where it is not GPT-2's
    place: int | str = 0  # the argument that a continuation is added to, by its position or its name

    @property
    def tokens(self) -> torch.Tensor | None:
        """The token ids, (batch, posn), where there are some."""
        return torch.tensor([self.given.ids]) if self.given else None

    def with_tokens(self, ids: Sequence[int]) -> Inputs:
        """The same with other token ids: those that the text is continued by; an encoder goes on with its own."""
        before = self.kwargs[self.place] if isinstance(self.place, str) else self.args[self.place]
        tokens = torch.tensor([list(ids)], device=before.device)
        if isinstance(self.place, str):
            return replace(self, kwargs={**self.kwargs, self.place: tokens})
        return replace(self, args=(*self.args[: self.place], tokens, *self.args[self.place + 1 :]))

    def to(self, device: torch.device | None, dtype: torch.dtype | None) -> Inputs:
        """The same on that device, with the floating-point tensors in that dtype; None: as they are."""

        def move(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            return value.to(device=device, dtype=dtype if value.is_floating_point() else None)

        args, kwargs = tuple(map(move, self.args)), {key: move(value) for key, value in self.kwargs.items()}
        return replace(self, args=args, kwargs=kwargs)


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
    values = [(split_name(each)[0], make_value(each, vocabulary, generator, device)) for each in asked.described or ()]
    twice = [name for name, count in Counter(name for name, _ in values if name).items() if count > 1]
    if twice:
        raise ShapetraceError(f"`{twice[0]}` is given twice by `--input`", "leave one of them out")
    args = tuple(value for key, value in values if not key)
    kwargs = {key: value for key, value in values if key}
    bound = _bind(face, args, kwargs)
    given = None
    place: int | str = 0
    slot = face.token_name or (face.first_free(bound) if asked.ids is not None else None)
    if slot is None and asked.text is not None:
        raise ShapetraceError(
            f"{name} takes no token ids, as far as its config and its layers tell, so it cannot be given a text",
            "give `--ids 1,2,3` if it does"
            + ("" if asked.described is None else f", or say what it takes: --input {face.call_for(bound)}"),
        )
    if slot is not None and slot in bound.arguments and (asked.text is not None or asked.ids is not None):
        raise ShapetraceError(f"`{slot}` is given twice, as tokens and by `--input`", "leave one of them out")
    if slot is not None and slot not in bound.arguments and "inputs_embeds" not in bound.arguments:
        given = _tokens(face, asked, generator, note)
        tokens = torch.tensor([given.ids], device=device)
        if args or face.signature.parameters[slot].kind is inspect.Parameter.KEYWORD_ONLY or slot != _first(face):
            kwargs[slot], place = tokens, slot
        else:
            args = (tokens,)
        if face.is_encoder_decoder and DECODER in face.signature.parameters and DECODER not in kwargs:
            kwargs[DECODER], place = tokens.clone(), DECODER
            note("the decoder is given the same tokens as the encoder; others with --input decoder_input_ids=...")
    bound = _bind(face, args, kwargs)
    for name_of in kwargs.keys() - face.signature.parameters.keys():
        note(f"no argument of {name}'s forward is called `{name_of}`: it goes to its **kwargs")
    missing = face.missing(bound)
    if missing:
        raise ShapetraceError(
            f"{name} needs {', '.join(f'`{each}`' for each in missing)}: {face.written()}",
            "give a model that takes token ids alone"
            if asked.described is None
            else f"describe it, such as --input {face.call_for(bound)}",
        )
    return Inputs(args, kwargs, given, asked.tokenizer, place)


def _tokens(face: Interface, asked: Asked, generator: torch.Generator, note: Any) -> InputRecord:
    if asked.text is not None and asked.ids is not None:
        raise ShapetraceError("a text and `--ids` are two inputs for one argument", "leave one of them out")
    if asked.ids is not None:
        ids = read_ids(asked.ids, face.name, face.vocabulary)
        return _record(face, ids, asked.tokenizer)
    try:
        text = DEFAULT_TEXT if asked.text is None else asked.text
        return tokenize(text, face.name, face.vocabulary, face.context, asked.bos, asked.tokenizer)
    except ShapetraceError:
        if asked.text is not None or face.context is not None or not face.vocabulary:
            raise
    ids = tuple(torch.randint(face.vocabulary, (_PROBE,), generator=generator).tolist())
    tokenizer = (asked.tokenizer or load_gpt2()).name
    note(f"{face.name} has {face.vocabulary:,} token ids, too few for {tokenizer}: running {_PROBE} random ids")
    return _record(face, ids, asked.tokenizer)


def _record(face: Interface, ids: tuple[int, ...], tokenizer: Tokenizer | None) -> InputRecord:
    """Ids without a text."""
    return InputRecord("", ids, words_of(ids, face.vocabulary, tokenizer))


def _bind(face: Interface, args: tuple[Any, ...], kwargs: dict[str, Any]) -> inspect.BoundArguments:
    try:
        return face.signature.bind_partial(*args, **kwargs)
    except TypeError as error:
        raise ShapetraceError(
            f"{face.name} does not take these inputs: {error}; its signature is {face.written()}",
            "name what it takes: --input NAME=float32[1,7]",
        ) from None


def _first(face: Interface) -> str | None:
    return next(iter(face.signature.parameters), None)
