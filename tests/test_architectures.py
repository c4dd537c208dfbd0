"""Models that no one here wrote: transformers' own, small, with random weights."""

import re
from pathlib import Path

import pytest
import torch
from architectures import list_architectures
from recorder_checks import examine

RESULT = Path(__file__).parent.parent / "benchmarks" / "architectures.md"
FLOOR = 500  # of architectures that are traced as they have to be: it may rise

# Decoders of every descent, mixtures of experts, state spaces, encoders, encoder-decoders, images and sound.
CHOSEN = [
    *("causal:gpt2", "causal:llama", "causal:gpt_neox", "causal:opt", "causal:bloom", "causal:falcon"),
    *("causal:gemma3_text", "causal:gemma4_text", "causal:mixtral", "causal:mamba", "causal:rwkv", "causal:jamba"),
    *("masked:bert", "masked:distilbert", "masked:albert", "masked:deberta-v2", "masked:bart", "seq2seq:t5"),
    *("base:vit", "base:clip", "speech:whisper"),
]


@pytest.mark.parametrize("name", CHOSEN)
def test_an_architecture_is_traced_as_it_has_to_be(name):
    architecture = {str(each): each for each in list_architectures()}[name]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        outcome = examine(architecture)
    finally:
        torch.set_num_threads(threads)
    assert (outcome.verdict, outcome.reason, outcome.reproducible) == ("traced", "", True)


def test_every_architecture_that_runs_was_traced_when_all_were_tried():
    traced, running = map(int, re.search(r"\*\*(\d+) of (\d+)\*\*", RESULT.read_text()).groups())
    assert traced == running
    assert traced >= FLOOR
