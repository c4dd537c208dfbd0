"""The published weights: from the local Hugging Face cache, or from the hub where it answers at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shapetrace.errors import WeightsError
from shapetrace.weights.presets import Preset

_FILE = "model.safetensors"
# The plain download call retries for 23 seconds without a network, and for minutes where a server never answers.
_PATIENCE_S = 3.0


def find_pretrained(preset: Preset) -> Path:
    """The preset's safetensors file: from the cache, else downloaded, with huggingface_hub's progress bar.

    Raises WeightsError within some 3 seconds where the hub does not answer.
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url

    for repository in preset.repositories:
        try:
            return Path(hf_hub_download(repository, _FILE, local_files_only=True))
        except OSError:  # LocalEntryNotFoundError is one: not there, or no cache that can be read
            continue
    repository = preset.repositories[0]
    url = hf_hub_url(repository, _FILE)
    try:
        _within(_PATIENCE_S, lambda: get_hf_file_metadata(url, timeout=_PATIENCE_S / 2))
        return Path(hf_hub_download(repository, _FILE))
    except Exception as error:  # whatever the HTTP library of the installed hub raises
        reason = str(error).partition("\n")[0].partition(". ")[0] or type(error).__name__
        raise WeightsError(
            f"{preset.name}'s pretrained weights cannot be had from the Hugging Face hub ({reason})",
            "give `--weights` a .safetensors file, or use `--weights random`",
        ) from None


def _within(seconds: float, call: Callable[[], Any]) -> None:
    """Make the call, and raise what it raises, or TimeoutError when the seconds are over."""
    outcome: list[BaseException | None] = []

    def attempt() -> None:
        try:
            call()
            outcome.append(None)
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcome:
        raise TimeoutError(f"the hub did not answer within {seconds:g} seconds")
    if outcome[0] is not None:
        raise outcome[0]
