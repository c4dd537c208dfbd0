"""One hypothesis: a definition that was edited, and what it would mean if yours were computed like that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from shapetrace.divergence.definitions import Definition
from shapetrace.divergence.values import Values
from shapetrace.gpt2.config import Config


@dataclass(frozen=True, slots=True)
class Edit:
    """`make` gives the edited definition, from a number that is still to be found where there are `starts` for it."""

    kind: str
    make: Callable[[float], Definition]
    words: Callable[[float], str]  # one sentence
    cost: int = 1  # of two edits that fit, the cheaper one is believed
    starts: tuple[float, ...] = ()
    tensor: str = ""  # the known tensor that is missing, too many or read instead
    besides: tuple[Definition, ...] = ()  # definitions that the same mistake edits too

    def definitions(self, number: float) -> dict[str, Definition]:
        """What holds in place of the right definitions, by name."""
        return {each.name: each for each in (self.make(number), *self.besides)}


@dataclass(frozen=True, slots=True)
class Site:
    """Where an edit is tried, and all that is known there."""

    definition: Definition
    values: Values
    config: Config
    zero: frozenset[str] = frozenset()  # parameters that are 0 on purpose: to leave them out changes nothing
    unloaded: Mapping[str, str] = field(default_factory=dict)  # by parameter: why yours holds something else
    # Your tensor that is to be explained, in the axes of the activation that it stands for, and which one that is.
    yours: Tensor | None = None
    target: str = ""
    ran: tuple[int, ...] = ()  # your blocks in the order in which they ran
    matched: frozenset[str] = frozenset()  # activations that yours has, and right

    @property
    def is_target(self) -> bool:
        """Whether yours stands for the definition's own activation, and not for one that comes of it."""
        return self.yours is not None and self.target == self.definition.name

    @property
    def layer(self) -> str:
        """`blocks.0`, or what the definition has instead."""
        return layer_of(self.definition.name)

    def others(self, shape: Sequence[int], broadcast: bool = False, far: bool = True) -> list[str]:
        """Known tensors of this shape, or that spread to it: of this layer first, then those from before it.

        far: also activations of the layers before the last one.
        """
        names = [each for each in self.values.names() if self._fits(each, tuple(shape), broadcast)]
        place = {name: index for index, name in enumerate(self.values.definitions)}
        here = place[self.definition.name]
        names = [each for each in names if place.get(each, -1) < here and each not in self.zero]
        own = [each for each in names if layer_of(each) == self.layer]
        if far:
            rest = [each for each in names if each in place and layer_of(each) != self.layer]
            return own + rest[::-1]
        last = [
            each for each in names if each in place and each.endswith(("resid_pre", "hook_embed", "hook_pos_embed"))
        ]
        return own + [each for each in last if each not in own]

    def _fits(self, name: str, shape: tuple[int, ...], broadcast: bool) -> bool:
        own = self.values.shape(name)
        return own == shape or (broadcast and name not in self.values.definitions and own == shape[-len(own) :] != ())


def fixed(
    kind: str, definition: Definition, words: str, cost: int = 1, tensor: str = "", besides: tuple[Definition, ...] = ()
) -> Edit:
    """An edit with nothing left to find."""
    return Edit(kind, lambda number: definition, lambda number: words, cost, (), tensor, besides)


def layer_of(name: str) -> str:
    """`blocks.0.attn.hook_q` -> `blocks.0`; `ln_final.w` -> `ln_final`; `hook_embed` -> ``."""
    parts = name.split(".")
    return ".".join(parts[:2]) if parts[0] == "blocks" else ".".join(parts[:-1])


def short(name: str) -> str:
    """blocks.0.attn.hook_q -> `q`; blocks.0.attn.b_K -> `b_K`; a LayerNorm's parts keep their module."""
    owner, _, last = name.rpartition(".")
    last = last.removeprefix("hook_")
    module = owner.rpartition(".")[2]
    if module in ("ln1", "ln2", "ln_final"):
        return f"the output of `{module}`" if last == "out" else f"`{module}.{last}`"
    return "the logits" if name == "unembed.hook_out" else f"`{last}`"


def named(name: str, beside: str) -> str:
    """The short name, with its layer where that is another one than that of the tensor beside it."""
    layer, other = (each.split(".")[1] if each.startswith("blocks.") else "" for each in (name, beside))
    return f"{short(name)} of block {layer}" if layer and layer != other else short(name)
