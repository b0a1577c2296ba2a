"""What progress looks like on a terminal."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from cli_runs import ESCAPE

from ccheck.cli.progress import ingest_progress, notifier, progress_bar
from ccheck.ingest import Progress


class Terminal(io.StringIO):
    """A terminal that keeps what was written to it."""

    def isatty(self) -> bool:
        return True

    @property
    def lines(self) -> list[str]:
        """What stood in a line when the next one began, or the line was drawn anew."""
        return [line.rstrip() for line in re.split(r"[\r\n]+", ESCAPE.sub("", self.getvalue())) if line.strip()]


@contextmanager
def on_terminal() -> Iterator[Terminal]:
    # Not a fixture: pytest puts its own stream in place when the test is called.
    with pytest.MonkeyPatch.context() as patch:
        made = Terminal()
        patch.setattr(sys, "stderr", made)
        for name, value in (("TERM", "xterm"), ("COLUMNS", "120"), ("NO_COLOR", "1")):
            patch.setenv(name, value)
        yield made


def test_what_is_said_beside_a_bar_has_a_line_of_its_own():
    with on_terminal() as terminal:
        say = notifier()
        with progress_bar("checking", unit="claims") as update:
            update(1, 4)
            say("loading a model")
            update(2, 4)
        assert "loading a model …" in terminal.lines
        say("later")
        assert terminal.lines[-1] == "later …"


def test_no_rate_before_the_first_document():
    with on_terminal() as terminal:
        with ingest_progress() as show:
            show(Progress("reading", 0, 0, 500, 1000))
        assert terminal.lines and not any("documents" in line for line in terminal.lines)
        with ingest_progress() as show:
            show(Progress("writing", 3, 0, 500, 1000))
        assert any("3 documents" in line for line in terminal.lines)
