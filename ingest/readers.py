"""Reading records from JSON Lines, JSON, CSV, TSV and Parquet, plain or compressed, in constant memory.

What can't be read is a `Reject` in its place, and reading goes on with the next line; where a file breaks off, what
came before it stays.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..text import is_unicode
from .lines import Line, read_lines
from .parquet import read_parquet
from .records import LINE_BYTES, NOT_UTF8, RECORD_CHARS, Record, Reject, excerpt
from .sources import Given, Source, find_sources
from .tables import read_table


def read(
    sources: Given,
    *,
    on_bytes: Callable[[int], None] | None = None,
    line_bytes: int = LINE_BYTES,
) -> Iterator[Record | Reject]:
    """The records of files, folders, globs and `-` (standard input).

    Raises NotFound or UsageError at once, before anything is read. `on_bytes` is told how many bytes were consumed
    since it was last called; `Source.size` says how many there are.
    """
    found = find_sources(sources)
    return itertools.chain.from_iterable(
        read_source(source, on_bytes=on_bytes, line_bytes=line_bytes) for source in found
    )


def read_source(
    source: Source, *, on_bytes: Callable[[int], None] | None = None, line_bytes: int = LINE_BYTES
) -> Iterator[Record | Reject]:
    """The records of one file. Raises MissingExtra for Parquet without pyarrow."""
    count = on_bytes or (lambda size: None)
    try:
        if source.format == "parquet":
            yield from read_parquet(source, count)
            return
        lines = read_lines(source, count, line_bytes)
        if source.format in ("csv", "tsv"):
            yield from read_table(source, lines, "," if source.format == "csv" else "\t")
        elif source.format == "json":
            yield from _read_json(source, lines, line_bytes)
        else:
            yield from _read_json_lines(source, lines)
    except OSError as error:
        yield Reject(source.name, 0, f"the file can't be read: {error.strerror or error}")


# NaN and Infinity are no JSON, but Python writes them for missing numbers: they count as absent.
_DECODER = json.JSONDecoder(parse_constant=lambda name: None)


def _read_json_lines(source: Source, lines: Iterable[Line]) -> Iterator[Record | Reject]:
    for line in lines:
        if line.problem:
            yield Reject(source.name, line.number, line.problem, excerpt(line.data))
        elif not line.data or line.data.isspace():
            continue
        else:
            data = _parse(line.data)
            if isinstance(data, str):
                yield Reject(source.name, line.number, data, excerpt(line.data))
            else:
                yield Record(source.name, line.number, data)


def _parse(line: bytes) -> dict[str, Any] | str:
    """The object on a line, or what is wrong with it."""
    try:
        value = _DECODER.decode(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        return _why(error)
    return value if isinstance(value, dict) else _not_object(value)


def _not_object(value: object) -> str:
    kind = {list: "an array", str: "a string", type(None): "null"}.get(type(value), "a number or boolean")
    return f"expected a JSON object, got {kind}"


def _why(error: ValueError | RecursionError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"{NOT_UTF8}: {error.reason} at byte {error.start + 1}"
    if isinstance(error, json.JSONDecodeError):
        return f"not valid JSON: {error.msg} at character {error.pos + 1}"
    if isinstance(error, RecursionError):
        return "the JSON is nested too deeply"
    return "the JSON has a number with too many digits"  # Python's limit, sys.get_int_max_str_digits()


def _read_json(source: Source, lines: Iterator[Line], limit: int) -> Iterator[Record | Reject]:
    """JSON Lines, or else one array or object over several lines, which is read whole and so has a limit."""
    first = next((line for line in lines if line.problem or line.data.strip()), None)
    if first is None:
        return
    lines = itertools.chain([first], lines)
    array = first.data.lstrip().startswith(b"[")
    if not array and (first.problem or isinstance(_parse(first.data), dict)):
        yield from _read_json_lines(source, lines)
        return
    taken, size = [], 0
    for line in lines:
        taken.append(line)
        size += len(line.data) + 1
        if size > limit or line.problem:
            break
    broken = next((line for line in taken if line.problem and size <= limit), None)
    text = b"\n".join(line.data for line in taken).decode("utf-8", "surrogateescape")
    if size > limit and array:
        reason = f"the array has more than {limit:,} bytes. Convert it to JSON Lines: jq -c '.[]' FILE > FILE.jsonl"
        yield Reject(source.name, first.number, reason, excerpt(first.data))
    elif array or (size <= limit and _starts_with_object(text)):
        yield from _values(source, text, first.number, broken)
    else:
        # JSON Lines after all, of which the first is bad.
        yield from _read_json_lines(source, itertools.chain(taken, lines))


_BETWEEN = re.compile(r"[\s,]*")


def _starts_with_object(text: str) -> bool:
    try:
        return isinstance(_DECODER.raw_decode(text.lstrip())[0], dict)
    except (ValueError, RecursionError):
        return False


def _values(source: Source, text: str, line: int, broken: Line | None) -> Iterator[Record | Reject]:
    """The objects of an array, or those that follow each other. What comes before a break in the file is still good."""
    array = text.lstrip().startswith("[")
    position = text.index("[") + 1 if array else 0
    counted = 0
    while True:
        position = _BETWEEN.match(text, position).end()  # type: ignore[union-attr]
        line += text.count("\n", counted, position)
        counted = position
        if position == len(text) and not array and not broken:
            return
        if array and text.startswith("]", position):
            array, position = False, position + 1
            continue
        try:
            value, end = _DECODER.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            reason = (broken and broken.problem) or f"{_why(error)}. The rest of the file was skipped"
            yield Reject(source.name, line, reason, excerpt(text[position : position + RECORD_CHARS]))
            return
        if not is_unicode(text[position:end]):
            yield Reject(source.name, line, NOT_UTF8, excerpt(text[position:end]))
        elif isinstance(value, dict):
            yield Record(source.name, line, value)
        else:
            yield Reject(source.name, line, _not_object(value), excerpt(text[position:end]))
        position = end
