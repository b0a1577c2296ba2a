"""The command line. Each command is a module, imported when it is called: `ccheck --help` stays fast."""

from __future__ import annotations

import importlib
import os
import sys
from typing import NoReturn

import click

from .. import __version__
from ..errors import CcheckError

COMMANDS = {
    "demo": "Ingest the sample corpus and answer a claim.",
    "ingest": "Read papers into a store.",
    "query": "Check a claim against the papers of a store.",
    "index": "Look at stores, rebuild or delete them.",
    "recipes": "List, show or check recipes.",
    "config": "Show the settings and where each came from.",
    "doctor": "Say what works here, what does not, and what to do.",
}
"""Every command with its line in `ccheck --help`."""


class LazyGroup(click.Group):
    """Knows its commands' names and help lines without importing them."""

    def list_commands(self, context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        command = getattr(importlib.import_module(f".{name}", __name__), name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ccheck")
def cli() -> None:
    """Check claims against scientific papers.

    \b
    ccheck demo                                     see it work
    ccheck ingest corpus.jsonl                      read your papers
    ccheck query "sea level has risen 20 cm since 1900"

    Exit codes: 0 done, 1 a bug, 2 usage, 3 an optional part is not installed, 4 something is missing, 5 invalid data,
    6 a server failed, 7 done in part, 130 interrupted.
    """


def main() -> NoReturn:
    """The `ccheck` program."""
    try:
        cli.main(standalone_mode=False, prog_name="ccheck")
        sys.exit(0)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.UsageError as error:
        error.show()
        sys.exit(2)
    except CcheckError as error:
        click.echo(f"ccheck: {error}", err=True)
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        click.echo("ccheck: interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:
        # The reader of standard output has gone (`ccheck ... | head`): nothing to say, and nothing left to flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except Exception as error:
        if os.environ.get("CCHECK_DEBUG"):
            raise
        click.echo(
            f"ccheck: a bug: {type(error).__name__}: {error}\n"
            "Please report it, with what CCHECK_DEBUG=1 prints when you run the same command again.",
            err=True,
        )
        sys.exit(1)
