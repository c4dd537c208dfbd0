"""No test asks a network, and none sees what another imported."""

import os
import sys
import tempfile

import pytest

pytest_plugins = ["pytester"]

# Read when huggingface_hub is imported, so set before any test is.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HOME"] = tempfile.mkdtemp(prefix="shapetrace-tests-")
# The same of torch: its threads gain nothing on models of this size, and stand in the way of the tests beside.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(autouse=True)
def leave_no_imports(tmp_path_factory):
    """What a test imported from a folder of its own is no other test's `model`."""
    known, path = set(sys.modules), list(sys.path)
    yield
    sys.path[:] = path
    folder = str(tmp_path_factory.getbasetemp())
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(folder):
            del sys.modules[name]
