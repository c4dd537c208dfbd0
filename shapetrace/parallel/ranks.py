"""The processes that torchrun has started, and what they tell each other beside what the model exchanges."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING

from shapetrace.errors import ShapetraceError
from shapetrace.parallel.agreement import find_disagreement

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch._C._distributed_c10d import Store

    from shapetrace.parallel.scheme import Scheme

_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
# Ranks run in lockstep: one that has failed waits so long for the first one, which may hang in an exchange with it.
_SOON = timedelta(seconds=10)
_LATE = timedelta(minutes=5)
_TICK = 0.02  # seconds


class ToldByFirst(ShapetraceError):
    """On another rank: something is wrong that the first one tells."""

    def __init__(self) -> None:
        super().__init__("told by rank 0")


class Ranks:
    """This process as one of several; the first rank prints and saves. Alone where there is no other."""

    def __init__(self, rank: int = 0, size: int = 1, store: Store | None = None):
        self.rank = rank
        self.size = size
        self._store = store
        self._scheme: Scheme | None = None
        self._is_patient = True  # until it has waited for the first rank in vain
        self._heard: set[int] = set()  # on the first rank, of whom it has told already that they failed

    @classmethod
    def find(cls, wanted: bool) -> Ranks:
        """Those that the environment tells of; wanted: whether they are to spread a model."""
        told = [os.environ.get(name) for name in _VARIABLES]
        if None in told:
            return cls()
        rank, size = (int(each or 0) for each in told[:2])
        # Where that is not wanted the user's own model may be spread, or every rank just does the same.
        if not wanted and (size < 2 or "TORCHELASTIC_RUN_ID" not in os.environ):
            return cls()
        from torch._C._distributed_c10d import PrefixStore
        from torch.distributed.rendezvous import rendezvous

        store, rank, size = next(rendezvous("env://", timeout=_LATE))
        # The launcher's store outlives a command, and the next one is not to hear what this one has said.
        command = store.add(f"shapetrace/{rank}", 1)
        return cls(rank, size, PrefixStore(f"shapetrace/{command}", store))

    def follow(self, scheme: Scheme, command: str) -> None:
        """Spread models by this scheme; raises ShapetraceError where nothing has started ranks, or other ones.

        command: what was called, for the message.
        """
        if self._store is None:
            raise ShapetraceError(
                "--parallel runs on several processes, and nothing has started them",
                f"torchrun --nproc-per-node 2 -m shapetrace {command}",
            )
        scheme.over(self.size)
        self._scheme = scheme

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def settle(self, device: torch.device | None) -> None:
        """Where that is `cuda`, take this rank's own GPU of the machine."""
        if self._scheme is not None and str(device) == "cuda":  # and not `cuda:1`
            import torch

            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", self.rank)))

    def spread(self, model: nn.Module, name: str, note: Callable[[str], None]) -> None:
        """Put the model's parameters on the mesh, in place.

        Raises ShapetraceError where there is no plan for it, and where the ranks have built different models.
        """
        if self._scheme is None:
            return
        self._agree_on(model, note)
        import torch.distributed as dist
        from torch._C._distributed_c10d import PrefixStore

        from shapetrace.parallel.spreading import device_type_of, spread

        if not dist.is_initialized():
            backend = "nccl" if device_type_of(model) == "cuda" else "gloo"
            store = PrefixStore("model", self._store) if self._store else None
            dist.init_process_group(backend, store=store, rank=self.rank, world_size=self.size, timeout=_LATE)
        spread(model, name, self._scheme, note)

    def _agree_on(self, model: nn.Module, note: Callable[[str], None]) -> None:
        """Before the model is spread: a size that differs would end the process in the midst of an exchange."""
        from torch.nn.parameter import is_lazy

        assert self._store is not None
        lines = []
        for name, each in model.named_parameters():
            shape = "(?)" if is_lazy(each) else str(tuple(each.shape))
            lines.append(f"{name}, parameter {shape} {str(each.dtype).removeprefix('torch.')}")
        if not self.is_first:
            self._store.set(f"model/{self.rank}", json.dumps(lines))
            self._wait_for({0: ("model/0", "over/0")}, note, _LATE)
            if not self._store.check(["model/0"]):
                raise ShapetraceError("rank 0 has not built its model")
            if self._store.get("model/0").decode() != "agreed":
                raise ToldByFirst
            return
        found = self._differences("model", lines, note, _LATE)
        self._store.set("model/0", "not agreed" if found else "agreed")
        if found:
            hint = "" if self._heard else "build the same model on every rank"  # a failure has a hint of its own
            raise ShapetraceError("\n".join(found), hint)

    def running(self) -> AbstractContextManager[None]:
        """For the time in which the model runs."""
        if self._scheme is None:
            return nullcontext()
        from shapetrace.parallel.spreading import running_spread

        return running_spread()

    def compare(self, found: Sequence[str], note: Callable[[str], None], raised: object = None) -> list[str]:
        """On the first rank, each rank that has found something else, and where; the others hand in what they found.

        The first one waits for the others, and notes for whom; not for long where its forward has raised, and they
        may be in an exchange with it, which never comes.
        raised: what the forward ended with.
        Raises ShapetraceError on another rank where its forward has raised and the first one does not come.
        """
        if self._store is None:
            return []
        within = _SOON if raised and _exchange() else _LATE
        if self.is_first:
            self._store.set("arrived", "")
            return self._differences("found", found, note, within)
        self._store.set(f"found/{self.rank}", json.dumps(found))
        if raised and self._wait_for({0: ("arrived",)}, note, within):
            self._is_patient = False
            raise ShapetraceError(f"the forward raised {raised}, and rank 0 has not come to its end")
        return []

    def _differences(
        self, what: str, lines: Sequence[str], note: Callable[[str], None], within: timedelta
    ) -> list[str]:
        """Each other rank that does not come, or has handed in something else under this name."""
        assert self._store is not None
        others = range(1, self.size)
        late = self._wait_for({rank: (f"{what}/{rank}", f"over/{rank}") for rank in others}, note, within)
        found = []
        for rank in others:
            if rank in late:
                found.append(f"rank {rank} has not come to an end")
                self._heard.add(rank)
            elif not self._store.check([f"{what}/{rank}"]):
                failure = self._store.get(f"over/{rank}").decode()
                found.append(f"rank {rank}: {failure or 'it has come to no result'}")
                self._heard.add(rank)
            elif other := find_disagreement(lines, json.loads(self._store.get(f"{what}/{rank}"))):
                here, there = (line or "nothing more" for line in other)
                found.append(
                    f"rank {rank} disagrees with rank 0, first here:\n  rank 0: {here}\n  rank {rank}: {there}"
                )
        return found

    def warn_if_whole(self, note: Callable[[str], None]) -> None:
        """Where every rank has run the whole model, that is hardly what was meant."""
        if self.size > 1 and self._scheme is None and not _exchange():
            note(f"{self.size} ranks each ran the whole model; --parallel tensor or fsdp spreads it over them")

    def wait_for_first(self, failure: str, code: int, note: Callable[[str], None]) -> int | None:
        """On another rank: say how it went, and return the first rank's exit code when that has printed.

        failure: "" where nothing was raised; code: what the command would end with alone.
        None where something failed here and the first rank does not come.
        """
        if self._store is None:
            return 0
        self._store.set(f"code/{self.rank}", str(code))
        self._store.set(f"over/{self.rank}", failure)
        within = (_SOON if _exchange() else _LATE) if self._is_patient else timedelta()
        if failure and self._wait_for({0: ("arrived",)}, note, within):
            return None
        return None if self._wait_for({0: ("over/0",)}, note, _LATE) else int(self._store.get("over/0"))

    def hear_others(self, code: int, note: Callable[[str], None]) -> list[str]:
        """On the first rank, when it is done: what has failed on others, and was not told yet.

        code: what the command ends with here.
        """
        if self._store is None:
            return []
        self._store.set("arrived", "")
        others = sorted({*range(1, self.size)} - self._heard)
        late = self._wait_for({rank: (f"over/{rank}",) for rank in others}, note, _LATE)
        told = {rank: "no answer" if rank in late else self._store.get(f"over/{rank}").decode() for rank in others}
        for rank in others:
            theirs = 0 if told[rank] else int(self._store.get(f"code/{rank}"))
            if theirs and not code:
                told[rank] = f"there the command ends with exit code {theirs}, and with 0 on rank 0"
        return [f"rank {rank}: {failure}" for rank, failure in told.items() if failure]

    def release_others(self, code: int) -> None:
        """On the first rank, as the last thing: they end with the same exit code."""
        if self._store is not None:
            sys.stdout.flush()
            self._store.set("arrived", "")
            self._store.set("over/0", str(code))

    def leave(self) -> None:
        """Take leave of the process group."""
        if self._scheme is not None and _exchange():
            import torch.distributed as dist

            dist.destroy_process_group()

    def _wait_for(self, keys: dict[int, tuple[str, ...]], note: Callable[[str], None], within: timedelta) -> list[int]:
        """The ranks that set none of their keys in that time; who has waited for a while says for whom."""
        assert self._store is not None
        begun = time.monotonic()
        is_told = False
        while True:
            try:
                late = [rank for rank, some in keys.items() if not any(self._store.check([key]) for key in some)]
            except RuntimeError:  # whoever keeps the store is gone
                return list(keys)
            waited = time.monotonic() - begun
            if not late or waited > within.total_seconds():
                return late
            if not is_told and waited > _SOON.total_seconds():
                names = ", ".join(f"rank {rank}" for rank in late)
                note(f"rank {self.rank} waits for {names}, for {_LATE.seconds // 60} minutes at most")
                is_told = True
            time.sleep(_TICK)


def _exchange() -> bool:
    """Whether there is a process group."""
    import torch.distributed as dist

    return dist.is_available() and dist.is_initialized()
