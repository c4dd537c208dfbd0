"""Let a language model continue a text, one token at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from shapetrace.continuation import Candidate, Logits, Step, Vector
from shapetrace.errors import ShapetraceError
from shapetrace.inputs import Inputs
from shapetrace.recorder.leaves import walk_leaves
from shapetrace.target import Target
from shapetrace.target.context import context_of
from shapetrace.target.seeding import seeded
from shapetrace.target.vocabulary import vocabulary_of
from shapetrace.tokens import TextStream, choose_tokenizer, words_of

_SHOWN = 5  # candidates, and entries of a vector


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen: P(i) = exp(z_i / temperature) / sum_j exp(z_j / temperature).

    temperature: 0 is greedy, the likeliest token. top_k: only so many of the likeliest are kept; None: all.
    """

    temperature: float = 1.0
    top_k: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Raises ShapetraceError for what is no temperature and no number of tokens."""
        if not 0 <= self.temperature < math.inf:
            raise ShapetraceError(f"a temperature is a number from 0 up, not {self.temperature}", "0 is greedy")
        if self.top_k is not None and self.top_k < 1:
            raise ShapetraceError(f"top-k keeps at least 1 token, not {self.top_k}", "leave it out to keep all")


def generate(target: Target, inputs: Inputs, count: int, sampling: Sampling = Sampling()) -> Iterator[Step]:
    """So many tokens more than the inputs hold, fewer where the model ends the text; each as soon as it is there.

    Each is read from the logits at the last position of a forward of its own, which is given the last tokens that fit
    into the model's context. The same seed makes the same text, and nothing else that draws random numbers notices.
    Raises ShapetraceError for fewer than one token, inputs without tokens, a model that raises, or returns no logits.
    """
    if count < 1:
        raise ShapetraceError(f"a text goes on by 1 token at least, not {count}", "ask for more")
    if inputs.given is None:
        raise ShapetraceError(f"{target.name} takes no token ids, so it continues no text", "give a language model")
    return _generate(target, inputs, count, sampling)


def _generate(target: Target, inputs: Inputs, count: int, sampling: Sampling) -> Iterator[Step]:
    assert inputs.given is not None
    vocabulary, context = vocabulary_of(target.model), context_of(target.model)
    speaker = _Speaker(inputs, vocabulary)
    generator = torch.Generator().manual_seed(sampling.seed)
    ids = list(inputs.given.ids)
    text = inputs.given.text or "".join(map(speaker.say, ids))
    for number in range(1, count + 1):
        read = ids[-context:] if context else ids
        logits, hidden = _run(target, inputs.with_tokens(read), vocabulary, sampling.seed + number)
        probabilities = _distribution(logits, sampling)
        chosen = _choose(probabilities, logits, sampling, generator)
        likeliest = torch.topk(probabilities, min(_SHOWN, int((probabilities > 0).sum()))).indices.tolist()
        candidates = [
            Candidate(index, word, float(logits[index]), float(probabilities[index]))
            for index, word in zip([*likeliest, chosen], speaker.words([*likeliest, chosen]), strict=True)
        ]
        ends = speaker.ends(chosen)
        is_last = ends or number == count
        new = ("" if ends else speaker.say(chosen)) + (speaker.finish() if is_last else "")
        text += new
        told = hidden, _describe(logits), tuple(candidates[:-1]), candidates[-1]
        yield Step(number, len(ids), len(read), *told, new, text, ends)
        if ends:
            return
        ids.append(chosen)


class _Speaker:
    """Token ids as text, whole characters at a time."""

    def __init__(self, inputs: Inputs, vocabulary: int | None):
        self._tokenizer = choose_tokenizer(vocabulary, inputs.tokenizer)
        self._vocabulary, self._chosen = vocabulary, inputs.tokenizer
        self._stream = TextStream()

    def words(self, ids: Iterable[int]) -> tuple[str, ...]:
        """Each id by itself."""
        return words_of(ids, self._vocabulary, self._chosen)

    def say(self, index: int) -> str:
        """What can be shown of it now; ids of a vocabulary that nobody knows stand for themselves."""
        if self._tokenizer is None or not self._tokenizer.knows(index):
            return f"{self._stream.end()}<id {index}>"
        return self._stream.add(self._tokenizer.bytes_of(index))

    def finish(self) -> str:
        """What was held back, now that nothing comes after it."""
        return self._stream.end()

    def ends(self, index: int) -> bool:
        """Whether the token ends a text: the one with which the next begins."""
        return self._tokenizer is not None and self._tokenizer.bos_id == index


def _run(target: Target, inputs: Inputs, vocabulary: int | None, seed: int) -> tuple[Tensor, Vector | None]:
    """The logits at the last position, (d_vocab), and what they are computed from."""
    try:
        with torch.no_grad(), seeded(seed % 2**63), _watching_the_head(target.model, vocabulary) as hidden:
            output = target.model(*inputs.args, **inputs.kwargs)
    except (Exception, SystemExit) as error:
        message = " ".join(str(error).split()) or "no message"
        raise ShapetraceError(
            f"{target.name} raised {type(error).__name__}: {message[:300]}", "`shapetrace run` shows where"
        ) from error
    logits = _find_logits(output, vocabulary)
    if logits is None:
        shapes = ", ".join(str(tuple(each.shape)) for _, each in walk_leaves("", output)) or type(output).__name__
        raise ShapetraceError(
            f"{target.name} returns no logits for its {vocabulary or 'unknown number of'} token ids, but {shapes}",
            "a language model returns (batch, posn, d_vocab), by itself or in a tuple such as (logits, loss)",
        )
    last = logits.detach().reshape(-1, logits.shape[-1])[-1].double()
    if last.isnan().any() or not last.max().isfinite():
        raise ShapetraceError(
            f"{target.name}'s logits hold {'nan' if last.isnan().any() else 'inf'}",
            "`shapetrace run --stats` shows where",
        )
    return last, hidden(len(last))


def _find_logits(output: Any, vocabulary: int | None) -> Tensor | None:
    """Of what was returned, the tensor that is called so, else the first with a score for each token id."""
    leaves = [(path, each) for path, each in walk_leaves("out", output) if each.is_floating_point() and each.ndim]
    named = [each for path, each in leaves if path.rpartition(".")[2] == "logits"]
    wide = [each for _, each in leaves if each.shape[-1] == vocabulary or vocabulary is None]
    return next(iter([*named, *wide]), None)


@contextmanager
def _watching_the_head(model: nn.Module, vocabulary: int | None) -> Iterator[Callable[[int], Vector | None]]:
    """Yields what tells the last hidden state, given how many logits there are.

    It is what went into the module that returned the logits, else what the last module returned, for the logits can be
    computed without one.
    """
    into: dict[str, Tensor] = {}
    out_of: dict[str, tuple[Tensor, Tensor | None]] = {}  # and what went in

    def hook(path: str) -> Callable[..., None]:
        def keep(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            if not isinstance(output, Tensor) or not output.is_floating_point() or not output.ndim:
                return
            given = args[0] if args and isinstance(args[0], Tensor) and args[0].is_floating_point() else None
            if output.shape[-1] == vocabulary and given is not None:
                into.clear()
                into[path] = given
            else:
                out_of.clear()
                out_of[path] = (output, given)

        return keep

    leaves = [(path, module) for path, module in model.named_modules() if path and not any(module.children())]
    handles = [nn.Module.register_forward_hook(module, hook(path)) for path, module in leaves]

    def tell(count: int) -> Vector | None:
        found = [(f"into {path}", each) for path, each in into.items()]
        for path, (output, given) in out_of.items():  # it may be the head, where the vocabulary is not known
            is_head = output.shape[-1] == count and given is not None
            found.append((f"into {path}", given) if is_head and given is not None else (f"out of {path}", output))
        return _summarise(*found[0]) if found else None

    try:
        yield tell
    finally:
        for handle in handles:
            handle.remove()


def _summarise(name: str, tensor: Tensor) -> Vector:
    last = tensor.detach().reshape(-1, tensor.shape[-1])[-1].double()
    return Vector(name, last.numel(), float(last.norm()), tuple(last[:_SHOWN].tolist()))


def _describe(logits: Tensor) -> Logits:
    finite = logits[logits.isfinite()]
    return Logits(logits.numel(), float(finite.min()), float(finite.max()), float(finite.mean()))


def _distribution(logits: Tensor, sampling: Sampling) -> Tensor:
    """The probability of each token id, (d_vocab), in float64; greedy: at temperature 1."""
    scaled = (logits - logits.max()) / (sampling.temperature or 1.0)
    if sampling.top_k is not None and sampling.top_k < len(scaled):
        kept = torch.topk(scaled, sampling.top_k).indices
        scaled = torch.full_like(scaled, -math.inf).index_copy(0, kept, scaled[kept])
    return scaled.softmax(-1)


def _choose(probabilities: Tensor, logits: Tensor, sampling: Sampling, generator: torch.Generator) -> int:
    if sampling.temperature == 0:
        return int(logits.argmax())
    return int(torch.multinomial(probabilities, 1, generator=generator))
