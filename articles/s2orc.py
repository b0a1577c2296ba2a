"""S2ORC JSON (Lo et al., ACL 2020), as s2orc-doc2json, S2ORC's releases and CORD-19 have it.

Two shapes: `body_text` with `ref_entries` (also inside `pdf_parse` or `latex_parse`), and `content` with one `text` and
`annotations`, which are spans.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.errors import InvalidData
from ..core.text import whole_number
from ..core.types import Value
from .builder import ArticleBuilder, Line
from .types import Article

AUTHORS = 50
"""How many names are kept."""
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


def _metadata(value: Mapping[str, Any]) -> dict[str, Value]:
    data: dict[str, Value] = {}
    ids = value.get("externalids") or value.get("identifiers") or {}
    doi = value.get("doi") or (ids.get("doi") or ids.get("DOI") if isinstance(ids, dict) else None)
    if isinstance(doi, str):
        data["doi"] = doi
    if (year := whole_number(str(value.get("year") or ""))) is not None:
        data["year"] = year
    people = value.get("authors") or _of(value.get("metadata"), "authors") or []
    names = [" ".join(filter(None, (one.get("name"), one.get("first"), one.get("last")))) for one in people]
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
        kind = "table" if str(entry.get("type_str") or entry.get("type") or key).lower().startswith("tab") else "figure"
        said = str(entry.get("text") or entry.get("caption") or "")
        match, number = _LABEL.match(said), entry.get("num") or entry.get("fig_num")
        label = match[1] if match else f"{kind.capitalize()} {number or _number(key)}"
        cells = entry.get("content") or entry.get("html") or ""
        builder.element(
            str(key), "table" if kind == "table" else "figure", label, said[match.end() :] if match else said,
            image=next(iter(entry.get("uris") or []), None), floating=True,
            content=html.unescape(re.sub(r"<[^>]*>", " ", cells if isinstance(cells, str) else json.dumps(cells))),
        )  # fmt: skip
    return builder.article(identifier, _title(value), _metadata(value))


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
    spans: dict[str, list[dict[str, Any]]] = {}
    for name, given in (content.get("annotations") or {}).items():
        found = json.loads(given) if isinstance(given, str) else given or []
        spans[name] = sorted(
            (one for one in found if 0 <= int(one["start"]) <= int(one["end"]) <= len(text)),
            key=lambda one: int(one["start"]),
        )
    builder = ArticleBuilder()
    headings = [("Abstract", one) for one in spans.get("abstract", [])]
    marks = [(int(one["start"]), "section", one) for one in spans.get("sectionheader", spans.get("section_header", []))]
    marks += [(int(one["start"]), "paragraph", one) for one in spans.get("paragraph", [])]
    if not marks:
        marks = [(0, "paragraph", {"start": 0, "end": len(text)})]
    abstracts = [(int(one["start"]), int(one["end"])) for _, one in headings]
    opened = False
    for position, kind, one in sorted(marks, key=lambda mark: mark[0]):
        said = text[position : int(one["end"])]
        if kind == "section":
            if opened:
                builder.close_section()
            builder.open_section(said)
            opened = True
            continue
        if not opened and any(first <= position < last for first, last in abstracts):
            builder.open_section("Abstract")
            opened = True
        inside = [
            {"start": int(ref["start"]) - position, "end": int(ref["end"]) - position,
             "ref_id": (ref.get("attributes") or {}).get("ref_id")}
            for name in ("figureref", "tableref", "figure_ref", "table_ref")
            for ref in spans.get(name, [])
            if position <= int(ref["start"]) and int(ref["end"]) <= int(one["end"])
        ]  # fmt: skip
        builder.paragraph(_line(said, inside))
    for name, kind in (("figure", "figure"), ("table", "table")):
        captions = spans.get(f"{name}caption", spans.get(f"{name}_caption", []))
        for number, one in enumerate(spans.get(name, []), 1):
            first, last = int(one["start"]), int(one["end"])
            own = next((c for c in captions if first <= int(c["start"]) and int(c["end"]) <= last), one)
            said = text[int(own["start"]) : int(own["end"])]
            match = _LABEL.match(said)
            key = str((one.get("attributes") or {}).get("id") or f"{kind}-{number}")
            builder.element(
                key, "table" if kind == "table" else "figure", match[1] if match else f"{kind.capitalize()} {number}",
                said[match.end() :] if match else said, floating=True,
            )  # fmt: skip
    title = "".join(text[int(one["start"]) : int(one["end"])] for one in spans.get("title", [])[:1])
    return builder.article(identifier, _title(value, title), _metadata(value))
