"""CSV and TSV with a header line."""

from __future__ import annotations

import csv
from collections import Counter, deque
from collections.abc import Iterator

from ..core.text import TEXT_CHARS, is_unicode
from .lines import Line
from .records import NOT_UTF8, Record, Reject, excerpt
from .sources import Source

FIELD_CHARS = TEXT_CHARS
"""A quoted field, or a row, that does not end within this many characters was never closed."""
WASTED_CHARS = 16 * FIELD_CHARS
"""When so much was read twice for rows that were never closed, the rest of the file has a row on each line."""
_NOT_CLOSED = "a quoted field has no closing quote"


def read_table(source: Source, lines: Iterator[Line], delimiter: str) -> Iterator[Record | Reject]:
    """The rows as records of text; empty cells are None. A bad row costs itself only."""
    rows = _rows(source, lines, delimiter)
    header = next((row for row in rows), None)
    if header is None:
        return
    if isinstance(header, Reject):
        yield header
        return
    names = [name.strip().strip("\ufeff") or f"column_{number}" for number, name in enumerate(header[1], 1)]
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        yield Reject(source.name, header[0], f"the header has the column {twice[0]!r} twice. The file was skipped")
        return
    for row in rows:
        if isinstance(row, Reject):
            yield row
            continue
        number, cells = row
        if len(cells) != len(names):
            reason = f"the row has {len(cells)} columns and the header {len(names)}"
            yield Reject(source.name, number, reason, excerpt(delimiter.join(cells)))
            continue
        data = {name: cell or None for name, cell in zip(names, cells, strict=True)}
        yield Record(source.name, number, data, untyped=True)


def _rows(source: Source, lines: Iterator[Line], delimiter: str) -> Iterator[tuple[int, list[str]] | Reject]:
    """Each row with the number of the line on which it begins.

    A row with a stray quote would swallow the rows after it. So the lines of a row that makes no sense are taken
    back, its first is a reject, and reading goes on with the second.
    """
    csv.field_size_limit(max(csv.field_size_limit(), FIELD_CHARS))
    waiting: deque[Line] = deque()
    taken: list[Line] = []
    wasted = 0
    ended = False

    def feed() -> Iterator[str]:
        nonlocal ended
        size = 0
        while (line := waiting.popleft() if waiting else next(lines, None)) is not None:
            if not taken:
                size = 0
            if line.problem or (taken and size > (FIELD_CHARS if wasted < WASTED_CHARS else 0)):
                waiting.appendleft(line)
                raise csv.Error(_NOT_CLOSED)
            taken.append(line)
            size += len(line.data)
            yield line.data.decode("utf-8", "surrogateescape") + "\n"
        ended = True

    rows = csv.reader(feed(), delimiter=delimiter, strict=True)
    while True:
        if not waiting:
            waiting.extend(line for line in [next(lines, None)] if line)
        if not waiting:
            return
        first = waiting[0]
        if first.problem:
            waiting.popleft()
            yield Reject(source.name, first.number, first.problem, excerpt(first.data))
            continue
        taken.clear()
        ended = False
        try:
            row = next(rows)
        except csv.Error as error:
            wasted += sum(len(line.data) for line in taken[1:])
            waiting.extendleft(reversed(taken[1:]))
            rows = csv.reader(feed(), delimiter=delimiter, strict=True)
            row = _unquoted(first, delimiter)
            if not row:
                # Who looked for the end of a field in the lines after it, or at the end of the file, did not find it.
                reason = _NOT_CLOSED if len(taken) > 1 or ended else str(error)
                yield Reject(source.name, first.number, f"not valid CSV: {reason}", excerpt(first.data))
                continue
        if not any(cell.strip() for cell in row):
            continue
        if is_unicode("".join(row)):
            yield first.number, row
        else:
            yield Reject(source.name, first.number, NOT_UTF8, excerpt(b"\n".join(line.data for line in taken)))


def _unquoted(line: Line, delimiter: str) -> list[str]:
    """TSV is often written without any quoting: a line whose quotes make no sense is taken as it is."""
    return line.data.decode("utf-8", "surrogateescape").split(delimiter) if delimiter == "\t" else []
