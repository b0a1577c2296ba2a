"""S2ORC JSON (Lo et al., ACL 2020), as s2orc-doc2json, S2ORC's releases and CORD-19 have it.

Two shapes: `body_text` with `ref_entries` (also inside `pdf_parse` or `latex_parse`), and `content` with one `text` and
`annotations`, which are spans.
"""

from __future__ import annotations

import html
import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from ..core.errors import InvalidData
from ..core.text import whole_number
from ..core.types import Value
from .builder import ArticleBuilder, Float, Line
from .types import Article, Kind

Span: TypeAlias = "tuple[int, int, Mapping[str, Any]]"
"""An annotation: where it begins and ends in the text, and its attributes."""
AUTHORS = 50
"""How many names are kept."""
AUTHOR_CHARS = 100
"""A longer annotation is not a name."""
_LABEL = re.compile(
    r"^\s*((?:supplementary\s+)?(?:fig(?:ure)?|tab(?:le)?)s?\.?\s*S?\d+[A-Za-z]?)\s*[.:|]?\s*", re.IGNORECASE
)


def is_s2orc(value: Mapping[str, Any]) -> bool:
    """Whether it is one, among records of any kind."""
    if "text" in value:
        return False
    if any(isinstance(value.get(name), dict) for name in ("pdf_parse", "latex_parse")):
        return True
    content, body = value.get("content"), value.get("body_text")
    if isinstance(content, dict):
        return "annotations" in content
    return isinstance(body, list) and all(isinstance(one, dict) for one in body)


def read_s2orc(value: Mapping[str, Any], identifier: str) -> Article:
    """Raises InvalidData if it has another shape than its kind."""
    content = value.get("content")
    try:
        if isinstance(content, dict):
            return _of_annotations(value, content, identifier)
        parse = next((value[name] for name in ("pdf_parse", "latex_parse") if isinstance(value.get(name), dict)), value)
        return _of_paragraphs(value, parse, identifier)
    except (TypeError, KeyError, AttributeError, IndexError) as error:
        raise InvalidData(f"S2ORC JSON of an unexpected shape: {error}") from error


def _metadata(value: Mapping[str, Any], marked: Sequence[str] = ()) -> dict[str, Value]:
    data: dict[str, Value] = {}
    ids = value.get("externalids") or value.get("identifiers") or {}
    doi = value.get("doi") or (ids.get("doi") or ids.get("DOI") if isinstance(ids, dict) else None)
    if isinstance(doi, str):
        data["doi"] = doi
    if (year := whole_number(str(value.get("year") or ""))) is not None:
        data["year"] = year
    people = value.get("authors") or _of(value.get("metadata"), "authors") or []
    names = [" ".join(filter(None, (one.get("name"), one.get("first"), one.get("last")))) for one in people] or marked
    if names:
        data["authors"] = list(names[:AUTHORS])
    return data


def _of(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


def _title(value: Mapping[str, Any], marked: str = "") -> str:
    return str(value.get("title") or _of(value.get("metadata"), "title") or marked)


def _of_paragraphs(value: Mapping[str, Any], parse: Mapping[str, Any], identifier: str) -> Article:
    builder = ArticleBuilder()
    abstract = parse.get("abstract") or value.get("abstract") or []
    abstract = [{"text": abstract}] if isinstance(abstract, str) else abstract
    for name, paragraphs in (("Abstract", abstract), (None, parse.get("body_text") or [])):
        section: str | None = None
        for one in paragraphs:
            own = name or str(one.get("section") or "")
            if own != section:
                if section is not None:
                    builder.close_section()
                builder.open_section(own)
                section = own
            builder.paragraph(_line(str(one.get("text") or ""), one.get("ref_spans") or []))
        if section is not None:
            builder.close_section()
    for key, entry in (parse.get("ref_entries") or {}).items():
        named = str(entry.get("type_str") or entry.get("type") or key).lower()
        said, cells = entry.get("text") or entry.get("caption") or "", entry.get("content") or entry.get("html") or ""
        number = entry.get("num") or entry.get("fig_num") or _number(key)
        found = _float(str(key), "table" if named.startswith("tab") else "figure", str(said), number)
        cells = html.unescape(re.sub(r"<[^<>]*>", " ", cells if isinstance(cells, str) else json.dumps(cells)))
        image = next(iter(entry.get("uris") or []), None)
        builder.element(replace(found, image=image, content=cells), floating=True)
    return builder.article(identifier, _title(value), _metadata(value))


def _float(identifier: str, kind: Kind, said: str, number: object) -> Float:
    """A figure or table; its text may begin with its label."""
    match = _LABEL.match(said)
    label = match[1] if match else f"{kind.capitalize()} {number}"
    return Float(identifier, kind, label, said[match.end() :] if match else said)


def _number(key: str) -> str:
    """GROBID numbers figures from 0 in its ids."""
    found = re.search(r"\d{1,9}", key)
    return str(int(found[0]) + 1) if found else ""


def _line(text: str, spans: Sequence[Mapping[str, Any]]) -> Line:
    line, done = Line(), 0
    for span in sorted(spans, key=lambda one: int(one["start"])):
        first, last = int(span["start"]), int(span["end"])
        if not done <= first <= last <= len(text):
            continue
        line.add(text[done:first])
        start = line.length
        line.add(text[first:last])
        if span.get("ref_id"):
            line.link(str(span["ref_id"]), start)
        done = last
    line.add(text[done:])
    return line


def _of_annotations(value: Mapping[str, Any], content: Mapping[str, Any], identifier: str) -> Article:
    text = str(content.get("text") or "")
    spans = {name: _spans(given, len(text)) for name, given in (content.get("annotations") or {}).items()}
    builder = ArticleBuilder()
    marks = [(span, "section") for span in spans.get("sectionheader", spans.get("section_header", []))]
    marks += [(span, "paragraph") for span in spans.get("paragraph", [])]
    if not marks:
        marks = [((0, len(text), {}), "paragraph")]
    names = ("figureref", "tableref", "figure_ref", "table_ref")
    refs = sorted((span for name in names for span in spans.get(name, [])), key=_start)
    opened = False
    for (first, last, _), kind in sorted(marks, key=lambda mark: mark[0][0]):
        said = text[first:last]
        if kind == "section":
            if opened:
                builder.close_section()
            builder.open_section(said)
            opened = True
            continue
        if not opened and _at(spans.get("abstract", []), first):
            builder.open_section("Abstract")
            opened = True
        inside = [
            {"start": start - first, "end": end - first, "ref_id": more.get("ref_id")}
            for start, end, more in refs[bisect_left(refs, first, key=_start) : bisect_left(refs, last, key=_start)]
            if end <= last
        ]
        builder.paragraph(_line(said, inside))
    kinds: tuple[Kind, Kind] = ("figure", "table")
    for kind in kinds:
        captions = spans.get(f"{kind}caption", spans.get(f"{kind}_caption", []))
        for number, (first, last, more) in enumerate(spans.get(kind, []), 1):
            place = bisect_left(captions, first, key=_start)
            own = next(((start, end) for start, end, _ in captions[place : place + 1] if end <= last), (first, last))
            key = str(more.get("id") or f"{kind}-{number}")
            builder.element(_float(key, kind, text[slice(*own)], number), floating=True)
    title, authors = (
        [text[start:end] for start, end, _ in spans.get(name, [])[:most]]
        for name, most in (("title", 1), ("author", AUTHORS))
    )
    people = [" ".join(name.split()) for name in authors if len(name) <= AUTHOR_CHARS]
    return builder.article(identifier, _title(value, "".join(title)), _metadata(value, people))


def _spans(given: Any, length: int) -> list[Span]:
    """The annotations of a kind, in order. One that overlaps another is left out: together they are no longer than the
    text."""
    found = json.loads(given) if isinstance(given, str) else given or []
    made = ((int(one["start"]), int(one["end"]), one.get("attributes") or {}) for one in found)
    kept: list[Span] = []
    for start, end, more in sorted(made, key=lambda span: span[:2]):
        if (kept[-1][1] if kept else 0) <= start < end <= length:
            kept.append((start, end, more))
    return kept


def _start(span: Span) -> int:
    return span[0]


def _at(spans: Sequence[Span], position: int) -> bool:
    """Whether the position is in one of the spans."""
    number = bisect_right(spans, position, key=_start) - 1
    return number >= 0 and position < spans[number][1]
