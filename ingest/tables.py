"""CSV and TSV with a header line."""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Iterator

from .lines import Line
from .readers import NOT_UTF8, Record, Reject, excerpt, is_utf8
from .sources import Source

FIELD_CHARS = 4_000_000
"""A quoted field that does not end within this many characters was never closed."""


def read_table(source: Source, lines: Iterator[Line], delimiter: str) -> Iterator[Record | Reject]:
    """The rows as records of text; empty cells are None. A bad row costs itself only."""
    rows = _rows(source, lines, delimiter)
    header = next((row for row in rows), None)
    if header is None:
        return
    if isinstance(header, Reject):
        yield header
        return
    names = [name.strip() or f"column_{number}" for number, name in enumerate(header[1], 1)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        yield Reject(source.name, header[0], f"the header has the column {twice[0]!r} twice; the file is left out")
        return
    for row in rows:
        if isinstance(row, Reject):
            yield row
            continue
        number, cells = row
        if len(cells) != len(names):
            reason = f"{len(cells)} columns where the header has {len(names)}"
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

    def feed() -> Iterator[str]:
        while (line := waiting.popleft() if waiting else next(lines, None)) is not None:
            if line.problem:
                waiting.appendleft(line)
                raise csv.Error("a quoted field is not closed")
            taken.append(line)
            yield line.data.decode("utf-8", "surrogateescape") + "\n"

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
        try:
            row = next(rows)
        except csv.Error as error:
            waiting.extendleft(reversed(taken[1:]))
            rows = csv.reader(feed(), delimiter=delimiter, strict=True)
            row = _unquoted(first, delimiter)
            if not row:
                yield Reject(source.name, first.number, f"not valid CSV: {_plain(error)}", excerpt(first.data))
                continue
        if not any(cell.strip() for cell in row):
            continue
        if is_utf8("".join(row)):
            yield first.number, row
        else:
            yield Reject(source.name, first.number, NOT_UTF8, excerpt(b"\n".join(line.data for line in taken)))


def _unquoted(line: Line, delimiter: str) -> list[str]:
    """TSV is often written without any quoting: a line whose quotes make no sense is taken as it is."""
    return line.data.decode("utf-8", "surrogateescape").split(delimiter) if delimiter == "\t" else []


def _plain(error: csv.Error) -> str:
    if "unexpected end" in str(error) or "field limit" in str(error):
        return "a quoted field is not closed"
    return str(error)
