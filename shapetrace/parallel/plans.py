"""Which parameters tensor parallel shards, and along which axis: heads, the MLP's width, the vocabulary."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel

from shapetrace.errors import ShapetraceError
from shapetrace.weights.layouts import find_layout
from shapetrace.weights.layouts.layout import Layout, Slot

Plan = dict[str, ParallelStyle]  # by module path, as parallelize_module takes it
Note = Callable[[str], None]

_SHARDED = re.compile(r"[nfv]")  # n_heads, d_mlp, d_vocab
# The sum over a sharded axis is left to the output of the module that holds the weight: one all-reduce each.
_REDUCED = ("embed.W_E", "attn.W_O", "mlp.W_out")


class Sharded(ParallelStyle):
    """A module some of whose parameters are sharded; with `whole` each rank gets all of what it returns."""

    def __init__(self, placements: Mapping[str, Placement], whole: bool):
        self._placements = placements
        self._whole = whole

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        return distribute_module(module, device_mesh, self._shard, output_fn=self._gather if self._whole else None)

    def _shard(self, name: str, module: nn.Module, mesh: DeviceMesh) -> None:
        for key, placement in self._placements.items() if not name else ():
            own = module._parameters[key]
            if own is not None:
                spread = distribute_tensor(own.data, mesh, [placement])
                module._parameters[key] = nn.Parameter(spread, own.requires_grad)

    def _gather(self, module: nn.Module, output: Any, mesh: DeviceMesh) -> Any:
        is_part = isinstance(output, DTensor) and output.placements != (Replicate(),)
        return output.redistribute(placements=[Replicate()]) if is_part else output


def plan_tensor_parallel(model: nn.Module, name: str, ranks: int, note: Note) -> Plan:
    """A style for each module that has something to shard.

    That is a GPT-2 in a known layout, or a model of transformers that brings a plan.
    Raises ShapetraceError where there is no plan, or a number of heads that torch cannot divide.
    """
    parameters = dict(model.named_parameters(remove_duplicate=False))
    layout = find_layout({key: tuple(each.shape) for key, each in parameters.items()})
    plan = _of_layout(model, layout, ranks) if layout is not None else _of_transformers(model, ranks, note)
    if not plan:
        raise ShapetraceError(
            f"no tensor parallel plan is known for {name}: it is no GPT-2 in a known layout, and brings no plan",
            "take --parallel fsdp, which does with any module; or call parallelize_module in a script of your own and "
            "trace what it returns with shapetrace.record",
        )
    return plan


def _of_layout(model: nn.Module, layout: Layout, ranks: int) -> Plan:
    placements: dict[str, dict[str, Placement]] = {}
    whole: set[str] = set()
    for slot in layout.slots:
        path, _, key = slot.key.rpartition(".")
        module = model.get_submodule(path)
        axis = _axis_of(slot, module)
        if axis is None:
            continue
        if slot.theirs.startswith("n "):
            _check_heads(getattr(module, key).shape[0], "heads", ranks)
        placements.setdefault(path, {})[key] = Shard(axis)
        is_fused = "parts" in slot.theirs  # q, k and v of all heads: which are cut apart across the shards
        if is_fused or slot.names[0].endswith(_REDUCED):
            whole.add(path)
    return {path: Sharded(each, path in whole) for path, each in placements.items()}


def _axis_of(slot: Slot, module: nn.Module) -> int | None:
    axes = re.findall(r"\([^)]*\)|\w+", slot.theirs)
    if slot.names == ("embed.W_E",) and not isinstance(module, nn.Embedding):
        # To index a table whose rows are sharded torch gathers all of it; its columns it can leave where they are.
        return axes.index("m")
    return next((at for at, axis in enumerate(axes) if "parts" in axis or _SHARDED.search(axis)), None)


def _check_heads(heads: int, what: str, ranks: int) -> None:
    if heads % ranks:
        good = [str(each) for each in range(2, heads + 1) if heads % each == 0]
        start = f"start a number of processes that divides them ({', '.join(good)}), or " if good else ""
        raise ShapetraceError(
            f"{heads} {what} do not divide over {ranks} ranks: torch joins and splits axes only where their shards are "
            "equal",
            f"{start}take --parallel fsdp",
        )


def _of_transformers(model: nn.Module, ranks: int, note: Note) -> Plan:
    """The plan of transformers' own, by its words, in torch's styles."""
    styles: dict[str, Callable[[], ParallelStyle]] = {
        "colwise": lambda: ColwiseParallel(use_local_output=False),
        "rowwise": lambda: RowwiseParallel(use_local_output=False),
        "colwise_gather_output": lambda: ColwiseParallel(output_layouts=Replicate(), use_local_output=False),
        "packed_colwise": lambda: ColwiseParallel(output_layouts=Replicate(), use_local_output=False),
        "rowwise_split_input": lambda: RowwiseParallel(input_layouts=Replicate(), use_local_output=False),
        "packed_rowwise": lambda: RowwiseParallel(input_layouts=Replicate(), use_local_output=False),
        "embedding_rowwise": lambda: RowwiseParallel(input_layouts=Replicate(), use_local_output=False),
        "embedding_colwise": lambda: ColwiseParallel(output_layouts=Replicate(), use_local_output=False),
    }
    told: dict[str, str] = getattr(model, "_tp_plan", None) or {}
    plan: Plan = {}
    left: set[str] = set()
    for path, module in model.named_modules():
        words = next((words for pattern, words in told.items() if _matches(pattern, path)), None)
        if words in styles and isinstance(module, nn.Linear | nn.Embedding):
            plan[path] = styles[words]()
            if words == "colwise":
                _check_projection(model, path.rpartition(".")[2], ranks)
        elif words is not None and not words.startswith("replicate"):
            left.add(f"{re.sub(r'[.][0-9]+[.]', '.*.', path)} ({words})")
    if plan and left:
        note(f"each rank holds all of {', '.join(sorted(left))}: torch has no style for these")
    return plan


def _check_projection(model: nn.Module, name: str, ranks: int) -> None:
    """Raise ShapetraceError where this is a layer of transformers for q, k or v, and its heads do not divide."""
    config: Any = getattr(model, "config", None)
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    heads = getattr(config, "num_attention_heads", None)
    if name == "q_proj" and isinstance(heads, int):
        _check_heads(heads, "heads", ranks)
    groups = getattr(config, "num_key_value_heads", None) or heads
    if name in ("k_proj", "v_proj") and isinstance(groups, int):
        _check_heads(groups, "heads" if groups == heads else "heads of k and v", ranks)


def _matches(pattern: str, path: str) -> bool:
    """`layers.*.mlp.up_proj` and `model.layers.0.mlp.up_proj`."""
    expression = r"\d+".join(map(re.escape, pattern.split("*")))
    return re.fullmatch(rf"(.*\.)?{expression}", path) is not None
