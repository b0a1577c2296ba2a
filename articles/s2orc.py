"""S2ORC JSON (Lo et al., ACL 2020), as s2orc-doc2json and CORD-19 have it: `body_text` with `ref_entries`.

Both can be inside `pdf_parse` or `latex_parse`.
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
from .types import Article, Element, Kind

AUTHORS = 50
"""How many names are kept."""
_PARSES = ("pdf_parse", "latex_parse")
_LABEL = re.compile(
    r"^\s*((?:supplementary\s+)?(?:fig(?:ure)?|tab(?:le)?)s?\.?\s*S?\d+[A-Za-z]?)\s*[.:|]?\s*", re.IGNORECASE
)


def is_s2orc(value: Mapping[str, Any]) -> bool:
    """Whether it is one, among records of any kind."""
    if "text" in value:
        return False
    body = value.get("body_text")
    return any(isinstance(value.get(name), dict) for name in _PARSES) or (
        isinstance(body, list) and all(isinstance(one, dict) for one in body)
    )


def read_s2orc(value: Mapping[str, Any], identifier: str) -> Article:
    """Raises InvalidData if it has another shape than its kind."""
    try:
        return _read(value, identifier)
    except (TypeError, KeyError, AttributeError, IndexError) as error:
        raise InvalidData(f"S2ORC JSON of an unexpected shape: {error}") from error


def _read(value: Mapping[str, Any], identifier: str) -> Article:
    parse = next((value[name] for name in _PARSES if isinstance(value.get(name), dict)), value)
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
        builder.element(_float(str(key), entry), floating=True)
    about = value.get("metadata") or {}
    title = str(value.get("title") or about.get("title") or "")
    return builder.article(identifier, title, _metadata(value, value.get("authors") or about.get("authors") or []))


def _metadata(value: Mapping[str, Any], people: Sequence[Mapping[str, Any]]) -> dict[str, Value]:
    data: dict[str, Value] = {}
    ids = value.get("externalids") or value.get("identifiers") or {}
    if isinstance(doi := value.get("doi") or ids.get("doi") or ids.get("DOI"), str):
        data["doi"] = doi
    if (year := whole_number(str(value.get("year") or ""))) is not None:
        data["year"] = year
    if names := [" ".join(filter(None, (one.get("name"), one.get("first"), one.get("last")))) for one in people]:
        data["authors"] = list(names[:AUTHORS])
    return data


def _float(key: str, entry: Mapping[str, Any]) -> Element:
    """A figure or table; its text may begin with its label. GROBID numbers figures from 0 in its ids."""
    named = str(entry.get("type_str") or entry.get("type") or key).lower()
    kind: Kind = "table" if named.startswith("tab") else "figure"
    said, cells = str(entry.get("text") or entry.get("caption") or ""), entry.get("content") or entry.get("html") or ""
    if (match := _LABEL.match(said)) is not None:
        label, said = match[1], said[match.end() :]
    else:
        digits = re.search(r"\d{1,9}", key)
        number = entry.get("num") or entry.get("fig_num") or (int(digits[0]) + 1 if digits else "")
        label = f"{kind.capitalize()} {number}"
    cells = html.unescape(re.sub(r"<[^<>]*>", " ", cells if isinstance(cells, str) else json.dumps(cells)))
    return Element(key, kind, label, said, image=next(iter(entry.get("uris") or []), None), content=cells)


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
