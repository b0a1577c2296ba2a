"""The other process of `office.py`: a PDF, Word or Excel file on standard input, as JSON Lines on standard output.

A line is a record as an object, or what is wrong with it as a string. Run as a script, with nothing of ccheck loaded.
"""

from __future__ import annotations

import datetime
import io
import json
import logging
import re
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator
from typing import Any

PAGES = 2_000
TEXT_CHARS = 1_000_000
ROWS = 1_048_576
UNPACKED = 1 << 30
"""Bytes that the parts of a Word or Excel file may have together."""
_DOI = re.compile(r"\b10\.[0-9]{4,9}(?:\.[0-9]+)*/[^\s\"<>{}|\\^]+")
_ABSTRACT = re.compile(r"^\s*(?:a\s?b\s?s\s?t\s?r\s?a\s?c\s?t|summary)\b\s*[:.—-]?\s*", re.IGNORECASE | re.MULTILINE)
_NOT_TITLES = re.compile(
    r"\.(?:docx?|tex|dvi|indd|pdf|qxd)\b|^(?:untitled|microsoft word|pii:?|doi:?)|^\W*$", re.IGNORECASE
)


def limit(memory: int, seconds: int) -> None:
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return
    for what, most in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CPU, seconds)):
        try:
            resource.setrlimit(what, (most, most))
        except (OSError, ValueError):  # macOS
            continue


# -- PDF


def pdf(data: bytes) -> Iterator[dict[str, Any] | str]:
    import pypdf

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    reader = pypdf.PdfReader(io.BytesIO(data))
    if reader.is_encrypted and not reader.decrypt(""):
        yield "the PDF needs a password. Save it without one first: qpdf --decrypt --password=… IN OUT"
        return
    pages: list[str] = []
    sizes: list[tuple[float, str]] = []
    for number, page in enumerate(reader.pages[:PAGES]):
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
    running = _running(pages)
    text = flowing("\n\n".join(_without(page, running) for page in pages))
    if len(re.findall(r"\w", text)) < 20:
        yield "the PDF has no text: it is probably a scan. Recognise its text first: ocrmypdf IN.pdf OUT.pdf"
        return
    info: dict[str, Any] = dict(reader.metadata or {})
    title = " ".join(str(info.get("/Title") or "").split())
    if len(title) < 8 or _NOT_TITLES.search(title):
        title = _largest(sizes) or title
    start = _ABSTRACT.search(text[:20_000])
    doi = _DOI.search("\n".join(pages[:2])) or _DOI.search(" ".join(map(str, info.values())))
    year = re.search(r"D:(\d{4})", str(info.get("/CreationDate") or ""))
    body = text[start.end() :] if start else _after(text, title)
    yield {
        "title": title,
        "text": body[:TEXT_CHARS],
        "doi": doi[0].rstrip(".,;)]").lower() if doi else None,
        "authors": [one.strip() for one in re.split(r"[;]| and ", str(info.get("/Author") or "")) if one.strip()]
        or None,
        "file_year": int(year[1]) if year else None,
        "pages": len(reader.pages),
    }


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


def _running(pages: list[str]) -> set[str]:
    """Headers and footers: first and last lines that most pages have, whatever number is in them."""
    if len(pages) < 4:
        return set()
    seen = Counter(line for page in pages for line in {_bare(one) for one in _edges(page)} if line)
    return {line for line, count in seen.items() if count > len(pages) / 2}


def _edges(page: str) -> list[str]:
    lines = [line for line in page.splitlines() if line.strip()]
    return [*lines[:2], *lines[-2:]]


def _bare(line: str) -> str:
    return re.sub(r"\d+", "#", line).strip()


def _without(page: str, running: set[str]) -> str:
    edges = set(_edges(page)) if running else set()
    lines = page.splitlines()
    return "\n".join(line for line in lines if not (line in edges and (_bare(line) in running)))


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
            if lines and not _ends(lines[-1]) and not _ends(bare) and not _ABSTRACT.match(bare):
                lines[-1] = f"{lines[-1]} {bare}"
            else:
                lines.append(bare)
        kept.append("\n".join(lines))
    return "\n\n".join(one for one in kept if one)


def _ends(line: str) -> bool:
    """Whether a line is a heading by itself."""
    return (
        len(line) < 40
        and re.fullmatch(
            r"(?:\d+\.?\s+)?(?:a\s?b\s?s\s?t\s?r\s?a\s?c\s?t|summary|introduction|methods?|materials and methods|"
            r"results?|discussion|conclusions?|references|acknowledge?ments?|keywords)\s*[:.]?",
            line,
            re.IGNORECASE,
        )
        is not None
    )


def _after(text: str, title: str) -> str:
    flat = re.sub(r"\s+", r"\\s+", re.escape(title).replace("\\ ", " "))
    match = re.match(rf"\s*{flat}\s*", text) if title else None
    return text[match.end() :] if match and match.end() < len(text) else text


# -- Word and Excel


def _checked(data: bytes) -> None:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        size = sum(one.file_size for one in archive.infolist())
    if size > UNPACKED:
        raise ValueError(f"it unpacks to {size:,} bytes, at most {UNPACKED:,}")


def docx(data: bytes) -> Iterator[dict[str, Any] | str]:
    import docx as word

    _checked(data)
    document = word.Document(io.BytesIO(data))
    paragraphs = [
        (one.style.name if one.style is not None else "", " ".join(one.text.split())) for one in document.paragraphs
    ]
    paragraphs = [(style, text) for style, text in paragraphs if text]
    if not paragraphs:
        yield "the Word file has no text"
        return
    core = document.core_properties
    styled = next((text for style, text in paragraphs if style == "Title"), "")
    title = styled or (core.title or "").strip()
    if not title and len(paragraphs[0][1]) <= 300 and len(paragraphs) > 1:
        title = paragraphs[0][1]
    body = [text for _, text in paragraphs]
    if body[0] == title:
        body = body[1:]
    text = "\n\n".join(body)
    doi = _DOI.search(text[:10_000])
    yield {
        "title": title,
        "text": text[:TEXT_CHARS],
        "authors": [one.strip() for one in (core.author or "").split(";") if one.strip() and one != "python-docx"]
        or None,
        "doi": doi[0].rstrip(".,;)]").lower() if doi else None,
    }


def xlsx(data: bytes) -> Iterator[dict[str, Any] | str]:
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
                yield f"the header has the column {twice[0]!r} twice"
                return
            continue
        cells = {name: _cell(cell) for name, cell in zip(names, row, strict=False)}
        yield {"__row__": number, **{name: cell for name, cell in cells.items() if cell not in (None, "")}}


def _cell(value: Any) -> Any:
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        return value.date().isoformat()
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def main() -> None:
    """Write the records, and exit with 1 and the reason on standard error where the file breaks off."""
    kind = sys.argv[1]
    limit(int(sys.argv[2]), int(sys.argv[3]))
    try:
        data = sys.stdin.buffer.read()
        for record in {"pdf": pdf, "docx": docx, "xlsx": xlsx}[kind](data):
            if isinstance(record, dict):
                record = {name: value for name, value in record.items() if value is not None}
            sys.stdout.write(json.dumps(record) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        sys.exit(0)  # nobody reads any more
    except MemoryError:
        sys.exit(f"it needs more than {int(sys.argv[2]) >> 20:,} MiB of memory")
    except RecursionError:
        sys.exit("it is nested too deeply")
    except Exception as error:  # noqa: BLE001 - the libraries raise all kinds for files that are damaged
        sys.exit(str(error) or type(error).__name__)


if __name__ == "__main__":
    main()
