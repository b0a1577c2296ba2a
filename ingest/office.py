"""PDF, Word, Excel and Parquet files. Only the other process of `apart.py` reads them."""

from __future__ import annotations

import datetime
import decimal
import io
import logging
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from ..core.text import TEXT_CHARS, whole_number
from .records import Record, Reject
from .sources import Source

ROWS = 1_048_576
UNPACKED = 1 << 30
"""Bytes that the parts of a Word or Excel file may have together."""
TITLE_WITHIN = 2_000
_DOI = re.compile(r"\b10\.[0-9]{4,9}(?:\.[0-9]+)*/[^\s\"<>{}|\\^]+")
_ABSTRACT = re.compile(r"^\s*(?:a\s?b\s?s\s?t\s?r\s?a\s?c\s?t|summary)\b\s*[:.—-]?\s*", re.IGNORECASE | re.MULTILINE)
_HEADING = re.compile(
    r"(?=.{1,39}$)(?:\d+\.?\s+)?(?:a\s?b\s?s\s?t\s?r\s?a\s?c\s?t|summary|introduction|methods?|results?|references|"
    r"materials and methods|discussion|conclusions?|acknowledge?ments?|keywords)\s*[:.]?",
    re.IGNORECASE,
)
"""A line that is a heading by itself."""
_NOT_TITLES = re.compile(
    r"\.(?:docx?|tex|dvi|indd|pdf|qxd)\b|^(?:untitled|microsoft word|pii:?|doi:?)|^\W*$", re.IGNORECASE
)
_NOBODY = re.compile(
    r"\W*(?:anonymous|unspecified|unknown|author|python-docx|user|admin(?:istrator)?)?\W*", re.IGNORECASE
)
"""What programs write where they know no title and no author."""


# -- PDF


def _pdf(source: Source, data: bytes) -> Iterator[Record | Reject]:
    import pypdf

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    reader = pypdf.PdfReader(io.BytesIO(data))
    if reader.is_encrypted and not reader.decrypt(""):
        why = "the PDF needs a password. Save it without one first: qpdf --decrypt --password=… IN OUT"
        yield Reject(source.name, 1, why)
        return
    pages: list[str] = []
    sizes: list[tuple[float, str]] = []
    for number, page in enumerate(reader.pages):
        if number == 0:

            def visit(text: str, matrix: Any, text_matrix: Any, font: Any, size: float) -> None:
                scale = abs(text_matrix[3] or text_matrix[0] or 1) * abs(matrix[3] or 1)
                if text:
                    sizes.append((round(size * scale, 1), text))

            pages.append(page.extract_text(visitor_text=visit))
        else:
            pages.append(page.extract_text())
        if sum(map(len, pages)) > TEXT_CHARS:
            break
    text = flowing("\n\n".join(without_running(pages)))
    if len(re.findall(r"\w", text)) < 20:
        why = "the PDF has no text: it is probably a scan. Recognise its text first: ocrmypdf IN.pdf OUT.pdf"
        yield Reject(source.name, 1, why)
        return
    info: dict[str, Any] = dict(reader.metadata or {})
    title = " ".join(str(info.get("/Title") or "").split())
    if len(title) < 8 or _NOT_TITLES.search(title) or _NOBODY.fullmatch(title):
        title = _largest(sizes) or ("" if _NOBODY.fullmatch(title) else title)
    start = _ABSTRACT.search(text[:5_000])
    doi = _DOI.search("\n".join(pages[:2])) or _DOI.search(" ".join(map(str, info.values())))
    year = re.search(r"D:(\d{4})", str(info.get("/CreationDate") or ""))
    body = text[start.end() :] if start else _after(text, title)
    data_ = {
        "title": title,
        "text": body,
        "doi": doi[0].rstrip(".,;)]").lower() if doi else None,
        "authors": _people(re.split(r"[;]| and ", str(info.get("/Author") or ""))),
        "file_year": whole_number(year[1]) if year else None,
        "pages": len(reader.pages),
    }
    yield _document(source, data_, "PDF files")


def _people(names: list[str]) -> list[str]:
    return [one.strip() for one in names if not _NOBODY.fullmatch(one)]


def _document(source: Source, data: dict[str, Any], kind: str) -> Record:
    held = {name: value for name, value in data.items() if value not in (None, [])}
    return Record(source.name, 1, {"_id": source.label, **held}, kind=kind)


def _largest(sizes: list[tuple[float, str]]) -> str:
    """The first run of text in the largest letters of the first page, if it looks like a title."""
    by_size = Counter[float]()
    for size, text in sizes:
        by_size[size] += len(text.strip())
    for size in sorted((size for size, count in by_size.items() if count >= 12), reverse=True)[:2]:
        title = " ".join("".join(text for one, text in sizes if one == size).split())
        if 12 <= len(title) <= 400 and len(title.split()) > 1:
            return title
    return ""


def without_running(pages: list[str]) -> list[str]:
    """Pages without headers and footers: a first or last line that most pages have stays only where it comes first.

    A number in such a line may count the pages. Any other must be the same, or the line stays.
    """
    lines = [page.splitlines() for page in pages]
    edges = [_edges(some) for some in lines]
    seen = Counter(bare for some, at in zip(lines, edges, strict=True) for bare in {_bare(some[one]) for one in at})
    first: dict[str, tuple[int, list[int | None]]] = {}
    for page, (some, at) in enumerate(zip(lines, edges, strict=True)):
        for one in at:
            bare, numbers = _bare(some[one]), [whole_number(found) for found in re.findall("[0-9]+", some[one])]
            if len(pages) < 4 or seen[bare] <= len(pages) / 2:
                continue
            before, known = first.setdefault(bare, (page, numbers))
            counts = (
                new == old or (new or 0) - (old or 0) == page - before for new, old in zip(numbers, known, strict=True)
            )
            if page != before and all(counts):
                some[one] = ""
    return ["\n".join(some) for some in lines]


def _edges(lines: list[str]) -> list[int]:
    """The numbers of the first two and last two lines with text."""
    full = [number for number, line in enumerate(lines) if line.strip()]
    return list(dict.fromkeys([*full[:2], *full[-2:]]))


def _bare(line: str) -> str:
    return re.sub("[0-9]+", "#", line).strip()


def flowing(text: str) -> str:
    """Lines as paragraphs: words that were cut at line ends are whole again, blank lines stay."""
    text = re.sub(r"(\w)[-\u00ad]\n(?=[a-z])", r"\1", text.replace("\r", ""))
    paragraphs = re.split(r"\n\s*\n", text)
    kept = []
    for paragraph in paragraphs:
        # A heading of its own line is kept apart: "Abstract", "1 Introduction".
        lines: list[str] = []
        for line in paragraph.split("\n"):
            bare = " ".join(line.split())
            if not bare:
                continue
            if (
                lines
                and not _HEADING.fullmatch(lines[-1])
                and not _HEADING.fullmatch(bare)
                and not _ABSTRACT.match(bare)
            ):
                lines[-1] = f"{lines[-1]} {bare}"
            else:
                lines.append(bare)
        kept.append("\n".join(lines))
    return "\n\n".join(one for one in kept if one)


def _after(text: str, title: str) -> str:
    """The text without the title, which stands at its beginning, perhaps after a header."""
    flat = re.sub(r"\s+", r"\\s+", re.escape(title).replace("\\ ", " "))
    match = re.search(rf"\s*{flat}\s*", text[:TITLE_WITHIN]) if title else None
    return f"{text[: match.start()]}\n\n{text[match.end() :]}".strip() if match and match.end() < len(text) else text


# -- Word and Excel


def _checked(data: bytes) -> None:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        size = sum(one.file_size for one in archive.infolist())
    if size > UNPACKED:
        raise ValueError(f"it unpacks to {size:,} bytes, at most {UNPACKED:,}")


def _docx(source: Source, data: bytes) -> Iterator[Record | Reject]:
    import docx as word

    _checked(data)
    document = word.Document(io.BytesIO(data))
    paragraphs = [
        (one.style.name if one.style is not None else "", " ".join(one.text.split())) for one in document.paragraphs
    ]
    paragraphs = [(style, text) for style, text in paragraphs if text]
    if not paragraphs:
        yield Reject(source.name, 1, "the Word file has no text")
        return
    core = document.core_properties
    styled = next((text for style, text in paragraphs if style == "Title"), "")
    title = styled or (core.title or "").strip()
    if _NOBODY.fullmatch(title):
        title = ""
    if not title and len(paragraphs[0][1]) <= 300 and len(paragraphs) > 1:
        title = paragraphs[0][1]
    body = [text for _, text in paragraphs]
    if body[0] == title:
        body = body[1:]
    text = "\n\n".join(body)
    doi = _DOI.search(text[:10_000])
    found = doi[0].rstrip(".,;)]").lower() if doi else None
    people = _people((core.author or "").split(";"))
    yield _document(source, {"title": title, "text": text, "authors": people, "doi": found}, "Word files")


def _xlsx(source: Source, data: bytes) -> Iterator[Record | Reject]:
    import openpyxl

    _checked(data)
    book = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True)
    sheet = book.worksheets[0]
    names: list[str] = []
    for number, row in enumerate(sheet.iter_rows(values_only=True, max_row=ROWS), 1):
        if not any(cell not in (None, "") for cell in row):
            continue
        if not names:
            names = [str(cell).strip() if cell not in (None, "") else f"column_{i}" for i, cell in enumerate(row, 1)]
            twice = [name for name, count in Counter(names).items() if count > 1]
            if twice:
                yield Reject(source.name, number, f"the header has the column {twice[0]!r} twice")
                return
            continue
        # Empty cells stay, as those of CSV do: a service's export is known by its columns.
        cells = {name: None if cell == "" else _cell(cell) for name, cell in zip(names, row, strict=False)}
        yield Record(source.name, number, cells, untyped=True)


def _cell(value: Any) -> Any:
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        return value.date().isoformat()
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


DOCUMENTS: dict[str | None, Callable[[Source, bytes], Iterator[Record | Reject]]] = {
    "pdf": _pdf,
    "docx": _docx,
    "xlsx": _xlsx,
}
"""What reads the bytes of a file of each format."""


# -- Parquet

PARQUET_ROWS = 256
"""How many rows are in memory at a time, as far as `PARQUET_BYTES` allows."""
PARQUET_BYTES = 64 << 20


def read_parquet(source: Source, on_bytes: Callable[[int], None]) -> Iterator[Record | Reject]:
    """Parquet's rows as JSON would hold them. A page of a few bytes can stand for gigabytes."""
    import pyarrow.parquet

    number = 0
    with pyarrow.parquet.ParquetFile(source.path) as opened:
        size = sum(opened.metadata.row_group(i).total_byte_size for i in range(opened.metadata.num_row_groups))
        rows = max(opened.metadata.num_rows, 1)
        at_once = max(1, min(PARQUET_ROWS, PARQUET_BYTES // max(size // rows, 1)))
        for batch in opened.iter_batches(batch_size=at_once, use_threads=False):
            on_bytes((source.size or 0) * batch.num_rows // rows)
            for row in _of_batch(batch):
                number += 1
                yield Reject(source.name, number, row) if isinstance(row, str) else Record(source.name, number, row)


def _of_batch(batch: Any) -> Iterator[dict[str, Any] | str]:
    # One bad value, such as text that isn't UTF-8, spoils a batch; and a large one is not held twice.
    try:
        whole = batch.to_pylist() if batch.nbytes <= PARQUET_BYTES else None
    except ValueError:
        whole = None
    for number in range(batch.num_rows):
        if whole is None and batch.slice(number, 1).nbytes > PARQUET_BYTES:
            yield f"the row is too long: more than {PARQUET_BYTES:,} bytes"
            continue
        try:
            yield _as_json(whole[number] if whole is not None else batch.slice(number, 1).to_pylist()[0])
        except ValueError as error:
            yield f"a value can't be read: {error}"


def _as_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _as_json(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(inner) for inner in value]
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
