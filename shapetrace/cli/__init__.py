"""The command line: options, one library call, one print."""

from __future__ import annotations

import os
import sys
from typing import Any

import click

from shapetrace.cli.annotate import annotate
from shapetrace.cli.attention import attention
from shapetrace.cli.check import check
from shapetrace.cli.compare import compare
from shapetrace.cli.diff import diff
from shapetrace.cli.generate import generate
from shapetrace.cli.params import params
from shapetrace.cli.run import run
from shapetrace.cli.show import show
from shapetrace.cli.tokens import tokens
from shapetrace.errors import ShapetraceError


class _BadInput(click.ClickException):
    """A ShapetraceError as the command line tells it."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        click.echo(f"error: {self.message}", err=True)


class _Commands(click.Group):
    """Commands in the order in which one needs them, and errors without a traceback."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except ShapetraceError as error:
            raise _BadInput(str(error)) from None
        except BrokenPipeError:
            # The reader, such as `head`, has seen enough. Python would complain once more when it flushes on exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)
        except OSError as error:  # of printing: what reads and writes files tells its own
            raise _BadInput(f"cannot print: {error.strerror or error}") from None


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="shapetrace")
def main() -> None:
    """Trace the shapes of a transformer: every named tensor, in order, with the comment its author gave it."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that has no such character shows a `?`


for _command in (run, annotate, check, params, tokens, attention, generate, diff, compare, show):
    main.add_command(_command)
