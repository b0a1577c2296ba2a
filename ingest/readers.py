"""Reading records from files of all formats, plain or compressed, in constant memory unless a file is one document.

What can't be read is a `Reject` in its place, and reading goes on with the next line; where a file breaks off, what
came before it stays.
"""

from __future__ import annotations

import codecs
import itertools
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from ..articles.own import is_own_beyond_doubt
from ..core.errors import InvalidData, MissingExtra, UsageError, why_unread
from ..core.text import is_unicode
from .fields import Fields
from .kinds import REFERENCES, TABLES
from .lines import Line, decompressed, raw_chunks, read_lines
from .office import read_office
from .pages import knowledge_row, read_html
from .parquet import read_parquet
from .pubmed import read_pubmed
from .records import LINE_BYTES, NOT_UTF8, RECORD_CHARS, Record, Reject, excerpt, reject_of
from .references import read_references
from .sniff import likely_delimiter, sniff, sniff_compression, sniff_encoding, unpacked_head
from .sources import Given, Source, find_sources
from .tables import read_table
from .unpack import papers


def read(
    sources: Given,
    *,
    fields: Fields | None = None,
    on_bytes: Callable[[int], None] | None = None,
    line_bytes: int = LINE_BYTES,
) -> Iterator[Record | Reject]:
    """The records of papers in files, folders, globs and `-` (standard input); `fields` are those that the user named.

    Raises NotFound or UsageError at once, before anything is read. `on_bytes` is told how many bytes were consumed
    since it was last called; `Source.size` says how many there are.
    """
    found = find_sources(sources)
    records = itertools.chain.from_iterable(
        read_source(source, on_bytes=on_bytes, line_bytes=line_bytes) for source in found
    )
    return papers(records, fields or Fields())


def read_source(
    source: Source,
    *,
    on_bytes: Callable[[int], None] | None = None,
    line_bytes: int = LINE_BYTES,
    on_notice: Callable[[str], None] | None = None,
) -> Iterator[Record | Reject]:
    """The records of one file, as it has them; rows of AVeriTeC's knowledge store are pages, ccheck's JSON full texts.

    `on_notice` is told what was assumed about the file. Raises MissingExtra for Parquet, HTML, PDF, Word and Excel
    without what reads them.
    """
    line = 0
    try:
        for record in _read_source(source, on_bytes, line_bytes, on_notice):
            line = record.line
            yield record if isinstance(record, Reject) else _known(record, source)
    except (MissingExtra, UsageError):
        raise
    except Exception as error:  # noqa: BLE001 - whatever a stranger's file does to its reader, what came before stands
        why = f"the file can't be read on ({why_unread(error)}). The rest of the file was skipped"
        yield Reject(source.name, line + 1, why)


def _known(record: Record, source: Source) -> Record | Reject:
    try:
        if is_own_beyond_doubt(record.data):
            return _own_full_text(record, source)
        return replace(record, data=knowledge_row(record.data))
    except Exception as error:  # noqa: BLE001 - of this record alone
        return reject_of(record, why_unread(error))


def _read_source(
    source: Source,
    on_bytes: Callable[[int], None] | None,
    line_bytes: int,
    on_notice: Callable[[str], None] | None,
) -> Iterator[Record | Reject]:
    count = on_bytes or (lambda size: None)
    try:
        if source.format == "parquet" and source.path is not None:
            yield from read_parquet(source, count)
            return
        if source.format == "html":
            yield from read_html(source, count)
            return
        chunks = raw_chunks(source, count)
        if source.format is None:
            source, chunks = _told_by_start(source, chunks)
        if source.format == "parquet":
            yield Reject(source.name, 0, "Parquet can't be read from a pipe. Name the file")
        elif source.format in ("pdf", "docx", "xlsx"):
            yield from read_office(source, decompressed(source, count, chunks), count)
        elif source.format == "xml":
            yield from _read_xml(source, decompressed(source, count, chunks))
        else:
            source = _with_encoding(source, on_notice)
            yield from _read_text(source, chunks, count, line_bytes, on_notice)
    except OSError as error:
        yield Reject(source.name, 0, f"the file can't be read: {error.strerror or error}")


def _read_text(
    source: Source,
    chunks: Iterable[bytes],
    count: Callable[[int], None],
    line_bytes: int,
    on_notice: Callable[[str], None] | None,
) -> Iterator[Record | Reject]:
    lines = read_lines(source, count, line_bytes, chunks)
    if source.format in TABLES:
        delimiter, lines = _delimiter(source, lines)
        if delimiter != _USUAL[str(source.format)] and source.delimiter is None and on_notice is not None:
            on_notice(f"{source.name}: cells are separated by {_CALLED[delimiter]} (--delimiter chooses another)")
        yield from read_table(source, lines, delimiter)
    elif source.format in REFERENCES:
        yield from read_references(source, lines)
    elif source.format == "json":
        yield from _read_json(source, lines, line_bytes)
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
    compression = source.compression or sniff_compression(start)
    head = unpacked_head(start, compression)
    format_ = sniff(head) or "jsonl"
    # A line of JSON that is damaged is still JSON Lines, and so is whatever else nobody knows.
    told = replace(source, format="jsonl" if format_ == "txt" else format_, compression=compression)
    return told, itertools.chain([start] if start else [], chunks)


_USUAL = {"csv": ",", "tsv": "\t"}
_CALLED = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
_HEAD_LINES = 100


def _delimiter(source: Source, lines: Iterator[Line]) -> tuple[str, Iterator[Line]]:
    """The character between cells, and the lines. Without the user's choice, it is the one that makes most of the first
    lines rows."""
    if source.delimiter is not None:
        return source.delimiter, lines
    head = list(itertools.islice(lines, _HEAD_LINES))
    text = "\n".join(line.data.decode("utf-8", "replace") for line in head if not line.problem)
    return likely_delimiter(text, _USUAL[str(source.format)]), itertools.chain(head, lines)


def _with_encoding(source: Source, on_notice: Callable[[str], None] | None) -> Source:
    """The source with the encoding of its text, if that is not UTF-8. JSON is always UTF-8."""
    if source.encoding is not None:
        encoding = codecs.lookup(source.encoding).name
        return replace(source, encoding=None if encoding == "utf-8" else encoding)
    if source.path is None or source.size is None or source.format in ("json", "jsonl"):
        return source
    try:
        found = sniff_encoding(decompressed(source, lambda size: None))
    except OSError:
        return source  # reading says what is wrong
    if found is not None and on_notice is not None:
        called = "Windows-1252 (latin-1)" if found == "cp1252" else found.upper()
        on_notice(f"{source.name} is not UTF-8 and was read as {called}. --encoding chooses another")
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


_ROOT = re.compile(rb"<\s*(?:[\w.-]+:)?([A-Za-z][\w.-]*)[\s/>]")
_BEFORE_ROOT = re.compile(rb"<\?.*?\?>|<!--.*?-->|<!DOCTYPE[^\[>]*(?:\[.*?\]\s*)?>", re.DOTALL)
_PUBMED = ("PubmedArticleSet", "PubmedArticle", "MedlineCitationSet", "MedlineCitation", "PubmedBookArticleSet")


def _read_xml(source: Source, chunks: Iterable[bytes]) -> Iterator[Record | Reject]:
    """XML by its root element."""
    chunks = iter(chunks)
    start = b""
    for chunk in chunks:
        start += chunk
        if len(start) >= 1 << 14:
            break
    match = _ROOT.search(_BEFORE_ROOT.sub(b"", start[: 1 << 14].decode("utf-8", "replace").encode()))
    root = match[1].decode() if match else ""
    if root in _PUBMED:
        yield from read_pubmed(source, itertools.chain([start], chunks))
        return
    if root in _FULL_TEXTS:
        yield _full_text(source, itertools.chain([start], chunks))
        return
    what = f"its root is <{root}>" if root else "it has no root element"
    yield Reject(
        source.name,
        1,
        f"ccheck does not read this kind of XML ({what}). It reads PubMed's (PubmedArticleSet), JATS and GROBID's TEI",
    )


_FULL_TEXTS = ("article", "pmc-articleset", "OAI-PMH", "TEI", "teiCorpus")


def _full_text(source: Source, chunks: Iterable[bytes]) -> Record | Reject:
    """An article with its figures and tables, which a store keeps for `ccheck figures` and `ccheck query --deep`."""
    from ..articles.reading import FILE_BYTES, parse_article
    from ..articles.stored import record_of

    data = bytearray()
    for chunk in chunks:
        data += chunk
        if len(data) > FILE_BYTES:
            return Reject(source.name, 1, f"the file is too large: more than {FILE_BYTES:,} bytes")
    try:
        return Record(source.name, 1, record_of(parse_article(bytes(data), source.name)), kind="full texts")
    except InvalidData as error:
        return Reject(source.name, 1, str(error).removeprefix(f"{source.name}: "))


def _own_full_text(record: Record, source: Source) -> Record:
    """The same for ccheck's own JSON. An article without an id has the file's name, with the line after the first."""
    from ..articles.own import read_own
    from ..articles.reading import article_id
    from ..articles.stored import record_of

    identifier = article_id(source.name) + (f"-{record.line}" if record.line > 1 else "")
    return replace(record, data=record_of(read_own(record.data, identifier)), kind="full texts")


# NaN and Infinity are not JSON, but Python writes them for missing numbers: they count as absent.
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
