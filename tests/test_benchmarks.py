"""The scripts of benchmarks/ run, and say what they measured; how fast anything was is not asserted."""

import os
import re
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


def lines_of(script, *arguments):
    run = subprocess.run(
        [sys.executable, BENCHMARKS / script, *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(BENCHMARKS.parent), "OMP_NUM_THREADS": "1"},
    )
    assert run.returncode == 0, run.stderr
    return [re.sub(r"[-+]?\d[\d.,]*", "#", line) for line in run.stdout.splitlines()]


def names_of(rows):
    """The first column: what stands before two spaces."""
    return [re.split(r" {2,}", row.strip())[0] for row in rows]


def test_overhead_measures_ours_on_the_toy():
    machine, versions, blank, setting, columns, *rows = lines_of(
        "overhead.py", "--only", "toy", "--tools", "shapetrace", "--rounds", "1"
    )
    assert (versions, blank) == ("shapetrace #", "")
    assert setting == "toy: # parameters, # tokens, torch on # thread, # round; the plain forward takes # ms"
    assert columns.split() == ["ms", "ratio", "tensors", "µs/tensor", "first", "ms", "names"]
    assert [re.split(r" {2,}", row.strip()) for row in rows] == [
        [name, "#", "#", "#", "#", "#", "every name that user code binds"]
        for name in ("shapetrace.record", "the forward inside `recording`", "record on the meta device")
    ]


def test_overhead_names_what_it_could_not_measure(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    from overhead import Turn, tabulate
    from tools import Record, Recording

    turns = [Turn(1.0, 9.0, 8), Turn(1.0, 1.5, 8), Turn(2.0, 2.5, 8), Turn(1.0, 1.25, 8)]
    assert list(tabulate({Record: turns, Recording: "shapetrace is not installed"})) == [
        "                        ms  ratio  tensors  µs/tensor  first ms  names",
        "shapetrace.record  1,500.0  1.250        8   62,500.0     9,000  every name that user code binds",
        "the forward inside `recording`: not measured: shapetrace is not installed",
    ]


def test_what_is_printed_replaces_the_block_of_that_script(monkeypatch, tmp_path, capsys):
    monkeypatch.syspath_prepend(BENCHMARKS)
    import report

    page = tmp_path / "README.md"
    page.write_text("# Title\n\n<!-- a.py -->\nold\n<!-- end of a.py -->\n\n<!-- b.py -->\n<!-- end of b.py -->\n")
    monkeypatch.setattr(report, "README", page)
    monkeypatch.setattr(report, "describe_machine", lambda: "a machine")
    report.publish("a.py", ["one", "two"], write=True)
    assert capsys.readouterr().out == "a machine\none\ntwo\n"
    assert page.read_text() == (
        "# Title\n\n<!-- a.py -->\n```text\na machine\none\ntwo\n```\n<!-- end of a.py -->\n\n"
        "<!-- b.py -->\n<!-- end of b.py -->\n"
    )


def test_startup_times_the_commands_that_need_no_torch():
    machine, rounds, blank, columns, *rows = lines_of("startup.py", "--only", "light", "--rounds", "1")
    assert (rounds, blank, columns.split()) == ("# round", "", ["CPU", "s", "seconds"])
    assert [re.split(r" {2,}", row) for row in rows] == [
        [name, "#", "#"]
        for name in (
            "python -c pass",
            "--version",
            "--help",
            "show gpt#_small.yaml",
            "compare gpt#_small.yaml gpt#_small.yaml",
        )
    ]


def test_memory_sets_a_model_without_weights_beside_the_small_one():
    machine, rounds, blank, columns, *rows = lines_of("memory.py", "--only", "meta", "--rounds", "1")
    assert (rounds, blank) == ("# round; MB of resident memory at its peak", "")
    assert re.split(r" {2,}", columns.strip()) == ["peak", "over torch", "CPU s", "over the small one"]
    assert [re.split(r" {2,}", row) for row in rows] == [
        ["import torch", "#", "#"],
        ["run --meta, gpt#-small", "#", "#", "#"],
        ["run --meta, # billion", "#", "#", "#", "#"],
        ["params, gpt#-small", "#", "#", "#"],
        ["params, # billion", "#", "#", "#", "#"],
    ]


def test_growth_follows_the_layers_to_a_deep_model():
    machine, rounds, blank, columns, *rows = lines_of("growth.py", "--layers", "1", "2", "--deep", "3", "--rounds", "1")
    assert (rounds, blank) == ("# round", "")
    assert re.split(r" {2,}", columns) == ["CPU ms", "# layer", "# layers", "power"]
    assert names_of(rows[:8]) == [
        "tensors",
        "plain forward",
        "record, beyond the forward",
        "save",
        "load",
        "compare, all is the same",
        "compare, every shape differs",
        "render",
    ]
    assert rows[9] == "# layers, # tensors, # MB of YAML"
    assert names_of(rows[11:15]) == [
        "show",
        "compare with itself",
        "golden check that passes",
        "golden check that fails",
    ]
    assert rows[15] == "on screen: show # lines, the check that fails # lines"
