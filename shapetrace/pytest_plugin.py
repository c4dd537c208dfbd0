"""The golden_trace fixture: a test fails when what a model does is no longer what its golden trace says.

pytest loads this file in every run of everyone who has shapetrace installed: it imports nothing of weight until a test
asks for the fixture.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_KEY = pytest.StashKey["GoldenSession"]()


class GoldenSession:
    """What the golden traces of one run came to."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.used: set[str] = set()  # paths, as text: they travel between the processes of pytest-xdist
        self.rewritten: set[str] = set()
        self.narrowed = False  # whether some tests were left out

    def as_plain(self) -> dict[str, Any]:
        return {"used": sorted(self.used), "rewritten": sorted(self.rewritten), "narrowed": self.narrowed}

    def add(self, plain: dict[str, Any]) -> None:
        """Take in what another process has seen."""
        self.used |= set(plain["used"])
        self.rewritten |= set(plain["rewritten"])
        self.narrowed |= plain["narrowed"]

    def unused(self) -> list[Path]:
        """The golden files that no test asked for."""
        files = sorted(self.folder.rglob("*/*.yaml"))
        return [file for file in files if str(file) not in self.used and not file.name.endswith(".obtained.yaml")]


class GoldenTrace:
    """The fixture: `golden_trace.check(model, *inputs)`."""

    def __init__(self, session: GoldenSession, node: pytest.Item, update: bool):
        self._session = session
        self._node = node
        self._update = update
        self._unnamed = 0

    def check(
        self,
        model: Any,
        /,
        *inputs: Any,
        name: str = "",
        comments: bool = False,
        values: bool | float = False,
        tokenizer: str | os.PathLike[str] | None = None,
        shape_comments: bool = False,
        **named_inputs: Any,
    ) -> None:
        """Fail the test unless the model, called with these inputs, does what the golden trace of that name says.

        model: a module, or its name as on the command line: "model.py:GPT(GPTConfig(n_layer=2))", "hf:gpt2?n_layer=2".
        The input of a model that is named can be a text; without inputs it is "The cat sat on the mat". tokenizer: the
        folder of one, for a text in other tokens than GPT-2's.
        name: of the file below `traces/<test module>/`; by default the test's own, with its parameters.
        comments: a changed comment fails too. values: so does a changed number; a number is the relative tolerance.
        shape_comments: one that is not true fails too, as `shapetrace check` tells it.
        A golden trace that is not there is written, and the test fails. One that differs is left alone, and what was
        obtained is put beside it. `pytest --update-traces` rewrites it instead, and the test passes,
        unless another test of the run has another trace under that name.
        """
        __tracebackhide__ = True
        from shapetrace.errors import TraceFileError
        from shapetrace.golden import describe_difference, obtained_path, record_golden

        if values is not False and not (isinstance(values, int | float) and values >= 0):
            raise ValueError(f"values is True, False or a relative tolerance from 0 up, not {values!r}")
        path = self._path_of(str(name))
        trace, untrue = record_golden(model, inputs, named_inputs, values is not False, tokenizer, shape_comments)
        if untrue:
            raise AssertionError(f"shape comments are not true:\n{untrue}")
        shown = _relative(path, self._node.config.rootpath)
        again = str(path) in self._session.used
        self._session.used.add(str(path))
        if not path.exists():
            self._write(trace, path)
            self._session.rewritten.add(str(path))
            if not self._update:
                raise AssertionError(f"there was no golden trace {shown}; it was written: look at it, and run again")
            return
        try:
            difference = describe_difference(path, trace, comments, values)
        except TraceFileError as error:
            raise AssertionError(f"{error.message}\n\nhint: mend it, or delete it and run again") from None
        if not difference:
            obtained_path(path).unlink(missing_ok=True)
        elif self._update and not again:
            self._write(trace, path)
            self._session.rewritten.add(str(path))
            obtained_path(path).unlink(missing_ok=True)
        else:
            raise AssertionError(
                f"the trace is not {shown}:\n{difference}\n\nhint: {self._next_step(trace, path, again)}"
            )

    def _next_step(self, trace: Any, path: Path, again: bool) -> str:
        """What to do about a difference; puts what was obtained beside the golden trace, where that can be written."""
        from shapetrace.errors import ShapetraceError
        from shapetrace.golden import obtained_path
        from shapetrace.store import save

        if again:
            return "give one of the two a `name`: this run has checked another trace under the same"
        try:
            save(trace, obtained_path(path))
        except ShapetraceError as error:
            return f"`pytest --update-traces` takes over what was obtained ({error.message})"
        return f"`pytest --update-traces` takes over what was obtained, {obtained_path(path).name} beside it"

    def _write(self, trace: Any, path: Path) -> None:
        __tracebackhide__ = True
        from shapetrace.errors import ShapetraceError
        from shapetrace.store import save

        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            save(trace, path)
        except (OSError, ShapetraceError) as error:
            raise AssertionError(f"the golden trace cannot be written: {error}") from None

    def _path_of(self, name: str) -> Path:
        if not name:
            self._unnamed += 1
            # `test_model.py::TestGPT::test_lengths[2]` -> `TestGPT-lengths-2`
            names = self._node.nodeid.split("::")[1:]
            name = "-".join(each.removeprefix("test_") for each in names)
            name += f"_{self._unnamed}" if self._unnamed > 1 else ""
        file = re.sub(r"[^\w.-]+", "-", name.replace("]", "")).strip("-.")[:100] or "unnamed"
        return self._session.folder / self._module() / f"{file}.yaml"

    def _module(self) -> Path:
        """`tests/gpt/test_model.py` -> `gpt/test_model`: two modules of one name have folders of their own."""
        config, path = self._node.config, self._node.path
        roots = [
            *(config.rootpath / each for each in config.getini("testpaths")),
            config.rootpath / "tests",
            config.rootpath,
        ]
        root = next((each for each in roots if path.is_relative_to(each)), path.parent)
        return path.relative_to(root).with_suffix("")


@pytest.fixture
def golden_trace(request: pytest.FixtureRequest) -> GoldenTrace:
    """Compare a model's trace with the one kept in `traces/`: `golden_trace.check(model, *inputs)`."""
    update = request.config.getoption("--update-traces")
    return GoldenTrace(request.config.stash[_KEY], request.node, bool(update))


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("shapetrace")
    group.addoption("--update-traces", action="store_true", help="Rewrite the golden traces that differ.")
    parser.addini("golden_traces", "Folder of the golden traces, from the root directory.", default="traces")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_KEY] = GoldenSession(config.rootpath / config.getini("golden_traces"))


def pytest_deselected(items: list[pytest.Item]) -> None:
    if items:
        items[0].config.stash[_KEY].narrowed = True


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:  # a process of pytest-xdist
        output["shapetrace"] = session.config.stash[_KEY].as_plain()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: Any) -> None:
    plain = getattr(node, "workeroutput", {}).get("shapetrace")
    if plain:
        node.config.stash[_KEY].add(plain)


def pytest_terminal_summary(terminalreporter: Any, exitstatus: int, config: pytest.Config) -> None:
    session = config.stash[_KEY]
    for title, files in _summary(session, config, terminalreporter):
        if files:
            terminalreporter.section(title, sep="-")
            for file in files:
                terminalreporter.line(_relative(file, config.rootpath))


def _summary(session: GoldenSession, config: pytest.Config, reporter: Any) -> Iterator[tuple[str, list[Path]]]:
    yield "golden traces written", [Path(each) for each in sorted(session.rewritten)]
    if session.used and _ran_everything(session, config, reporter):
        yield "golden traces that no test uses", session.unused()


def _ran_everything(session: GoldenSession, config: pytest.Config, reporter: Any) -> bool:
    """Whether a golden trace that was not asked for is asked for by no test: people delete what is listed as unused."""
    narrowing = ("lf", "failedfirst", "newfirst", "ignore", "ignore_glob", "deselect", "keyword", "markexpr", "maxfail")
    chosen = config.args_source is pytest.Config.ArgsSource.ARGS or any(
        config.getoption(each, None) for each in narrowing
    )
    told = {kind for kind, reports in reporter.stats.items() if reports and kind not in ("", "passed", "warnings")}
    return not (chosen or told or session.narrowed)


def _relative(path: Path, root: Path) -> str:
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
