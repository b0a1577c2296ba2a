"""An article as its readers give it: one text, and what stands where in it.

Offsets (`start`, `end`) count characters of `Article.text`, end exclusive.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, TypeAdapter

from ..core.errors import InvalidData
from ..core.text import first_line
from ..core.types import Document, Filter, Value

Kind: TypeAlias = Literal["figure", "table"]
_SERIES = re.compile(r"extended data|suppl|additional|appendix", re.IGNORECASE)
"""In the label of what does not count with the article's own figures: "Figure 1—figure supplement 2"."""


@dataclass(frozen=True, slots=True)
class Section:
    """A section with its title. `start` and `end` enclose its paragraphs and those of its subsections."""

    title: str
    start: int
    end: int
    level: int = 1


@dataclass(frozen=True, slots=True, order=True)
class Mention:
    """A place in the text that cites an element."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Element:
    """A figure or table.

    `start` and `end` enclose its caption, label included, in the article's text. `place` is the offset in the body at
    which the file has it; None if the file keeps figures apart from the text. `parent` is the id of the figure that
    this is a part of. `content` is what a table's cells say.
    """

    id: str
    kind: Kind
    label: str
    caption: str
    start: int = 0
    end: int = 0
    image: str | None = None
    parent: str | None = None
    mentions: tuple[Mention, ...] = ()
    place: int | None = None
    content: str = ""

    @property
    def task_id(self) -> str:
        """The id that Context24 gives it: FIG 1D, TAB 2; the label in capitals for other series."""
        number = re.search(r"[A-Z]?\d[\d.]*[A-Za-z]?$|[IVXL]+$|[A-Z]\d+", self.label)
        if number is None or _SERIES.search(self.label):
            return self.label.upper()
        return f"{'FIG' if self.kind == 'figure' else 'TAB'} {number[0].upper()}"


@dataclass(frozen=True, slots=True)
class Article:
    """A full text.

    `text` is the abstract and the body, paragraphs and headings between blank lines, and from `captions` on the
    captions of all elements.
    """

    id: str
    title: str
    text: str
    captions: int
    sections: tuple[Section, ...] = ()
    elements: tuple[Element, ...] = ()
    metadata: Mapping[str, Value] = field(default_factory=dict)

    @property
    def body(self) -> str:
        """The text without the captions."""
        return self.text[: self.captions]

    def section_at(self, position: int) -> str:
        """The title of the innermost section at this offset; empty outside of all."""
        inside = [one for one in self.sections if one.start <= position < one.end]
        return max(inside, key=lambda one: one.level).title if inside else ""


# -- as documents of a store, and back: nothing that ranking needs is lost on the way

FULL_TEXT = Filter("article", "=", "full text")
"""Passes only documents that are articles."""
SECTIONS, ELEMENTS = "article.sections", "article.elements"


def record_of(article: Article) -> dict[str, Any]:
    """The article as a record that an ingest takes."""
    sections = [_line(one.title, one.start, one.end, one.level) for one in article.sections]
    elements = [
        _line(
            one.id, one.kind, one.label, one.start, one.end, one.end + (len(one.content) + 1 if one.content else 0),
            one.place, one.image, one.parent, [[mention.start, mention.end] for mention in one.mentions],
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


def article_of_record(record: dict[str, Any]) -> Article:
    """The article that `record_of` made the record of, where no store lies between."""
    metadata = {name: value for name, value in record.items() if name not in ("_id", "title", "text")}
    return article_of(Document(record["_id"], record["title"], record["text"], metadata))


def is_article(document: Document) -> bool:
    """Whether an ingest made the document of an article."""
    return document.metadata.get("article") == "full text"


def article_of(document: Document) -> Article:
    """The article that `record_of` made the document of. Raises InvalidData for any other document."""
    text, data = document.text, document.metadata
    try:
        sections = [Section(*_SECTION.validate_json(one)) for one in _lines(data.get(SECTIONS))]
        elements = [_element(text, one) for one in _lines(data.get(ELEMENTS))]
        captions = _OFFSET.validate_python(data.get("article.captions"))
        places = [(one.start, one.end) for one in sections] + [(one.start, one.end) for one in elements]
        places += [(mention.start, mention.end) for one in elements for mention in one.mentions]
        if not all(start <= end <= len(text) for start, end in places) or captions > len(text):
            raise ValueError("a place is outside of the text")
    except ValueError as error:  # pydantic's, too
        raise InvalidData(
            f"the document {document.id!r} is not a full text that ccheck stored: {first_line(error)}"
        ) from error
    own = {name: value for name, value in data.items() if name != "article" and not name.startswith("article.")}
    return Article(document.id, document.title, text, captions, tuple(sections), tuple(elements), own)


def articles_of(documents: Iterable[Document]) -> tuple[list[Article], list[str]]:
    """The articles of those documents that are articles, and why some of these can't be used."""
    articles: list[Article] = []
    unread: list[str] = []
    for document in documents:
        try:
            if is_article(document):
                articles.append(article_of(document))
        except InvalidData as error:
            unread.append(str(error))
    return articles, unread


_Offset = Annotated[int, Field(ge=0, le=1 << 30)]
_OFFSET = TypeAdapter(_Offset)
_SECTION = TypeAdapter(tuple[str, _Offset, _Offset, Annotated[int, Field(ge=0, le=1000)]])
_ELEMENT = TypeAdapter(
    tuple[
        str, Kind, str, _Offset, _Offset, _Offset, _Offset | None, str | None, str | None,
        list[tuple[_Offset, _Offset]],
    ]
)  # fmt: skip


def _element(text: str, line: str) -> Element:
    identifier, kind, label, start, end, last, place, image, parent, mentions = _ELEMENT.validate_json(line)
    caption = text[start:end].removeprefix(label).removeprefix(". ")
    cited = tuple(Mention(*span) for span in mentions)
    return Element(identifier, kind, label, caption, start, end, image, parent, cited, place, text[end + 1 : last])


def _line(*values: Any) -> str:
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"))


def _lines(value: Value) -> list[str]:
    """The arrays of a metadata field; a list of one comes back from some stores as its only value."""
    return [str(one) for one in (value if isinstance(value, list) else [] if value is None else [value])]
