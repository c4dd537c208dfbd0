"""Parameters that are made to be filled elsewhere, or never."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode


class WithoutInitialising(TorchFunctionMode):
    """Inside, torch.nn.init does nothing: memory that is about to be filled is not filled twice.

    only_on_meta: to tensors that are shapes only, where even that would take a library to load.
    """

    def __init__(self, only_on_meta: bool = False):
        super().__init__()
        self._only_on_meta = only_on_meta

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", "") == "torch.nn.init":
            tensor = args[0] if args else kwargs.get("tensor")
            if not self._only_on_meta or (isinstance(tensor, Tensor) and tensor.is_meta):
                return tensor
        return func(*args, **kwargs)
