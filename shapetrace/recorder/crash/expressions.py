"""What the parts of a failing expression were: names are looked up, and what was computed is computed again.

Nothing of the user's runs a second time, and no value is touched: tensors are computed with as shapes only.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import math
import operator
from collections.abc import Callable, Mapping
from types import FrameType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from shapetrace.recorder.crash.shadow import Shadow


class Unknown(Exception):
    """A part that cannot be told without running the user's code."""


_OPERATORS: dict[type, Callable[..., Any]] = {
    **{ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv},
    **{ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.MatMult: operator.matmul},
    **{ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.USub: operator.neg, ast.Invert: operator.invert},
    **{ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge},
    **{ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Not: operator.not_},
}
_BUILTINS = {len, int, float, bool, str, max, min, sum, abs, round, range, tuple, list, slice}
_PROPERTIES = ("shape", "T", "mT", "H", "mH", "ndim", "dtype", "device", "data", "real", "imag")
_LARGEST_RANGE = 10_000
_LARGEST_IDS = 1_000_000
_RANDOM = ("rand", "bernoulli", "multinomial", "normal", "dropout", "poisson")


class Expressions:
    """The values of expressions in one frame; `outputs` are what modules returned last, by the module's id."""

    def __init__(self, frame: FrameType, outputs: Mapping[int, Any]):
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
            return self._compute(lambda tensor: getattr(tensor, name), owner)
        if isinstance(owner, nn.Module):
            for store in (owner._parameters, owner._buffers, owner._modules):
                if name in store:
                    return store[name]
        if isinstance(owner, ModuleType):
            return getattr(owner, name)
        found = inspect.getattr_static(owner, name)
        if isinstance(found, property | classmethod | staticmethod) or inspect.isfunction(found):
            raise Unknown
        return getattr(owner, name) if inspect.ismemberdescriptor(found) else found

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
                name = node.func.attr
                if name.endswith("_") or not hasattr(torch._C.TensorBase, name):
                    raise Unknown
                args, kwargs = self.arguments_of(node)
                return self._compute(getattr(torch.Tensor, name), owner, *args, **kwargs)
        function = self._evaluate(node.func)
        if isinstance(function, nn.Module):
            return self._raise_again(self._outputs.get(id(function)))
        args, kwargs = self.arguments_of(node)
        if any(isinstance(each, range) and len(each) > _LARGEST_RANGE for each in args):
            raise Unknown
        if not (is_library(function) or (function in _BUILTINS and not any(map(is_tensor, args)))):
            raise Unknown
        return self._compute(function, *args, **kwargs)

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

    @torch.no_grad()
    def _compute(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """The function of these, with each tensor as its shape only."""
        tensors = _tensors_in((*args, *kwargs.values()))
        if getattr(function, "__name__", "").startswith(_RANDOM):
            raise Unknown  # to draw again would change what comes after
        if all(map(_is_small_and_whole, tensors)):
            return function(*args, **kwargs)  # of ids and positions the values matter
        result = function(*map(_as_meta, args), **{key: _as_meta(each) for key, each in kwargs.items()})
        # A scalar may lie elsewhere, and what meets a tensor on meta ends there.
        devices = [self.device_of(each) for each in tensors if each.ndim] or [self.device_of(tensors[0])]
        for each in _tensors_in((result,)):
            self._devices[id(each)] = (each, "meta" if "meta" in devices else devices[0])
        return result

    def _raise_again(self, shadow: Any) -> Any:
        """A module's output as tensors on the meta device; raises Unknown where it was none."""
        if isinstance(shadow, Shadow):
            tensor = torch.empty(shadow.shape, dtype=shadow.dtype, device="meta")
            self._devices[id(tensor)] = (tensor, shadow.device.type)
            return tensor
        if isinstance(shadow, tuple):
            return tuple(self._raise_again(each) if each is not None else None for each in shadow)
        raise Unknown


def is_library(function: Any) -> bool:
    """Whether a function is torch's or einops', which compute and change nothing; torch's own modules are not meant."""
    name = getattr(function, "__module__", None) or type(function).__module__
    root = str(name).partition(".")[0]
    builtin = inspect.isbuiltin(function) and root in ("torch", "math", "torch._C._nn", "")
    return builtin or (root in ("torch", "einops", "math") and inspect.isroutine(function)) or function is math.sqrt


def is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


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
    return is_whole and not tensor.is_meta and tensor.numel() <= _LARGEST_IDS


def _as_meta(value: Any) -> Any:
    if isinstance(value, tuple | list) and not isinstance(value, torch.Size):
        return [_as_meta(each) for each in value] if isinstance(value, list) else tuple(map(_as_meta, value))
    if not isinstance(value, Tensor) or value.is_meta:
        return value
    if value.layout != torch.strided or value.is_nested or value.is_quantized:
        raise Unknown
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
