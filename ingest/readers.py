"""Reading records from files of all formats, plain or compressed, in constant memory unless a file is one document.

What can't be read is a `Reject` in its place, and reading goes on with the next line; where a file breaks off, what
came before it stays.
"""

from __future__ import annotations

import codecs
import csv
import itertools
import json
import os
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from ..articles import Article
from ..articles.types import article_of_record
from ..articles.xml import FORMATS, article_id
from ..core.child import Child
from ..core.errors import MissingExtra, NotFound, UsageError, why_unread
from ..core.text import TEXT_CHARS, is_unicode
from .apart import FUNCTION, members, read_apart, unpacked
from .fields import Fields
from .lines import Line, decompressed, raw_chunks, read_lines, told_by
from .records import FULL_TEXTS, LINE_BYTES, NOT_UTF8, RECORD_CHARS, TO_UTF8, Record, Reject, excerpt
from .shapes import papers
from .sniff import LINES, TABLES, likely_delimiter, sniff_encoding
from .sources import Given, Source, find_sources


def read(sources: Given) -> Iterator[Record | Reject]:
    """The records of papers in files, folders, globs and `-` (standard input).

    Raises NotFound or UsageError at once, before anything is read.
    """
    return papers(read_sources(find_sources(sources)), Fields())


def read_sources(
    sources: Iterable[Source],
    *,
    on_bytes: Callable[[int], None] = lambda size: None,
    on_notice: Callable[[str], None] = lambda said: None,
    wants: Callable[[str], bool] = lambda name: True,
) -> Iterator[Record | Reject]:
    """The records of files, as they have them.

    `on_bytes` is told how many bytes were consumed since it was last called; `Source.size` says how many there are.
    `on_notice` is told what was assumed about a file. `wants`: whether to read a member of an archive, by its name.
    Raises MissingExtra for Parquet, HTML, PDF, Word and Excel without what reads them.
    """
    with Child(FUNCTION) as child:
        reading = _Reading(child, on_notice, wants)
        for source in sources:
            yield from _read_source(source, reading, on_bytes)


_OF_ARTICLES = re.compile(r"\.(?:xml|nxml|jats|tei)(?:\.gz|\.zst)?$", re.IGNORECASE)
_ARTICLES_SAID = f"ccheck reads {FORMATS}. Convert PDF files to TEI with GROBID (https://grobid.readthedocs.io)"


def full_texts(path: str | os.PathLike[str], only: frozenset[str] | None = None) -> Iterator[Article | Reject]:
    """The articles of a file, a folder (with its subfolders) or a ZIP archive, in the order of their names.

    `only` names the ids that are wanted. What can't be read is a reject in its place. Raises NotFound if there is no
    such file or nothing in it that could be an article, UsageError for a file of an unknown kind.
    """

    def wants(name: str) -> bool:
        return _OF_ARTICLES.search(name) is not None and (only is None or article_id(name) in only)

    sources = [one for one in find_sources(path) if one.format in ("xml", "zip")]
    if not sources:
        raise NotFound(f"{os.fspath(path)} has no articles. {_ARTICLES_SAID}")
    # The name of a file that is known by how it begins need not tell its id.
    wanted = [one for one in sources if one.format == "zip" or not _OF_ARTICLES.search(one.name) or wants(one.name)]
    for record in papers(read_sources(wanted, wants=wants), Fields()):
        if isinstance(record, Reject):
            yield record
        elif record.kind != FULL_TEXTS:
            yield Reject(record.file, record.line, f"it is not a full text. {_ARTICLES_SAID}")
        elif only is None or record.data["_id"] in only:
            yield article_of_record(record.data)


@dataclass(frozen=True, slots=True)
class _Reading:
    """What is the same for all files."""

    child: Child
    notice: Callable[[str], None]
    wants: Callable[[str], bool]


def _read_source(source: Source, reading: _Reading, count: Callable[[int], None]) -> Iterator[Record | Reject]:
    line = 0
    try:
        for record in _read_format(source, reading, count):
            line = record.line
            yield record
    except (MissingExtra, UsageError):
        raise
    except OSError as error:
        yield Reject(source.name, line, f"the file can't be read: {error.strerror or error}")
    except Exception as error:  # noqa: BLE001 - whatever a stranger's file does to its reader, what came before stands
        why = f"the file can't be read on ({why_unread(error)}). The rest of the file was skipped"
        yield Reject(source.name, line + 1, why)


def _read_format(source: Source, reading: _Reading, count: Callable[[int], None]) -> Iterator[Record | Reject]:
    chunks = raw_chunks(source, count)
    if source.format is None:
        source, chunks = _told_by_start(source, chunks)
    if source.format == "zip":
        with unpacked(source, chunks) as file:
            for one in members(source, file, reading.wants):
                if isinstance(one, Reject):
                    yield one
                elif one.format == "zip":
                    yield Reject(one.name, 0, "an archive in an archive is not read. Unpack the outer one first")
                else:
                    yield from _read_source(one, reading, lambda size: None)
        return
    if source.format not in ("xml", "html", "pdf", "docx", "xlsx", "parquet"):
        source = _with_encoding(source, reading.notice)
    if source.format in LINES:
        yield from _read_text(source, chunks, reading)
    else:
        yield from read_apart(source, chunks, count, reading.child)


def _read_text(source: Source, chunks: Iterable[bytes], reading: _Reading) -> Iterator[Record | Reject]:
    lines = read_lines(source, chunks=chunks)
    if source.format in TABLES:
        delimiter, lines = _delimiter(source, lines)
        if delimiter != _USUAL[str(source.format)] and source.delimiter is None:
            reading.notice(f"{source.name}: cells are separated by {_CALLED[delimiter]}")
        yield from read_table(source, lines, delimiter)
    elif source.format == "json":
        yield from _read_json(source, lines)
    elif source.format == "txt":
        yield from _read_txt(source, lines)
    else:
        yield from _read_json_lines(source, lines)


def _told_by_start(source: Source, chunks: Iterator[bytes]) -> tuple[Source, Iterator[bytes]]:
    """The source with the format that its first bytes tell: of standard input, say."""
    start = b""
    for chunk in chunks:
        start += chunk
        if len(start) >= 1 << 12:
            break
    format_, compression = told_by(start, source.compression)
    # A line of JSON that is damaged is still JSON Lines, and so is whatever else nobody knows.
    told = replace(source, format="jsonl" if format_ in ("txt", None) else format_, compression=compression)
    return told, itertools.chain([start] if start else [], chunks)


_USUAL = {"csv": ",", "tsv": "\t"}
_CALLED = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
_HEAD_LINES = 100
_NAMED = re.compile(rb'"?sep=([,;\t|])"?\s*', re.IGNORECASE)


def _delimiter(source: Source, lines: Iterator[Line]) -> tuple[str, Iterator[Line]]:
    """The character between cells, and the lines. Without the user's choice, it is the one that a first line of Excel's
    names (`sep=;`), or that makes most of the first lines rows."""
    head = list(itertools.islice(lines, _HEAD_LINES))
    named = _NAMED.fullmatch(head[0].data) if head else None
    lines = itertools.chain(head[1:] if named else head, lines)
    if named or source.delimiter is not None:
        return source.delimiter or named[1].decode(), lines  # type: ignore[index]
    text = "\n".join(line.data.decode("utf-8", "replace") for line in head if not line.problem)
    return likely_delimiter(text, _USUAL[str(source.format)]), lines


def _with_encoding(source: Source, notice: Callable[[str], None]) -> Source:
    """The source with the encoding of its text, if that is not UTF-8. JSON is UTF-8 or begins as UTF-16 does."""
    if source.encoding is not None:
        encoding = codecs.lookup(source.encoding).name
        return replace(source, encoding=None if encoding == "utf-8" else encoding)
    if source.path is None or source.size is None:
        return source
    chunks = decompressed(raw_chunks(source, lambda size: None), source.compression)
    try:
        is_json = source.format in ("json", "jsonl")
        found = sniff_encoding(itertools.islice(chunks, 1) if is_json else chunks)
    except OSError:
        return source  # reading says what is wrong
    if is_json and (found is None or not found.startswith(("utf-16", "utf-32"))):
        return source
    if found is not None:
        called = "Windows-1252 (latin-1)" if found == "cp1252" else found.upper()
        notice(f"{source.name} is not UTF-8 and was read as {called}. --encoding chooses another")
    return replace(source, encoding=found)


def _read_txt(source: Source, lines: Iterable[Line]) -> Iterator[Record | Reject]:
    """The file as one document: its first line is the title, if it is short and more follows."""
    taken: list[bytes] = []
    size = 0
    for line in lines:
        size += len(line.data)
        if line.problem or size > LINE_BYTES:
            yield Reject(source.name, line.number, line.problem or f"the text has more than {LINE_BYTES:,} bytes")
            return
        taken.append(line.data)
    text = b"\n".join(taken).decode("utf-8", "surrogateescape").strip()
    if not is_unicode(text):
        yield Reject(source.name, 1, f"{NOT_UTF8}. Say what it is with --encoding, such as latin-1", excerpt(text))
        return
    if text:
        first, _, rest = text.partition("\n")
        titled = len(first) <= 300 and rest.strip() != ""
        data = {"_id": source.label, "title": first.strip() if titled else "", "text": rest.strip() if titled else text}
        yield Record(source.name, 1, data, kind="text files")


# NaN and Infinity are not JSON, but Python writes them for missing numbers: they count as absent.
_DECODER = json.JSONDecoder(parse_constant=lambda name: None)


def _read_json_lines(source: Source, lines: Iterable[Line]) -> Iterator[Record | Reject]:
    for line in lines:
        if not line.problem and not line.data.strip():
            continue
        data = line.problem or _parse(line.data)
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
        return f"{NOT_UTF8}: {error.reason} at byte {error.start + 1}{TO_UTF8}"
    if isinstance(error, json.JSONDecodeError):
        return f"not valid JSON: {error.msg} at character {error.pos + 1}"
    if isinstance(error, RecursionError):
        return "the JSON is nested too deeply"
    return "the JSON has a number with too many digits"  # Python's limit, sys.get_int_max_str_digits()


def _read_json(source: Source, lines: Iterator[Line]) -> Iterator[Record | Reject]:
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
        if size > LINE_BYTES or line.problem:
            break
    broken = next((line for line in taken if line.problem and size <= LINE_BYTES), None)
    text = b"\n".join(line.data for line in taken).decode("utf-8", "surrogateescape")
    if size > LINE_BYTES and array:
        reason = f"the array has over {LINE_BYTES:,} bytes. Convert it to JSON Lines: jq -c '.[]' FILE > FILE.jsonl"
        yield Reject(source.name, first.number, reason, excerpt(first.data))
    elif array or (size <= LINE_BYTES and _starts_with_object(text)):
        yield from _values(source, text, first.number, broken)
    else:
        # JSON Lines after all, with a bad first line.
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


# -- CSV and TSV with a header line

FIELD_CHARS = TEXT_CHARS
"""A quoted field, or a row, that does not end within this many characters was never closed."""
WASTED_CHARS = 16 * FIELD_CHARS
"""When so much was read twice for rows that were never closed, the rest of the file has a row on each line."""
_NOT_CLOSED = "a quoted field has no closing quote"
_OLD_MAC = r"lines end with CR alone. Convert them first: tr '\r' '\n' < IN.csv > OUT.csv"


def read_table(source: Source, lines: Iterator[Line], delimiter: str) -> Iterator[Record | Reject]:
    """The rows as records of text; empty cells are None. A bad row costs itself only."""
    rows = _rows(source, lines, delimiter)
    header = next(rows, None)
    if header is None or isinstance(header, Reject):
        yield from filter(None, [header])
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
            # TSV is often written without any quoting: a line whose quotes make no sense is taken as it is.
            row = first.data.decode("utf-8", "surrogateescape").split(delimiter) if delimiter == "\t" else []
            if not row:
                # Who looked for the end of a field in the lines after it, or at the end of the file, did not find it.
                reason = _NOT_CLOSED if len(taken) > 1 or ended else _OLD_MAC if b"\r" in first.data else str(error)
                yield Reject(source.name, first.number, f"not valid CSV: {reason}", excerpt(first.data))
                continue
        if not any(cell.strip() for cell in row):
            continue
        if is_unicode("".join(row)):
            yield first.number, row
        else:
            yield Reject(source.name, first.number, NOT_UTF8, excerpt(b"\n".join(line.data for line in taken)))
