"""Start real processes as torchrun does."""

import os
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parent.parent
_LAUNCH = (*("-m", "torch.distributed.run"), *("--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"))


def torchrun(*words, ranks=2, cwd=None):
    """What torchrun with these words did; one thread a rank, for the machine has few."""
    process = start(*words, ranks=ranks, cwd=cwd)
    try:
        stdout, stderr = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        process.terminate()
        raise
    return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)


def start(*words, ranks=2, cwd=None):
    """The same, under way."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(_ROOT), "COLUMNS": "80"}
    command = [sys.executable, *_LAUNCH, "--nproc-per-node", str(ranks), *map(str, words)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, cwd=cwd, stdout=pipe, stderr=pipe, text=True)
