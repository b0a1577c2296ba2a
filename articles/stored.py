"""Articles as documents of a store, and back: nothing that ranking needs is lost on the way.

The document's text is the article's. Three metadata fields say what stands where in it: `article` is "full text",
`article.sections` and `article.elements` have a JSON array for each section and element.
"""

from __future__ import annotations

import json
from typing import Any

from ..core.errors import InvalidData
from ..core.types import Document, Filter
from .types import Article, Element, Kind, Mention, Section

FULL_TEXT = Filter("article", "=", "full text")
"""Passes only documents that are articles."""
SECTIONS, ELEMENTS = "article.sections", "article.elements"
_KINDS: dict[str, Kind] = {"figure": "figure", "table": "table", "supplement": "supplement"}


def record_of(article: Article) -> dict[str, Any]:
    """The article as a record that an ingest takes."""
    sections = [_line(one.title, one.start, one.end, one.level) for one in article.sections]
    elements = [
        _line(
            one.id, one.kind, one.label, one.start, one.end, one.end + (len(one.content) + 1 if one.content else 0),
            one.place, one.image, one.parent, [[m.start, m.end, "".join(m.panels)] for m in one.mentions],
        )
        for one in article.elements
    ]  # fmt: skip
    return {
        "_id": article.id,
        "title": article.title,
        "text": article.text,
        **article.metadata,
        "article": "full text",
        "article.captions": article.captions,
        SECTIONS: sections,
        ELEMENTS: elements,
    }


def is_article(document: Document) -> bool:
    """Whether an ingest made the document of an article."""
    return document.metadata.get("article") == "full text"


def article_of(document: Document) -> Article:
    """The article that `record_of` made the document of. Raises InvalidData for any other document."""
    text, data = document.text, document.metadata
    try:
        sections = tuple(Section(str(t), int(s), int(e), int(n)) for t, s, e, n in _lines(data.get(SECTIONS)))
        elements = tuple(_element(text, *one) for one in _lines(data.get(ELEMENTS)))
        captions = int(str(data.get("article.captions")))
    except (ValueError, TypeError, KeyError) as error:
        raise InvalidData(
            f"the document {document.id!r} is not a full text, or another version of ccheck stored it: {error}"
        ) from error
    own = {name: value for name, value in data.items() if name != "article" and not name.startswith("article.")}
    return Article(document.id, document.title, text, captions, sections, elements, own)


def _element(
    text: str, identifier: Any, kind: Any, label: Any, start: Any, end: Any, last: Any, place: Any, image: Any,
    parent: Any, mentions: Any,
) -> Element:  # fmt: skip
    start, end, last = int(start), int(end), int(last)
    if not 0 <= start <= end <= last <= len(text):
        raise ValueError("an element is not where it should be")
    said = text[start:end]
    caption = said.removeprefix(str(label)).removeprefix(". ")
    return Element(
        str(identifier), _KINDS[kind], str(label), caption, start, end,
        None if image is None else str(image),
        None if parent is None else str(parent),
        tuple(Mention(int(s), int(e), tuple(str(panels))) for s, e, panels in mentions),
        None if place is None else int(place),
        text[end + 1 : last] if last > end else "",
    )  # fmt: skip


def _line(*values: Any) -> str:
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"))


def _lines(value: Any) -> list[list[Any]]:
    """The arrays of a metadata field; a list of one comes back from some stores as its only value."""
    return [json.loads(one) for one in ([value] if isinstance(value, str) else value or [])]
