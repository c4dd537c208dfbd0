"""The processes that torchrun has started, and what they tell each other beside what the model exchanges."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING

from shapetrace.errors import ShapetraceError
from shapetrace.parallel.agreement import find_disagreement, lines_of
from shapetrace.trace import Trace

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


class Ranks:
    """This process as one of several; the first rank prints and saves. Alone where there is no other."""

    def __init__(self, rank: int = 0, size: int = 1, store: Store | None = None):
        self.rank = rank
        self.size = size
        self._store = store
        self._scheme: Scheme | None = None
        self._is_patient = True  # until it has waited for the first rank in vain
        self._missed: set[int] = set()  # on the first rank, for whom it has waited in vain

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
        return cls(rank, size, PrefixStore("shapetrace", store))

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
        """Put the model's parameters on the mesh, in place; raises ShapetraceError where that has no plan for it."""
        if self._scheme is None:
            return
        import torch.distributed as dist
        from torch._C._distributed_c10d import PrefixStore

        from shapetrace.parallel.spreading import device_type_of, spread

        if not dist.is_initialized():
            backend = "nccl" if device_type_of(model) == "cuda" else "gloo"
            store = PrefixStore("model", self._store) if self._store else None
            dist.init_process_group(backend, store=store, rank=self.rank, world_size=self.size, timeout=_LATE)
        spread(model, name, self._scheme, note)

    def running(self) -> AbstractContextManager[None]:
        """For the time in which the model runs."""
        if self._scheme is None:
            return nullcontext()
        from shapetrace.parallel.spreading import running_spread

        return running_spread()

    def compare(self, trace: Trace) -> list[str]:
        """On the first rank, each rank whose trace is another one, and where; on the others the trace is handed in.

        Raises ShapetraceError on another rank where its forward has raised and the first one does not come.
        """
        if self._store is None:
            return []
        lines = lines_of(trace)
        if not self.is_first:
            self._store.set(f"trace/{self.rank}", json.dumps(lines))
            if trace.error and not self._comes("arrived", _SOON):
                self._is_patient = False
                raise ShapetraceError(f"the forward raised {trace.error}; rank 0 did not, and waits")
            return []
        self._store.set("arrived", "")
        found = []
        within = _SOON if trace.error else _LATE  # the others may be in an exchange with this one, which never comes
        for rank in range(1, self.size):
            if not self._comes(f"trace/{rank}", within):
                found.append(f"rank {rank} has not come to an end")
                self._missed.add(rank)
                continue
            theirs = json.loads(self._store.get(f"trace/{rank}"))
            other = None if theirs is None else find_disagreement(lines, theirs)  # None: `hear_others` tells why
            if other is not None:
                here, there = (line or "nothing more" for line in other)
                found.append(
                    f"rank {rank} disagrees with rank 0, first here:\n  rank 0: {here}\n  rank {rank}: {there}"
                )
        return found

    def warn_if_whole(self, note: Callable[[str], None]) -> None:
        """Where every rank has run the whole model, that is hardly what was meant."""
        if self.size > 1 and self._scheme is None and not _exchange():
            note(f"{self.size} ranks each ran the whole model; --parallel tensor or fsdp spreads it over them")

    def wait_for_first(self, failure: str) -> int | None:
        """On another rank: say how it went, and return the first rank's exit code when that has printed.

        failure: "" where all went well. None where something failed here and the first rank does not come.
        """
        if self._store is None:
            return 0
        self._store.set(f"over/{self.rank}", failure)
        if failure:
            self._store.set(f"trace/{self.rank}", json.dumps(None))
            if not self._comes("arrived", _SOON if self._is_patient else timedelta()):
                return None
        return int(self._store.get("over/0")) if self._comes("over/0", _LATE) else None

    def hear_others(self) -> list[str]:
        """On the first rank, when it is done: what has failed on others."""
        if self._store is None:
            return []
        self._store.set("arrived", "")
        found = []
        for rank in sorted({*range(1, self.size)} - self._missed):
            failure = self._store.get(f"over/{rank}").decode() if self._comes(f"over/{rank}", _LATE) else "no answer"
            found += [f"rank {rank}: {failure}"] if failure else []
        return found

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

    def _comes(self, key: str, within: timedelta) -> bool:
        assert self._store is not None
        end = time.monotonic() + within.total_seconds()
        try:
            while not self._store.check([key]):
                if time.monotonic() > end:
                    return False
                time.sleep(_TICK)
        except RuntimeError:  # whoever keeps the store is gone
            return False
        return True


def _exchange() -> bool:
    """Whether there is a process group."""
    import torch.distributed as dist

    return dist.is_available() and dist.is_initialized()
