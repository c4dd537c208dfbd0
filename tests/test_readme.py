"""What the README shows is what happens."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from shapetrace.cli import COMMANDS, main

README = (Path(__file__).parent.parent / "README.md").read_text()


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.M | re.S)


def printed_by(command):
    words = shlex.split(command)
    assert words[0] == "shapetrace"
    result = CliRunner().invoke(main, words[1:])
    failures = ("✗", "First divergence", "comment says")
    shows_a_failure = words[1] == "compare" or any(each in result.stdout for each in failures)
    assert result.exit_code == (1 if shows_a_failure else 0), result.output
    return "\n".join(line.rstrip() for line in result.stdout.splitlines())


def without_noise(text):
    """What rounding costs differs from one processor to the next: its figures, and the spaces before them, aside."""
    return re.sub(r" +(0|\d\.\de-\d\d)(?=[ ,;.]|$)", " #", text, flags=re.M)


@pytest.fixture(autouse=True)
def in_a_folder_with_the_example(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (example,) = blocks("python")
    (tmp_path / "example.py").write_text(example)
    shutil.copytree(Path(__file__).parent / "models", tmp_path / "tests" / "models")


@pytest.fixture
def two_traces(in_a_folder_with_the_example):
    for file, text in (("short.yaml", "The cat sat on the mat"), ("long.yaml", "The cat sat on the mat.")):
        printed_by(f"shapetrace run '{text}' --meta --save {file}")


@pytest.mark.parametrize("block", blocks("console"), ids=lambda block: block.partition("\n")[0])
def test_the_output_shown_is_the_output(block, two_traces):
    command, _, shown = block.partition("\n")
    printed = printed_by(command.removeprefix("$ "))
    assert without_noise(printed) == without_noise(shown.rstrip("\n"))


def test_the_trace_file_shown_is_the_one_written(tmp_path):
    (shown,) = blocks("yaml")
    (command,) = [block.partition("\n")[0] for block in blocks("console") if "--save attention.yaml" in block]
    printed_by(command.removeprefix("$ "))
    assert (tmp_path / "attention.yaml").read_text().startswith(shown)


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_is_in_the_readme(command):
    assert f"shapetrace {command}" in README


def test_two_commands_set_everything_up():
    run, test = blocks("sh")
    assert run.endswith('shapetrace run "The cat sat on the mat"\n')
    assert test.endswith(".venv/bin/pytest -n auto\n")
    assert "-c constraints.txt" in run
    assert "-c constraints.txt" in test
