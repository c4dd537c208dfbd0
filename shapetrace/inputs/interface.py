"""A model as its inputs see it: what its forward takes, and which of that are token ids."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass

from torch import nn

from shapetrace.errors import ShapetraceError
from shapetrace.inputs.examples import example_for, example_of_main, first_layer
from shapetrace.signatures import write_signature

# What forwards call their token ids; the first parameter of a model with a vocabulary is taken for them as well, if it
# is not called like something else and no convolution comes first.
_TOKENS = ("input_ids", "idx", "tokens", "token_ids", "ids")
_NO_TOKENS = re.compile(
    r"im(g|age)|pixel|pic|video|frame|audio|wav|spec|mel|sound|speech|feat|latent|nois|point|coord", re.I
)
DECODER = "decoder_input_ids"
_INSTEAD = {"inputs_embeds", "encoder_outputs"}  # what transformers takes in place of its main input
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass(frozen=True, slots=True)
class Interface:
    """A model as its inputs see it."""

    name: str
    signature: inspect.Signature
    vocabulary: int | None
    context: int | None
    main: str = ""  # what the model itself says of which argument is the main one
    is_encoder_decoder: bool = False
    starts_with_conv: bool = False
    example: str = "float32[1,7]"
    main_example: str = "float32[1,7]"

    @classmethod
    def of(cls, name: str, model: nn.Module, vocabulary: int | None, context: int | None = None) -> Interface:
        """Raises ShapetraceError for a module that has no forward."""
        if getattr(model.forward, "__func__", None) is nn.Module.forward:
            raise ShapetraceError(
                f"{name} is {type(model).__name__}, which has no forward, so that it cannot be called",
                "define `def forward(self, ...)`, or name a module that has one",
            )
        main = str(getattr(model, "main_input_name", ""))
        return cls(
            name,
            _signature_of(model),
            vocabulary,
            context,
            main,
            bool(getattr(getattr(model, "config", None), "is_encoder_decoder", False)),
            isinstance(first_layer(model), _CONVOLUTIONS),
            example_for(model),
            example_of_main(model, main),
        )

    @property
    def token_name(self) -> str | None:
        """The parameter that takes token ids; None where the model takes none."""
        parameters = [each for each in self.signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        names = [each.name for each in parameters]
        if self.vocabulary is None:
            return None
        if self.main:
            # Where an encoder takes something else, such as sound, the decoder takes the tokens.
            main = DECODER if self.main not in _TOKENS and self.is_encoder_decoder else self.main
            return main if main in (*_TOKENS, DECODER) and main in names else None
        first = names[0] if names and not self.starts_with_conv and not _NO_TOKENS.match(names[0]) else None
        return next((name for name in _TOKENS if name in names), first)

    def missing(self, bound: inspect.BoundArguments) -> list[str]:
        """The parameters that were not given, and without which there is nothing to run on."""
        variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        needed = [
            each.name
            for each in self.signature.parameters.values()
            if each.default is each.empty and each.kind not in variable
        ]
        # transformers gives its main input a default, None, with which it does not run.
        if self.main in self.signature.parameters and not _INSTEAD & set(bound.arguments):
            needed.insert(0, self.main)
        return [name for name in dict.fromkeys(needed) if name not in bound.arguments]

    def first_free(self, bound: inspect.BoundArguments) -> str | None:
        """The first parameter that was not given."""
        return next((name for name in self.signature.parameters if name not in bound.arguments), None)

    def call_for(self, bound: inspect.BoundArguments) -> str:
        """`x=float32[1,3,32,32]` for each parameter that is missing."""
        missing = self.missing(bound) or [name for name in (self.first_free(bound),) if name]
        examples = [f"{name}={self.main_example if name == self.main else self.example}" for name in missing]
        return " --input ".join(examples) or self.example

    def written(self) -> str:
        return f"forward{write_signature(self.signature)}"


def _signature_of(model: nn.Module) -> inspect.Signature:
    try:
        return inspect.signature(model.forward)
    except (TypeError, ValueError):  # written in C, or scripted
        every = inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL)
        return inspect.Signature([every, inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD)])
