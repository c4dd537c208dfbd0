"""The command line: options, one library call, one print."""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from typing import Any

import click

from shapetrace.errors import ShapetraceError

# Each in a file of its name, in the order in which one needs them.
COMMANDS = ("run", "annotate", "check", "params", "tokens", "attention", "generate", "diff", "compare", "show")

LAUNCHED = "TORCHELASTIC_RUN_ID" in os.environ  # by torchrun, as one of several processes
_INTERRUPTED = 130  # as a shell says of what Ctrl-C has ended; 1 is what differs, or has raised
_OF_RANKS = ("run", "diff")  # which see to them


class _BadInput(click.ClickException):
    """A ShapetraceError as the command line tells it."""

    exit_code = 2

    def show(self, file: Any = None) -> None:
        click.echo(f"error: {self.message}", err=True)


class _Commands(click.Group):
    """Commands that are imported when they are asked for, and errors without a traceback."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command: click.Command = getattr(import_module(f"shapetrace.cli.{name}"), name)
        if LAUNCHED and name not in _OF_RANKS:
            from shapetrace.cli.ranks import with_one_voice

            return with_one_voice(command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError:
            _leave_to_first()
            raise
        except KeyboardInterrupt:
            click.echo("Aborted!", err=True)
            ctx.exit(_INTERRUPTED)
        except ShapetraceError as error:
            _leave_to_first()
            raise _BadInput(str(error)) from None
        except BrokenPipeError:
            # The reader, such as `head`, has seen enough. Python would complain once more when it flushes on exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)
        except OSError as error:  # of printing: what reads and writes files tells its own
            raise _BadInput(f"cannot print: {error.strerror or error}") from None


def _leave_to_first() -> None:
    if LAUNCHED:
        from shapetrace.cli.ranks import leave_to_first

        leave_to_first()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="shapetrace")
def main() -> None:
    """Trace the shapes of a transformer: every named tensor, in order, with the comment its author gave it."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that has no such character shows a `?`


def launch(prog_name: str | None = None) -> None:
    """The command in a process of its own, which looks rarely for garbage that it cannot count, and not at its end.

    An import makes very many objects and leaves no such garbage: the search takes a tenth of the time of torch's.
    """
    gc.set_threshold(100_000, 20, 20)
    try:
        if {"--help", "-h", "--version"} & set(sys.argv):
            _leave_to_first()
        main(prog_name=prog_name)
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except OSError as error:  # of what is printed before any command
        click.echo(f"error: cannot print: {error.strerror or error}", err=True)
        sys.exit(2)
    finally:
        gc.freeze()
