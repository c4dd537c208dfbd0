"""No test asks a network: the hub is offline, and its cache is empty."""

import os
import tempfile

pytest_plugins = ["pytester"]

# Read when huggingface_hub is imported, so set before any test is.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HOME"] = tempfile.mkdtemp(prefix="shapetrace-tests-")
