"""One step of a generation: from the hidden state to the token."""

from __future__ import annotations

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from shapetrace.continuation import Candidate, Step
from shapetrace.render.theme import count_of, quoted, separated

_BAR = 20  # characters for a probability of 1


def render_step(step: Step, temperature: float, top_k: int | None) -> RenderableType:
    """The last hidden state, the logits, the likeliest tokens with their probabilities, the choice, the text so far."""
    read = f"the last {step.read} of " if step.read < step.given else ""
    headline = Text(f"step {step.number}", "path").append(f"  reads {read}{count_of(step.given, 'token')}", "note")
    above, below = _grid(), _grid()
    if step.hidden is not None:
        figures = " ".join(f"{entry:.3g}" for entry in step.hidden.first)
        more = " ..." if step.hidden.size > len(step.hidden.first) else ""
        name = f"({step.hidden.size},)  {step.hidden.name}, norm {step.hidden.norm:.3g}"
        above.add_row("hidden state", f"{name}: {figures}{more}")
    least, most, mean = (f"{each:.3g}" for each in (step.logits.least, step.logits.most, step.logits.mean))
    above.add_row("logits", f"({step.logits.size},)  from {least} to {most}, mean {mean}")
    above.add_row("candidates", _how(temperature, top_k))
    word = Text(quoted(step.chosen.word), "count").append(
        "  the likeliest" if temperature == 0 else "  drawn", "default"
    )
    below.add_row("chosen", word.append(", and ends the text" if step.ends else "", "default"))
    below.add_row("text", Text(quoted(step.text), "name"))
    return separated([headline, above, Padding(_candidates(step), (0, 0, 0, 2)), below])


def _how(temperature: float, top_k: int | None) -> str:
    kept = f", of the {top_k} largest logits" if top_k is not None else ""
    return f"P at temperature {temperature or 1:g}{kept}"


def _candidates(step: Step) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="note")
    for title in ("", "id", "token", "logit", "P", ""):
        table.add_column(title, justify="right" if title in ("id", "logit", "P") else "left", no_wrap=title != "token")
    for each in step.candidates:
        table.add_row(*_row(each, each == step.chosen))
    if step.chosen not in step.candidates:
        table.add_row("", "...")
        table.add_row(*_row(step.chosen, True))
    return table


def _row(each: Candidate, is_chosen: bool) -> tuple[RenderableType, ...]:
    bar = Text("━" * round(_BAR * each.probability), "count")
    word = Text(quoted(each.word), "count" if is_chosen else "name")
    return (">" if is_chosen else "", str(each.id), word, f"{each.logit:.3f}", _share(each.probability), bar)


def _share(probability: float) -> str:
    return f"{probability:.4f}" if probability >= 5e-5 or probability == 0 else f"{probability:.0e}"


def _grid() -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="note", no_wrap=True, min_width=len("hidden state"))
    grid.add_column(overflow="fold")
    return grid
