"""Files that a query writes beside what it prints: a TREC run, a report page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

from ..core.files import writing
from .common import notice

if TYPE_CHECKING:
    from ..core.types import Result
    from ..web.report import About

RUN, REPORT = "the run", "the report"
"""The names of the files in messages."""


class _Nothing(Exception):
    """There is no result to write."""


@contextmanager
def outputs(run: str | None, report: str | None, about: Callable[[], About]) -> Iterator[Callable[[Result], None]]:
    """Yields what writes a result to the files that were asked for. Raises UsageError if one can't be written.

    An interrupt leaves files of what was done until then. If nothing was done, what was there before stays, with a
    notice.
    """
    interrupt: KeyboardInterrupt | None = None
    writers: list[Callable[[Result], None]] = []
    done = 0
    with suppress(_Nothing), ExitStack() as stack:
        if run is not None:
            from ..core.trec import result_lines

            stream = stack.enter_context(writing(run, RUN))
            writers.append(lambda result: stream.writelines(result_lines(result)))
        if report is not None:
            from ..web.report import writing_report

            writers.append(stack.enter_context(writing_report(report, about())))

        def write(result: Result) -> None:
            nonlocal done
            for writer in writers:
                writer(result)
            done += 1

        try:
            yield write
        except KeyboardInterrupt as stop:
            interrupt = stop
        if not done:
            if files := " and ".join(file for file in (run, report) if file is not None):
                notice(f"no claim was checked, so nothing was written to {files}. What was there before is unchanged")
            raise _Nothing
    if interrupt is not None:
        raise interrupt
