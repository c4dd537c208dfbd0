"""Start real processes as torchrun does."""

import os
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parent.parent
_LAUNCH = (*("-m", "torch.distributed.run"), *("--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"))


def torchrun(*words, ranks=2, cwd=None):
    """What torchrun with these words did; one thread a rank, for the machine has few."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(_ROOT), "COLUMNS": "80"}
    command = [sys.executable, *_LAUNCH, "--nproc-per-node", str(ranks), *map(str, words)]
    return subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=120)
