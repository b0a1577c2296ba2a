"""Files that a command writes beside what it prints: a TREC run, a report page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from ..errors import UsageError

if TYPE_CHECKING:
    from ..types import Result
    from .report import About


@contextmanager
def outputs(run: str | None, report: str | None, about: Callable[[], About]) -> Iterator[Callable[[Result], None]]:
    """Yields what writes a result to the files that were asked for. Raises UsageError where one can't be written.

    An interrupt leaves files of what was done until then.
    """
    interrupt: KeyboardInterrupt | None = None
    writers: list[Callable[[Result], None]] = []
    with ExitStack() as stack:
        if run is not None:
            stream = stack.enter_context(_opened(run))
            writers.append(lambda result: _write_run(stream, result))
        if report is not None:
            from .report import writing_report

            writers.append(stack.enter_context(writing_report(report, about())))

        def write(result: Result) -> None:
            for writer in writers:
                writer(result)

        try:
            yield write
        except KeyboardInterrupt as stop:
            interrupt = stop
    if interrupt is not None:
        raise interrupt


def refuse_overwriting(claims: str, output: str | None) -> None:
    if output is not None and Path(output).exists() and Path(claims).exists() and Path(output).samefile(claims):
        raise UsageError(f"nothing can be written to {output}: the claims are read from it")


def _opened(file: str) -> IO[str]:
    if file == "-":
        raise UsageError("--run needs the name of a file: the answers are on standard output")
    try:
        return Path(file).open("w", encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise UsageError(f"the run {file} can't be written: {error.strerror}") from error


def _write_run(run: IO[str], result: Result) -> None:
    from ..evaluation.runs import trec_lines

    ranking = [(evidence.document.id, evidence.hit.score) for evidence in result.evidence]
    run.writelines(trec_lines(result.claim.id or "1", ranking, result.recipe))
