"""Records of files of claims, judgements and pairs, whose format is told by their content.

JSON Lines, JSON, CSV, TSV, TREC's, Parquet.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..core.errors import InvalidData, NotFound
from ..core.files import no_file
from .kinds import Compression, Format
from .lines import read_lines
from .readers import read_sources
from .records import LINE_BYTES, NOT_UTF8, Record, Reject
from .sources import STDIN, Source, find_sources

SHOWN = 5
"""How many bad lines a message lists."""
_MAGIC: dict[bytes, Compression] = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
JSON_LINES = (".jsonl", ".ndjson")
_PICKLE = tuple(bytes([0x80, protocol]) for protocol in range(2, 6))


def records_of(
    path: str | os.PathLike[str], columns: frozenset[str], *, by_name: bool = False
) -> Iterator[Record | Reject]:
    """The records of a file, plain or compressed, or of standard input (`-`, JSON Lines), bad ones as a `Reject`.

    In a table without a header the keys are the numbers of the columns, from 0: "0", "1". It has a header where its
    first row has one of `columns`. `by_name`: a file called .jsonl or .ndjson is JSON Lines, also where its first line
    is not. Raises, at once, NotFound, UsageError, and InvalidData for a pickle.
    """
    source, start = _opened(os.fspath(path))
    if by_name and start and os.fspath(path).lower().removesuffix(".gz").removesuffix(".zst").endswith(JSON_LINES):
        start = b"{"
    if start is None:
        return iter(())
    # A claim a line; with tabs they are TREC's topics, and with the names of columns a table.
    alone = by_name and os.fspath(path).lower().removesuffix(".gz").removesuffix(".zst").endswith(".txt")
    return _records(source, start, columns, alone=alone)


def read_records(path: str | os.PathLike[str], columns: frozenset[str]) -> Iterator[Record]:
    """The records of a file; see `records_of`.

    Raises NotFound, UsageError, MissingExtra (Parquet without pyarrow), and InvalidData for an empty file or, with
    their numbers and reasons, for bad lines.
    """
    problems: list[str] = []
    bad = records = 0
    for record in records_of(path, columns):
        records += 1
        if isinstance(record, Record):
            if not bad:
                yield record
            continue
        bad += 1
        if bad <= SHOWN:
            problems.append(f"line {record.line}: {record.reason}" if record.line else record.reason)
    if bad:
        raise bad_lines(path, problems, bad)
    if not records:
        raise InvalidData(f"{os.fspath(path)} is empty")


def take_all(path: str | os.PathLike[str], columns: frozenset[str], take: Callable[[Record, int], None]) -> None:
    """Give each record of a file to `take` with its number, from 1; see `read_records`.

    What it finds wrong (InvalidData) is raised together, with line numbers.
    """
    problems: list[str] = []
    bad = 0
    for number, record in enumerate(read_records(path, columns), 1):
        try:
            take(record, number)
        except InvalidData as error:
            bad += 1
            if bad <= SHOWN:
                problems.append(f"line {record.line}: {error}")
    if bad:
        raise bad_lines(path, problems, bad)


def bad_lines(path: str | os.PathLike[str], problems: list[str], count: int) -> InvalidData:
    """The error for lines that can't be used: the first of them with their reasons."""
    shown = "; ".join(problems[:SHOWN])
    more = f"; and {count - SHOWN:,} more" if count > SHOWN else ""
    return InvalidData(f"{os.fspath(path)} can't be used: {shown}{more}. Correct or remove these lines")


def _opened(name: str) -> tuple[Source, bytes | None]:
    """The file as a source, by its first bytes, and its first line that is not blank; None if there is none."""
    path = Path(name).expanduser()
    if name == STDIN or (path.exists() and not path.is_file() and not path.is_dir()):  # also a shell's <(command)
        (source,) = find_sources(name)
        return source, b"{"
    if path.is_dir():
        raise NotFound(f"{path} is a folder. Name a file in it")
    try:
        with path.open("rb") as stream:
            head = stream.read(4)
    except FileNotFoundError as error:
        raise no_file(path) from error
    except OSError as error:
        raise NotFound(f"{path} can't be read: {error.strerror}") from error
    if head.startswith(_PICKLE) or path.suffix in (".pkl", ".pickle"):
        convert = f"pandas.read_pickle('{path}').to_json('{path.stem}.jsonl', orient='records', lines=True)"
        raise InvalidData(
            f"{path} is a pickle, which ccheck does not read: loading a pickle can run any code. If you trust its "
            f'author, convert it with python -c "import pandas; {convert}" and use the new file'
        )
    if head == b"PAR1":
        return Source(str(path), path, "parquet"), b""
    compression = next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None)
    source = Source(str(path), path, "jsonl", compression)
    first = next((line for line in read_lines(source, _ignore, LINE_BYTES) if line.problem or line.data.strip()), None)
    if first is None:
        return source, None
    if compression and first.data.startswith(b"PAR1"):
        return Source(str(path), path, "parquet", compression), b""
    return source, b"{" if first.problem else first.data


def _records(
    source: Source, start: bytes, columns: frozenset[str], *, alone: bool = False
) -> Iterator[Record | Reject]:
    if source.path is None or source.format == "parquet":
        yield from read_sources([source])
    elif start.lstrip().startswith((b"{", b"[")):
        yield from read_sources([_as(source, "json")])
    else:
        first = start.decode("utf-8", "replace")
        known = {column.casefold() for column in columns}
        cut = (one for one in "\t,;|" if known & {cell.casefold() for cell in _cells(first, one)})
        delimiter = next(cut, None)
        if delimiter is not None:
            table = replace(_as(source, "tsv" if delimiter == "\t" else "csv"), delimiter=delimiter)
            yield from (_with_known_names(one, columns) for one in read_sources([table]))
        elif alone and "\t" not in first:
            yield from _lines_alone(source)
        else:
            yield from _without_header(source, "\t" in first)


def _with_known_names(record: Record | Reject, columns: frozenset[str]) -> Record | Reject:
    """The record with the names of columns as they are known: `Claim` is `claim`."""
    if isinstance(record, Reject) or not any(
        name not in columns and name.casefold() in columns for name in record.data
    ):
        return record
    names = {name: name.casefold() if name.casefold() in columns else name for name in record.data}
    return replace(record, data={names[name]: value for name, value in record.data.items()})


def _lines_alone(source: Source) -> Iterator[Record | Reject]:
    """Each line that is not blank as a text."""
    for line in read_lines(source, _ignore, LINE_BYTES):
        try:
            text = line.data.decode("utf-8").strip()
        except UnicodeDecodeError:
            yield Reject(source.name, line.number, NOT_UTF8)
            continue
        if line.problem:
            yield Reject(source.name, line.number, line.problem)
        elif text:
            yield Record(source.name, line.number, {"text": text})


def _cells(line: str, delimiter: str) -> list[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter), [])]
    except csv.Error:
        return []  # no header, at any rate


def _without_header(source: Source, tabs: bool) -> Iterator[Record | Reject]:
    """TREC's files: cells between tabs or, where the first line has none, blanks. Quotes mean nothing."""
    for line in read_lines(source, _ignore, LINE_BYTES):
        if line.problem:
            yield Reject(source.name, line.number, line.problem)
            continue
        try:
            text = line.data.decode("utf-8")
        except UnicodeDecodeError:
            yield Reject(source.name, line.number, NOT_UTF8)
            continue
        if not text.strip():
            continue
        cells = [cell.strip() for cell in text.split("\t")] if tabs else text.split()
        data: dict[str, Any] = {str(number): cell for number, cell in enumerate(cells)}
        yield Record(source.name, line.number, data, untyped=True)


def _as(source: Source, kind: Format) -> Source:
    return Source(source.name, source.path, kind, source.compression)


def _ignore(count: int) -> None:
    """Nobody waits for these bytes."""
