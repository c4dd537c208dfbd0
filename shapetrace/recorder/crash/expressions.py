"""What the parts of a failing expression were: names are looked up, and what was computed is computed again.

None of the user's code runs a second time, nothing is drawn and nothing changed: only functions of torch and einops
that compute from tensors are called again, with shapes on the meta device in place of the tensors.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import math
import operator
import re
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

import einops
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shapetrace.recorder.crash.shadow import Outputs, Shadow


class Unknown(Exception):
    """A part that cannot be told without running the user's code."""


_OPERATORS: dict[type, Callable[..., Any]] = {
    **{ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv},
    **{ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.MatMult: operator.matmul},
    **{ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.USub: operator.neg, ast.Invert: operator.invert},
    **{ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge},
    **{ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Not: operator.not_},
}
_BUILTINS = (len, int, float, bool, str, max, min, sum, abs, round, range, tuple, list, slice)
_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...), slice, range, torch.Size)
_PLAIN_TORCH = (torch.dtype, torch.device, torch.layout)
_PROPERTIES = ("shape", "T", "mT", "H", "mH", "ndim", "dtype", "device", "data", "real", "imag")
# Functions that make a tensor out of numbers; any other has to take one, or it may do anything.
_FACTORIES = ("zeros", "ones", "full", "empty", "eye", "arange", "linspace", "tensor", "scalar_tensor")
_DRAWING = re.compile(r"(^|_)(rand\w*|bernoulli|multinomial|normal|dropout\w*|poisson|seed|sample)(_|$)")
_LARGEST = 1_000_000  # entries, where values are computed and not only shapes


class Expressions:
    """The values of expressions in one frame; `outputs` are what modules returned."""

    def __init__(self, frame: FrameType, outputs: Outputs):
        self._local = frame.f_locals
        self._global = frame.f_globals
        self._outputs = outputs
        self._devices: dict[int, tuple[Tensor, str]] = {}

    def value_of(self, node: ast.AST) -> Any:
        """The value, a tensor that was computed on the way as one on the meta device; raises Unknown."""
        try:
            return self._evaluate(node)
        except Unknown:
            raise
        except Exception as error:
            raise Unknown from error

    def device_of(self, tensor: Tensor) -> str:
        """Where the tensor was: one that was computed again stands for one on its operands' device."""
        known = self._devices.get(id(tensor))
        return known[1] if known else tensor.device.type

    def _evaluate(self, node: ast.AST) -> Any:
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return self._name(node.id)
            case ast.Attribute():
                return self._attribute(self._evaluate(node.value), node.attr)
            case ast.Tuple() | ast.List():
                return tuple(self._evaluate(each) for each in node.elts)
            case ast.UnaryOp():
                return self._compute(_OPERATORS[type(node.op)], self._evaluate(node.operand))
            case ast.BinOp():
                left, right = self._evaluate(node.left), self._evaluate(node.right)
                return self._compute(_OPERATORS[type(node.op)], left, right)
            case ast.Compare() if len(node.ops) == 1:
                left, right = self._evaluate(node.left), self._evaluate(node.comparators[0])
                return self._compute(_OPERATORS[type(node.ops[0])], left, right)
            case ast.Slice():
                parts = (node.lower, node.upper, node.step)
                return slice(*(None if each is None else self._evaluate(each) for each in parts))
            case ast.Subscript():
                return self._item(self._evaluate(node.value), self._evaluate(node.slice))
            case ast.JoinedStr():
                return "".join(self._text(each) for each in node.values)
            case ast.Starred():
                return self._evaluate(node.value)
            case ast.Call():
                return self._call(node)
        raise Unknown

    def _name(self, name: str) -> Any:
        for names in (self._local, self._global, vars(builtins)):
            if name in names:
                return names[name]
        raise Unknown

    def _text(self, node: ast.AST) -> str:
        value = self._evaluate(node.value if isinstance(node, ast.FormattedValue) else node)
        if not isinstance(value, str | int | float):
            raise Unknown
        return str(value)

    def _attribute(self, owner: Any, name: str) -> Any:
        if isinstance(owner, Tensor):
            if name not in _PROPERTIES:
                raise Unknown
            if name == "device":
                return torch.device(self.device_of(owner))
            return self._compute(lambda tensor: getattr(tensor, name), owner)
        if isinstance(owner, nn.Module):
            for store in (owner._parameters, owner._buffers, owner._modules):
                if name in store:
                    return store[name]
        if isinstance(owner, ModuleType):
            return vars(owner)[name]
        found = inspect.getattr_static(owner, name)
        if isinstance(found, property | classmethod | staticmethod) or inspect.isfunction(found):
            raise Unknown
        return found.__get__(owner) if inspect.ismemberdescriptor(found) else found

    def _item(self, owner: Any, key: Any) -> Any:
        if isinstance(owner, Tensor):
            return self._compute(lambda tensor, index: tensor[index], owner, key)
        if type(owner) in (tuple, list, dict, torch.Size, str) or isinstance(owner, nn.ModuleList | nn.ModuleDict):
            return owner[key]
        raise Unknown

    def _call(self, node: ast.Call) -> Any:
        if isinstance(node.func, ast.Attribute):
            owner = self._known(node.func.value)
            if isinstance(owner, Tensor):
                return self._call_method(owner, node.func.attr, node)
        function = self._evaluate(node.func)
        if isinstance(function, nn.Module):
            return self._raise_again(self._outputs.of(function))
        if function in _BUILTINS:
            args, kwargs = self.arguments_of(node)
            return self._compute_plainly(function, *args, **kwargs)
        if not is_library(function) or _DRAWING.search(function.__name__):
            raise Unknown
        args, kwargs = self.arguments_of(node)
        if function.__name__ in _FACTORIES and not _tensors_in((*args, *kwargs.values())):
            return self._make(function, args, kwargs)
        return self._compute(function, *args, **kwargs)

    def _call_method(self, owner: Tensor, name: str, node: ast.Call) -> Any:
        if name.endswith("_") or _DRAWING.search(name) or not hasattr(torch._C.TensorBase, name):
            raise Unknown
        args, kwargs = self.arguments_of(node)
        return self._compute(getattr(torch.Tensor, name), owner, *args, **kwargs)

    def arguments_of(self, node: ast.Call) -> tuple[list[Any], dict[str, Any]]:
        """The values of a call's arguments; raises Unknown."""
        args: list[Any] = []
        for each in node.args:
            value = self.value_of(each)
            args += value if isinstance(each, ast.Starred) else [value]
        return args, {each.arg: self.value_of(each.value) for each in node.keywords if each.arg}

    def _known(self, node: ast.AST) -> Any:
        try:
            return self.value_of(node)
        except Unknown:
            return None

    def _make(self, function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Tensor:
        """What a factory made: whole numbers with their values, where they are few, else its shape."""
        device = torch.device(kwargs.pop("device", None) or "cpu").type
        shape: Tensor = self._compute_plainly(function, *args, **kwargs, device="meta")
        valued = function.__name__ in ("arange", "tensor") and shape.numel() <= _LARGEST
        made: Tensor = function(*args, **kwargs, device="cpu") if valued else shape
        self._devices[id(made)] = (made, device)
        return made

    def _compute_plainly(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """The function of numbers, texts and tuples of them; raises Unknown for anything else."""
        if not all(map(_is_plain, (*args, *kwargs.values()))):
            raise Unknown
        return function(*args, **kwargs)

    @torch.no_grad()
    def _compute(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """The function of these, with each tensor as its shape only."""
        tensors = _tensors_in((*args, *kwargs.values()))
        if not tensors:
            return self._compute_plainly(function, *args, **kwargs)
        if kwargs.get("out") is not None or not all(map(_is_plain, (*args, *kwargs.values()))):
            raise Unknown
        if all(map(_is_small_and_whole, tensors)):
            return self._place(function(*args, **kwargs), tensors)  # of ids and positions the values matter
        kwargs = {key: _as_meta(each) for key, each in kwargs.items()}
        return self._place(function(*map(_as_meta, args), **kwargs), tensors)

    def _place(self, result: Any, operands: list[Tensor]) -> Any:
        """Note where the result would be. A scalar may lie elsewhere, and what meets a tensor on meta ends there."""
        devices = [self.device_of(each) for each in operands if each.ndim] or [self.device_of(operands[0])]
        for each in _tensors_in((result,)):
            self._devices[id(each)] = (each, "meta" if "meta" in devices else devices[0])
        return result

    def _raise_again(self, shadow: Any) -> Any:
        """A module's output as tensors on the meta device; raises Unknown where it is not known."""
        if isinstance(shadow, Shadow):
            tensor = torch.empty(shadow.shape, dtype=shadow.dtype, device="meta")
            self._devices[id(tensor)] = (tensor, shadow.device.type)
            return tensor
        if isinstance(shadow, tuple):
            return tuple(self._raise_again(each) if each is not None else None for each in shadow)
        raise Unknown


def is_library(function: Any) -> bool:
    """Whether a function is one of those that compute from tensors and change none: torch's own, and einops'."""
    name = getattr(function, "__name__", "")
    if name.endswith("_") or not inspect.isroutine(function):
        return False
    homes = (torch, F, torch.linalg, torch.fft, torch.special, einops, math)
    return any(vars(home).get(name) is function for home in homes) and not _steers(name)


def _steers(name: str) -> bool:
    """Of torch's functions those that set something, read or write files, or run what they are given."""
    return name.startswith(("set_", "use_", "save", "load", "compile", "vmap", "cond", "manual_", "initial_", "from_"))


def _is_plain(value: Any) -> bool:
    """No object of the user's, whose operators would be his code; a tensor of torch's own class."""
    if isinstance(value, tuple | list) and type(value) in (tuple, list):
        return all(map(_is_plain, value))
    return type(value) in (*_PLAIN, Tensor, nn.Parameter) or isinstance(value, _PLAIN_TORCH)


def _tensors_in(values: tuple[Any, ...]) -> list[Tensor]:
    found = []
    for each in values:
        if isinstance(each, Tensor):
            found.append(each)
        elif isinstance(each, tuple | list):
            found += _tensors_in(tuple(each))
    return found


def _is_small_and_whole(tensor: Tensor) -> bool:
    is_whole = not (tensor.is_floating_point() or tensor.is_complex())
    return is_whole and not tensor.is_meta and tensor.numel() <= _LARGEST


def _as_meta(value: Any) -> Any:
    if isinstance(value, tuple | list) and not isinstance(value, torch.Size):
        return [_as_meta(each) for each in value] if isinstance(value, list) else tuple(map(_as_meta, value))
    if not isinstance(value, Tensor) or value.is_meta:
        return value
    if value.layout != torch.strided or value.is_nested or value.is_quantized:
        raise Unknown
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
