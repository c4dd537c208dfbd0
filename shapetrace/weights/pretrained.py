"""Files of the Hugging Face hub: from the local cache, or from the hub where it answers at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shapetrace.errors import WeightsError
from shapetrace.weights.presets import Preset

# The plain download call retries for 23 seconds without a network, and for minutes where a server never answers.
_PATIENCE_S = 3.0


def find_pretrained(preset: Preset) -> Path:
    """The preset's safetensors file: from the cache, else downloaded, with huggingface_hub's progress bar.

    Raises WeightsError within some 3 seconds where the hub does not answer.
    """
    return find_hub_file(preset.repositories, "model.safetensors", f"{preset.name}'s pretrained weights")


def find_hub_file(repositories: tuple[str, ...], file: str, what: str) -> Path:
    """The file of the first repository that has it: from the cache, else downloaded from the first repository.

    `what` names it in the error. Raises WeightsError within some 3 seconds where the hub does not answer.
    """
    from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url
    from huggingface_hub.errors import HFValidationError

    try:
        for repository in repositories:
            try:
                return Path(hf_hub_download(repository, file, local_files_only=True))
            except OSError:  # LocalEntryNotFoundError is one: not there, or no cache that can be read
                continue
        url = hf_hub_url(repositories[0], file)
    except HFValidationError:
        raise WeightsError(f"`{repositories[0]}` is no name of a repository", "such as openai-community/gpt2") from None
    try:
        _within(_PATIENCE_S, lambda: get_hf_file_metadata(url, timeout=_PATIENCE_S / 2))
        return Path(hf_hub_download(repositories[0], file))
    except Exception as error:  # whatever the HTTP library of the installed hub raises
        reason = str(error).partition("\n")[0].partition(". ")[0] or type(error).__name__
        raise WeightsError(
            f"{what} cannot be had from the Hugging Face hub ({reason})",
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
