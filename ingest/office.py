"""Word, Excel and Parquet files, and what any file's own facts are worth. Only the other process of `apart.py` reads
them."""

from __future__ import annotations

import datetime
import decimal
import io
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from ..core.text import unfloated
from .records import Record, Reject
from .sources import Source

ROWS = 1_048_576
UNPACKED = 1 << 30
"""Bytes that the parts of a Word or Excel file may have together."""
DOI = re.compile(r"\b10\.[0-9]{4,9}(?:\.[0-9]+)*/[^\s\"<>{}|\\^]+")
NOBODY = re.compile(
    r"\W*(?:anonymous|unspecified|unknown|author|python-docx|user|admin(?:istrator)?)?\W*", re.IGNORECASE
)
"""What programs write where they know no title and no author."""


def people(names: list[str]) -> list[str]:
    return [one.strip() for one in names if not NOBODY.fullmatch(one)]


def one_document(source: Source, data: dict[str, Any], kind: str) -> Record:
    held = {name: value for name, value in data.items() if value not in (None, [])}
    return Record(source.name, 1, {"_id": source.label, **held}, kind=kind)


# -- Word and Excel


def _checked(source: Source) -> io.BytesIO:
    """The bytes of a file whose parts are together not too large."""
    assert source.path is not None
    data = io.BytesIO(source.path.read_bytes())
    with zipfile.ZipFile(data) as archive:
        size = sum(one.file_size for one in archive.infolist())
    if size > UNPACKED:
        raise ValueError(f"it unpacks to {size:,} bytes, at most {UNPACKED:,}")
    return data


def read_docx(source: Source, on_bytes: Callable[[int], None]) -> Iterator[Record | Reject]:
    import docx as word

    document = word.Document(_checked(source))
    paragraphs = [(style, text) for style, text in _blocks(document) if text]
    if not paragraphs:
        yield Reject(source.name, 1, "the Word file has no text")
        return
    core = document.core_properties
    styled = next((text for style, text in paragraphs if style == "Title"), "")
    title = styled or (core.title or "").strip()
    if NOBODY.fullmatch(title):
        title = ""
    if not title and paragraphs[0][0] != _ROW and len(paragraphs[0][1]) <= 300 and len(paragraphs) > 1:
        title = paragraphs[0][1]
    body = [text for _, text in paragraphs]
    if body[0] == title:
        body = body[1:]
    text = "\n\n".join(body)
    doi = DOI.search(text[:10_000])
    found = doi[0].rstrip(".,;)]").lower() if doi else None
    names = people((core.author or "").split(";"))
    yield one_document(source, {"title": title, "text": text, "authors": names, "doi": found}, "Word files")


_ROW = "row of a table"


def _blocks(part: Any) -> Iterator[tuple[str, str]]:
    """The style and text of each paragraph, and the cells of each row of a table, one that is merged once."""
    for one in part.iter_inner_content():
        if not hasattr(one, "rows"):
            yield one.style.name if one.style is not None else "", " ".join(one.text.split())
            continue
        for row in one.rows:
            cells = (" ".join(text for _, text in _blocks(cell) if text) for cell in dict.fromkeys(row.cells))
            yield _ROW, " | ".join(filter(None, cells))


def read_xlsx(source: Source, on_bytes: Callable[[int], None]) -> Iterator[Record | Reject]:
    import openpyxl

    book = openpyxl.load_workbook(_checked(source), read_only=True, data_only=True)
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
        value = value.date()
    return _as_json(unfloated(value))


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
