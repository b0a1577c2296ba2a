"""Tells from a file's first bytes what it holds: its format, the delimiter of a table, the encoding of a text."""

from __future__ import annotations

import codecs
import csv
import json
import re
from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias

from ..core.citation import folded
from .fields import TEXT_FIELDS, TITLE_FIELDS

Format: TypeAlias = Literal[
    "jsonl",
    "json",
    "csv",
    "tsv",
    "parquet",
    "ris",
    "bibtex",
    "nbib",
    "wos",
    "xml",
    "html",
    "txt",
    "pdf",
    "docx",
    "xlsx",
    "zip",
]
Compression: TypeAlias = Literal["gzip", "zstd"]

_ENDINGS: dict[Format, str] = {
    "jsonl": ".jsonl .ndjson",
    "json": ".json",
    "csv": ".csv",
    "tsv": ".tsv .tab",
    "parquet": ".parquet",
    "ris": ".ris",
    "bibtex": ".bib .bibtex",
    "nbib": ".nbib",
    "wos": ".ciw",
    "xml": ".xml .nxml .jats .tei",
    "html": ".html .htm",
    "txt": ".txt",
    "pdf": ".pdf",
    "docx": ".docx",
    "xlsx": ".xlsx",
    "zip": ".zip",
}
FORMATS = {ending: format_ for format_, endings in _ENDINGS.items() for ending in endings.split()}
"""Formats by the end of a file's name. A `.txt` file can be any text format: its first bytes tell which."""
COMPRESSIONS: dict[str, Compression] = {".gz": "gzip", ".zst": "zstd"}
TABLES: tuple[Format, ...] = ("csv", "tsv")
LINES: tuple[Format, ...] = ("jsonl", "json", "txt", *TABLES)
"""Read in this process, see `apart.py`."""
KNOWN = f"{', '.join(FORMATS)}, each also with {' or '.join(COMPRESSIONS)}"

_PICKLE = (
    "Loading a pickle can run any code. If you trust its author, convert it: "
    "python -c \"import pandas; pandas.read_pickle('FILE').to_json('FILE.jsonl', orient='records', lines=True)\""
)
_ADVICE = {
    "Convert it: soffice --headless --convert-to docx FILE": ".doc .odt .rtf",
    "Convert it: soffice --headless --convert-to xlsx FILE": ".xls .ods",
    "Convert it: pandoc FILE -o FILE.txt -t plain": ".epub .tex .md",
    "Convert it: ps2pdf FILE": ".ps",
    "Convert it: djvutxt FILE FILE.txt": ".djvu",
    "Export it as a Word file (.docx)": ".pages",
    "Unpack it first, then ingest what was in it": ".tar .tgz .bz2 .xz .7z",
    "In EndNote, choose File > Export and the style RefMan (RIS) Export": ".enl .enw",
    "In Zotero, choose File > Export Library and the format RIS or CSV": ".rdf .sqlite",
    "Recognise its text first: tesseract FILE FILE": ".png .jpg .tiff",
    _PICKLE: ".pkl .pickle",
}
HINTS = {ending: advice for advice, endings in _ADVICE.items() for ending in endings.split()}
"""Advice on how to turn a file of another kind into one that ccheck reads, by the end of its name."""

HEAD_BYTES = 1 << 16
DELIMITERS = ",;\t|"
MAGIC: dict[bytes, Compression] = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_ROWS = 20
_NAMES = {
    *map(folded, (*TEXT_FIELDS, *TITLE_FIELDS)),
    *("doi", "id", "_id", "authors", "author", "year", "claim", "query", "abstract note", "label", "cord uid", "ut"),
}
_TAGGED: tuple[tuple[re.Pattern[str], Format], ...] = (
    (re.compile(r"^TY  - ?\w*", re.MULTILINE), "ris"),
    (re.compile(r"\A(?:FN .*\n)?(?:VR .*\n)?PT [A-Z]\s*$", re.MULTILINE), "wos"),
    (re.compile(r"^PMID- ?\d", re.MULTILINE), "nbib"),
    (re.compile(r"^\s*@\s*[A-Za-z]+\s*[{(]", re.MULTILINE), "bibtex"),
)


def sniff(head: bytes) -> Format | None:
    """The format of what begins like this; None if ccheck reads no such format."""
    if head.startswith(b"%PDF-"):
        return "pdf"
    if head.startswith(b"PAR1"):
        return "parquet"
    if head.startswith(b"PK\x03\x04"):
        return "docx" if b"word/" in head else "xlsx" if b"xl/" in head else "zip"
    encoding = sniff_unicode(head) or (_likely(head) if b"\0" in head else "utf-8")
    text = head.decode(encoding, "replace").lstrip("\ufeff \t\r\n")
    if text[:1] in ("{", "["):
        return "json"
    if text.startswith("<"):
        return "html" if text[:15].lower().startswith(("<!doctype html", "<html")) else "xml"
    if "\0" in text:
        return None
    for pattern, format_ in _TAGGED:
        if pattern.search(text[:20_000]):
            return format_
    delimiter = sniff_delimiter(text)
    if delimiter is not None:
        return "tsv" if delimiter == "\t" else "csv"
    return "txt" if text else None


def sniff_delimiter(text: str) -> str | None:
    """The delimiter of a table whose first line names its columns, with a column that ccheck knows; else None."""
    lines = text.splitlines()
    for delimiter in sorted(DELIMITERS, key=lambda one: -lines[0].count(one) if lines else 0):
        header = cells(lines[:1], delimiter)
        if header and len(header[0]) > 1 and any(folded(cell) in _NAMES for cell in header[0]):
            return delimiter
    return None


def likely_delimiter(text: str, usual: str) -> str:
    """The delimiter of what is known to be a table: that which cuts most rows into as many cells as the header.

    `usual` is that of the file's name. It counts unless it does not occur in the header, or another makes more sense.
    """
    lines = text.splitlines()[: _ROWS * 5]
    best: str = max([usual, *DELIMITERS], key=lambda delimiter: _agreement(lines, delimiter))
    return best


def _agreement(lines: list[str], delimiter: str) -> tuple[float, int]:
    """The share of rows with as many cells as the header, and how many cells that is; 0 for a single column."""
    rows = cells(lines, delimiter)[:_ROWS]
    if not rows or len(rows[0]) < 2:
        return 0.0, 0
    whole = [row for row in rows[1:] if row]
    same = sum(len(row) == len(rows[0]) for row in whole)
    return (same / len(whole) if whole else 1.0), len(rows[0])


def cells(lines: list[str], delimiter: str) -> list[list[str]]:
    """The cells of the first rows, up to one that makes no sense."""
    rows: list[list[str]] = []
    reader = csv.reader((line + "\n" for line in lines), delimiter=delimiter)
    while len(rows) < _ROWS:
        try:
            rows.append(next(reader))
        except (StopIteration, csv.Error):
            break
    return rows


# -- encodings


def sniff_unicode(head: bytes) -> str | None:
    """The encoding of what begins with a mark or as UTF-16 or 32 begins; None for UTF-8 and the unknown."""
    found = json.detect_encoding(head[:4])
    return None if found == "utf-8" else found


def sniff_encoding(chunks: Iterable[bytes]) -> str | None:
    """The encoding of a text that is not UTF-8, by its characters; None for UTF-8, even with damaged places."""
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    damaged = whole = 0
    sample = b""
    for number, chunk in enumerate(chunks):
        if number == 0 and (found := sniff_unicode(chunk)) is not None:
            return None if found == "utf-8-sig" else found
        text = "" if chunk.isascii() else decoder.decode(chunk)
        damaged += len(_LONE.findall(text))
        # A stray zero is no reason to read UTF-8 as UTF-16, which has many, or is no UTF-8.
        if number == 0 and b"\0" in chunk and (damaged or 4 * chunk.count(0) > len(chunk)):
            return _likely(chunk)
        if not chunk.isascii() and len(sample) < SAMPLE:
            sample += b"\n".join(line for line in chunk.split(b"\n") if not line.isascii()) + b"\n"
        whole += len(_WIDE.findall(text))
    return _likely(sample) if damaged > whole else None


def _likely(sample: bytes) -> str:
    """Windows-1252, which latin-1 is part of, if nothing speaks more for another encoding."""
    from charset_normalizer import from_bytes

    best = min(
        from_bytes(sample[:SAMPLE]),
        key=lambda found: (found.chaos, -found.coherence, "cp1252" not in found.could_be_from_charset),
        default=None,
    )
    return "cp1252" if best is None or "cp1252" in best.could_be_from_charset else best.encoding


SAMPLE = 1 << 14
_LONE = re.compile("[\udc80-\udcff]")
_WIDE = re.compile("[\x80-\ud7ff\ue000-\U0010ffff]")


def as_utf8(chunks: Iterable[bytes], encoding: str) -> Iterator[bytes]:
    """The bytes of a text in another encoding as UTF-8. What it can't hold becomes U+FFFD."""
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    for chunk in chunks:
        yield decoder.decode(chunk).encode("utf-8", "replace")
    yield decoder.decode(b"", True).encode("utf-8", "replace")
