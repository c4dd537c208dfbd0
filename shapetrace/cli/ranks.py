"""A command on several ranks: all of them run it, the first one prints, and all end with the same exit code."""

from __future__ import annotations

import atexit
import os
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from shapetrace.cli import LAUNCHED
from shapetrace.errors import ShapetraceError

if TYPE_CHECKING:
    from shapetrace.parallel.ranks import Ranks

_FIRST = 1  # second: the launcher ends all processes when one has ended with an error, and that is to be the first rank


@contextmanager
def as_one_of_ranks(parallel: str | None) -> Iterator[Ranks]:
    """Inside, other ranks than the first are silent; what fails on one of them alone is told in any case.

    Raises ShapetraceError where `--parallel` is not understood, or nothing has started several processes.
    """
    from shapetrace.parallel.ranks import Ranks
    from shapetrace.parallel.scheme import Scheme

    ranks = Ranks.find(parallel is not None)
    with _alone(ranks) if ranks.size == 1 else _leading(ranks) if ranks.is_first else _following(ranks):
        if parallel is not None:  # inside, so that one rank tells what is wrong with it
            ranks.follow(Scheme.parse(parallel), shlex.join(sys.argv[1:]))
        yield ranks


def with_one_voice(command: click.Command) -> click.Command:
    """A command that knows of no ranks, as one that all of them run and the first one tells of."""
    alike, callback = copy(command), command.callback
    assert callback is not None

    @wraps(callback)
    def run_alike(*args: Any, **options: Any) -> Any:
        with as_one_of_ranks(None):
            return callback(*args, **options)

    alike.callback = run_alike
    return alike


def leave_to_first() -> None:
    """On another rank, where all of them have the same wrong options: end as if all was well, and let the first tell.

    With an error the launcher would end the first one too, which may not have said what is wrong.
    """
    if not is_first_rank():
        raise click.exceptions.Exit(0)


def is_first_rank() -> bool:
    """Whether this process is the one that writes; alone, it is."""
    return not LAUNCHED or os.environ.get("RANK", "0") == "0"


@contextmanager
def _alone(ranks: Ranks) -> Iterator[None]:
    try:
        yield
    finally:
        ranks.leave()


@contextmanager
def _leading(ranks: Ranks) -> Iterator[None]:
    code = 1
    try:
        try:
            yield
        except click.exceptions.Exit as done:
            code = done.exit_code
        else:
            code = 0
        failures = ranks.hear_others(code, lambda text: click.echo(f"note: {text}", err=True))
        for failure in failures:
            click.echo(f"error: {failure}", err=True)
        code = code or int(bool(failures))
    except BrokenPipeError:  # the reader has seen enough
        code = 0
        raise
    except (ShapetraceError, click.ClickException) as error:
        code = getattr(error, "exit_code", 2)
        raise
    finally:
        # After the last line is printed: a launcher may end all processes when one of them has ended with an error.
        atexit.register(ranks.leave)
        atexit.register(ranks.release_others, code)
    raise click.exceptions.Exit(code)


@contextmanager
def _following(ranks: Ranks) -> Iterator[None]:
    from shapetrace.parallel.ranks import ToldByFirst

    loud = sys.stderr

    def note(text: str) -> None:
        click.echo(f"note: {text}", file=loud)

    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 - until the process ends
    failure, own = "", 0
    try:
        yield
    except click.exceptions.Exit as done:
        own = done.exit_code  # why, the first rank tells
    except ToldByFirst:
        pass
    except Exception as error:
        failure = f"{type(error).__name__}: {error}" if not isinstance(error, ShapetraceError) else str(error)
    code = ranks.wait_for_first(failure, own, note)
    if code is None:
        click.echo(f"error: rank {ranks.rank}: {failure or 'rank 0 gives no answer'}", file=loud)
        loud.flush()
        os._exit(1)  # the process group may be in the midst of an exchange that never ends
    ranks.leave()
    if code:
        time.sleep(_FIRST)
    raise click.exceptions.Exit(code)
