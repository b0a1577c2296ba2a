"""PDF files. Only the other process of `apart.py` reads them."""

from __future__ import annotations

import io
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from ..core.text import TEXT_CHARS, whole_number
from .office import DOI, NOBODY, one_document, people
from .records import Record, Reject
from .sources import Source

TITLE_WITHIN = 2_000
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


def read_pdf(source: Source, on_bytes: Callable[[int], None]) -> Iterator[Record | Reject]:
    import pypdf

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    assert source.path is not None
    reader = pypdf.PdfReader(io.BytesIO(source.path.read_bytes()))
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
    if len(title) < 8 or _NOT_TITLES.search(title) or NOBODY.fullmatch(title):
        title = _largest(sizes) or ("" if NOBODY.fullmatch(title) else title)
    start = _ABSTRACT.search(text[:5_000])
    doi = DOI.search("\n".join(pages[:2])) or DOI.search(" ".join(map(str, info.values())))
    year = re.search(r"D:(\d{4})", str(info.get("/CreationDate") or ""))
    body = text[start.end() :] if start else _after(text, title)
    data_ = {
        "title": title,
        "text": body,
        "doi": doi[0].rstrip(".,;)]").lower() if doi else None,
        "authors": people(re.split(r"[;]| and ", str(info.get("/Author") or ""))),
        "file_year": whole_number(year[1]) if year else None,
        "pages": len(reader.pages),
    }
    yield one_document(source, data_, "PDF files")


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
