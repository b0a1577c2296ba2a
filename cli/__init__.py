"""The command line. Each command is a module, imported when it is called: `ccheck --help` stays fast."""

from __future__ import annotations

import errno
import gc
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import click

from .. import __version__
from ..core.errors import CcheckError, Incomplete, NotFound, UsageError
from ..core.redaction import Redacting
from ..core.text import nearest
from . import opt
from .common import notice, printable, warnings_said

SECTIONS = {
    "Start here": ["demo", "ingest", "query"],
    "Every day": [
        *("history", "show", "correct", "fetch", "figures", "passages"),
        *("index", "recipes", "convert", "config", "doctor"),
    ],
    "Laboratory": ["evaluate", "compare", "calibrate", "mine", "train"],
    "Servers": ["serve", "kibana"],
}
"""Every command, by heading of `ccheck --help`."""
MODULES = {name: f"lab.{name}" for name in SECTIONS["Laboratory"]} | {"passages": "grounding", "figures": "grounding"}
MODULES |= {"show": "history", "correct": "history", "doctor": "config"}
"""Where commands are that have no module of their own name. Only those in `lab/` may import the laboratory."""
COMMANDS = [name for names in SECTIONS.values() for name in names]
COMPLETE = "_CCHECK_COMPLETE"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Commands(opt.LazyGroup):
    """All commands. For an unknown command, the error suggests the most similar one."""

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not context.resilient_parsing:
            known = {name: name for name in COMMANDS} | dict.fromkeys(("ask", "check", "search", "verify"), "query")
            near = nearest(args[0].lower(), known)
            # A claim alone is for `query`.
            if meant := 'ccheck query "CLAIM"' if " " in args[0].strip() else near and repr(known[near]):
                context.fail(f"No such command {printable(args[0])!r}: did you mean {meant}?")
        return super().resolve_command(context, args)

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(context, formatter)
        click.Command.format_options(self, context, formatter)


@click.group(cls=Commands, sections=SECTIONS, modules=MODULES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ccheck", help="Show the version and exit.")
@click.option(
    "--trust-folder",
    is_flag=True,
    help="Apply every setting in this folder's ccheck.toml, for this run only. See ccheck config trust.  "
    "[env: CCHECK_TRUST_FOLDER]",
)
def cli(trust_folder: bool) -> None:
    """Check claims against scientific papers.

    \b
    ccheck demo                                     try it on sample data
    ccheck ingest corpus.jsonl                      add your papers
    ccheck query "sea level has risen about 20 cm since 1900"

    Exit codes: 0 done, 1 a bug in ccheck, 2 wrong usage, 3 an optional package is not installed, 4 a file, store or
    model is missing, 5 invalid data, 6 a server failed, 7 done in part, 130 interrupted.
    """


def main() -> NoReturn:
    """The `ccheck` program."""
    if instruction := os.environ.get(COMPLETE):
        from click.shell_completion import shell_complete

        sys.exit(shell_complete(cli, {}, "ccheck", COMPLETE, instruction))
    _make_streams_safe()
    # Nearly all that a short command makes lives as long as it does. Looking for garbage among it again and again took
    # 4% of the first answer's time.
    gc.set_threshold(50_000)
    # Models calculate one batch a thread (`encode/numpy_bert.py`). The threads that OpenBLAS starts with numpy would
    # only wait for work, busily: a tenth of the first answer's CPU time.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    code = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except OSError:
        # What standard output still holds can't be written; nor should Python try to when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


@warnings_said()
def run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code; errors go to standard error."""
    try:
        # Not cli.main(), which would answer a closed pipe with 1, the code of a bug.
        try:
            with cli.make_context("ccheck", list(arguments)) as context:
                cli.invoke(context)
        finally:
            sys.stdout.flush()
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.UsageError as error:
        error.show()
        return UsageError.exit_code
    except CcheckError as error:
        notice(str(error))
        return error.exit_code
    except (KeyboardInterrupt, click.Abort) as stop:
        notice(str(stop) or "interrupted")
        return 130
    except BrokenPipeError:
        return 0  # the reader of standard output has gone (`ccheck ... | head`): nothing to say
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _FULL:
            notice(f"the output could not be written: {error.strerror}")
            return Incomplete.exit_code
        if isinstance(error, OSError) and error.filename is not None:
            notice(f"{os.fsdecode(error.filename)}: {error.strerror}")  # no permission, a name too long
            return NotFound.exit_code
        if os.environ.get("CCHECK_DEBUG"):
            raise
        notice(
            f"this is a bug in ccheck: {type(error).__name__}: {error}\n"
            "Please report it, with the output of the same command under CCHECK_DEBUG=1."
        )
        return 1
    return 0


def _make_streams_safe() -> None:
    """Unless it goes to a terminal, the output is UTF-8, and no character can stop it. A closed stream is empty.

    Nor does any known secret leave by them.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - as long as the program
        elif mode == "w" and isinstance(stream, io.TextIOWrapper):
            # In JSON, too, \ud800 is how a lone surrogate is written.
            stream.reconfigure(encoding=None if stream.isatty() else "utf-8", errors="backslashreplace")
        if mode == "w":
            setattr(sys, name, Redacting(getattr(sys, name)))
