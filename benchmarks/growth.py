"""How the cost grows with the model: tracing, the file, comparing and the screen, from 12 layers to 192, and at 1,000.

usage: python benchmarks/growth.py [--layers N ...] [--deep N] [--rounds N] [--write]

A narrow GPT-2 (d_model 64) on 7 tokens, on one thread, in CPU time. The last column is the power of the number of
tensors that the time grows with, from the middle of the range to its end: 1 is linear. Python's garbage collector is
on, as in a user's own process. With --write, growth.svg is drawn.
"""

from __future__ import annotations

import gc
import io
import math
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import report
import torch
from processes import output_of, run_python, shapetrace
from rich.console import Console, RenderableType
from settings import TOY

from shapetrace import Trace, load, record, save
from shapetrace.comparison import compare
from shapetrace.golden import describe_difference
from shapetrace.gpt2 import Transformer
from shapetrace.render.comparison import render_comparison
from shapetrace.render.display import as_rich
from shapetrace.trace import tensors_of, walk_calls

PICTURE = Path(__file__).with_name("growth.svg")
TRACING = "record, beyond the forward"
SHORT, LONG = torch.arange(7)[None], torch.arange(8)[None]


def measure_once(model: Transformer, path: Path) -> dict[str, float]:
    """Seconds of each quantity, in one round."""
    longer = record(model, LONG)
    pair = {"plain forward": lambda: model(SHORT), TRACING: lambda: record(model, SHORT)}
    either = {name: seconds_of(pair[name]) for name in random.sample(list(pair), 2)}
    plain, traced = (either[name] for name in pair)
    trace = record(model, SHORT)
    calls: dict[str, Callable[[], object]] = {
        "save": lambda: save(trace, path),
        "load": lambda: load(path),
        "compare, all is the same": lambda: compare(trace, trace),
        "compare, every shape differs": lambda: render(render_comparison(compare(trace, longer))),
        "render": lambda: render(as_rich(trace)),
    }
    timed = {name: seconds_of(call) for name, call in calls.items()}
    return {"plain forward": plain, TRACING: traced - plain, **timed}


def seconds_of(call: Callable[[], object]) -> float:
    """Of the processor: that other processes run too does not count, nor what earlier calls left to collect."""
    gc.collect()
    start = time.process_time()
    call()
    return time.process_time() - start


def render(shown: RenderableType) -> None:
    """Put it on a screen of 80 columns that nobody sees."""
    Console(file=io.StringIO(), width=80, color_system=None, highlight=False).print(shown)


def measure(layers: Sequence[int], rounds: int, path: Path) -> dict[int, dict[str, float]]:
    """For each number of layers the medians, the models in random order within a round."""
    models = {each: Transformer(replace(TOY, n_layers=each)).eval() for each in layers}
    record(models[layers[0]], SHORT)  # reads the sources
    taken: dict[int, list[dict[str, float]]] = {each: [] for each in layers}
    for _ in range(rounds):
        for each in random.sample(layers, len(layers)):
            taken[each].append(measure_once(models[each], path))
    return {
        each: {name: statistics.median(once[name] for once in seconds) for name in seconds[0]}
        for each, seconds in taken.items()
    }


def tabulate(tensors: Sequence[int], measured: Mapping[int, Mapping[str, float]]) -> list[str]:
    """A row for each quantity, in milliseconds, and the power it grows with."""
    layers = list(measured)
    middle = (len(layers) - 1) // 2
    rows = [("CPU ms", *(report.count(each, "layer") for each in layers), "power")]
    rows.append(("tensors", *(f"{each:,}" for each in tensors), ""))
    for name in measured[layers[0]]:
        seconds = [measured[each][name] for each in layers]
        power = math.log(seconds[-1] / seconds[middle]) / math.log(tensors[-1] / tensors[middle])
        rows.append((name, *(f"{each * 1e3:,.1f}" for each in seconds), f"{power:.2f}"))
    return report.align(rows)


def count_tensors(trace: Trace) -> int:
    return sum(len(tensors_of(call)) for root in trace.calls for call in walk_calls(root))


def describe_deep(layers: int, path: Path) -> list[str]:
    """What a person waits for with a golden trace of that many layers, each once."""
    model = Transformer(replace(TOY, n_layers=layers)).eval()
    trace, longer = record(model, SHORT), record(model, LONG)
    save(trace, path)
    show, same = shapetrace(f"show {path}"), shapetrace(f"compare {path} {path}")
    taken = {
        "show": run_python(show).cpu,
        "compare with itself": run_python(same).cpu,
        "golden check that passes": seconds_of(lambda: describe_difference(path, trace, True, False)),
        "golden check that fails": seconds_of(lambda: describe_difference(path, longer, True, False)),
    }
    shown, told = output_of(show), describe_difference(path, longer, True, False)
    size = path.stat().st_size / 1e6
    return [
        f"{report.count(layers, 'layer')}, {count_tensors(trace):,} tensors, {size:,.1f} MB of YAML",
        *report.align([("", "CPU s"), *((name, f"{seconds:.1f}") for name, seconds in taken.items())]),
        f"on screen: show {report.count(len(shown.splitlines()), 'line')}, "
        f"the check that fails {report.count(len(told.splitlines()), 'line')}",
    ]


def draw(tensors: Sequence[int], measured: Mapping[int, Mapping[str, float]]) -> None:
    """Two panels: tracing with a straight line beside it, and the page half where slope 1 is linear."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    settings = {"svg.hashsalt": "growth", "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9}
    settings |= {"axes.spines.top": False, "axes.spines.right": False}
    with pyplot.rc_context(settings):
        figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
        layers = list(measured)
        milliseconds = [measured[each][TRACING] * 1e3 for each in layers]
        left.plot((0, tensors[-1]), (0, milliseconds[-1]), color="0.6", linestyle="--", label="straight line")
        left.plot(tensors, milliseconds, "o", color="C0", label=TRACING)
        of_layers = f"tensors in the trace, {layers[0]} to {layers[-1]} layers"
        left.set(xlabel=of_layers, ylabel="CPU milliseconds", title="Tracing", xlim=0, ylim=0)
        names = [name for name in measured[layers[0]] if name not in (TRACING, "plain forward")]
        for name in names:
            right.plot(tensors, [measured[each][name] * 1e3 for each in layers], "o-", markersize=3.5, label=name)
        lowest = min(measured[layers[0]][name] for name in names) * 1e3
        right.plot(tensors, [lowest / 3 * each / tensors[0] for each in tensors], "--", color="0.6", label="linear")
        right.set(xlabel=of_layers, title="File, comparison, screen", xscale="log", yscale="log")
        right.set_xticks(tensors, [f"{each:,}" for each in tensors], minor=False)
        right.minorticks_off()
        left.legend(frameon=False, loc="upper left")
        right.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
        figure.savefig(PICTURE, metadata={"Date": None})


@torch.no_grad()
def main() -> None:
    parser = report.parser_of(__doc__ or "", rounds=5)
    parser.add_argument("--layers", type=int, nargs="+", default=[12, 24, 48, 96, 192], metavar="N")
    parser.add_argument("--deep", type=int, default=1000, metavar="N", help="layers of the deep model (1000)")
    options = parser.parse_args()
    if len(set(options.layers)) < 2:
        parser.error("--layers takes two different numbers or more: growth is what lies between them")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.yaml"
        measured = measure(options.layers, options.rounds, path)
        deep = describe_deep(options.deep, path)
    tensors = [count_tensors(record(Transformer(replace(TOY, n_layers=each)), SHORT)) for each in options.layers]
    report.publish(
        "growth.py",
        [report.count(options.rounds, "round"), "", *tabulate(tensors, measured), "", *deep],
        options.write,
    )
    if options.write:
        draw(tensors, measured)


if __name__ == "__main__":
    main()
