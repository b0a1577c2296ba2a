"""Putting an article's text together, piece by piece, with what stands where."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ..core.errors import InvalidData
from ..core.text import TEXT_CHARS
from ..core.types import Value
from .mentions import resolve
from .types import Article, Element, Mention, Section

ELEMENTS = 2_000
TABLE_CHARS = 20_000
"""How much of a table's cells is read."""
_SPACE = re.compile(r"\s+")
_STATED = re.compile(
    r"((?:(?:extended data|supplementary|supporting|additional)\s)?"
    r"(?:fig(?:ure)?|tab(?:le)?|scheme)\.?\s?[A-Z]?\d{1,3})\s?[.:|]\s?(?!\d)",
    re.IGNORECASE,
)
"""A label that the file has at the beginning of the caption."""
_PART = re.compile(r"\(?([A-Za-z])\)?")
"""The label of a part of a figure: (a)."""
_DROPPED = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff]")


def tidy(text: str) -> str:
    """Text as stores keep it, so that offsets hold there, too: NFC, no control characters, single spaces."""
    return _SPACE.sub(" ", unicodedata.normalize("NFC", _DROPPED.sub("", text)))


@dataclass(slots=True)
class Line:
    """A paragraph in the making: text with single spaces, and the spans that link to elements."""

    parts: list[str] = field(default_factory=list)
    length: int = 0
    links: list[tuple[str, int, int]] = field(default_factory=list)

    @classmethod
    def of(cls, text: str) -> Line:
        line = cls()
        line.add(text)
        return line

    def add(self, text: str | None) -> None:
        if not text:
            return
        text = tidy(text)
        if text.startswith(" ") and (not self.parts or self.parts[-1].endswith(" ")):
            text = text[1:]
        if text:
            self.parts.append(text)
            self.length += len(text)

    def link(self, identifier: str, start: int) -> None:
        """Records that the text added since `start` cites the element with this id."""
        if self.length > start:
            self.links.append((identifier, start, self.length))

    @property
    def text(self) -> str:
        return "".join(self.parts).rstrip()


class ArticleBuilder:
    """Collects paragraphs, sections and elements in the order of the text, and makes the article of them."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._length = 0
        self._links: list[tuple[str, Mention]] = []
        self._sections: list[Section] = []
        self._open: list[tuple[str, int]] = []
        self._elements: list[Element] = []

    def paragraph(self, line: Line) -> int:
        """Add a paragraph. Returns the offset at which it ends."""
        if not (text := line.text):
            return self._length
        if self._length + len(text) > TEXT_CHARS:
            raise InvalidData(f"the text is too long: more than {TEXT_CHARS:,} characters")
        if self._parts:
            self._parts.append("\n\n")
            self._length += 2
        start = self._length
        self._parts.append(text)
        self._length += len(text)
        for identifier, first, last in line.links:
            self._links.append((identifier, Mention(start + first, start + min(last, len(text)))))
        return self._length

    def open_section(self, title: str) -> None:
        start = self._length + (2 if self._parts else 0)
        self._open.append((title, start))
        if title:
            self.paragraph(Line.of(title))

    def close_section(self) -> None:
        title, start = self._open.pop()
        if title and self._length > start:
            self._sections.append(Section(title, start, self._length, len(self._open) + 1))

    def element(self, one: Element, *, floating: bool = False) -> None:
        """Add an element where the text now ends; `floating`: its place in the file says nothing."""
        if len(self._elements) >= ELEMENTS:
            raise InvalidData(f"the article has too many figures and tables: more than {ELEMENTS:,}")
        label, caption = tidy(one.label).strip(" .:|"), tidy(one.caption).strip()
        if not label and (stated := _STATED.match(caption)) is not None:
            label, caption = stated[1], caption[stated.end() :]
        known = {other.id: other.label for other in self._elements}
        if known.get(one.parent or "") and (part := _PART.fullmatch(label)) is not None:
            label = known[one.parent or ""] + part[1]
        identifier = one.id
        while not identifier or identifier in known:
            identifier = f"{identifier or one.kind}-{len(self._elements) + 1}"
        content, place = tidy(one.content).strip(), None if floating else self._length
        self._elements.append(replace(one, id=identifier, label=label, caption=caption, content=content, place=place))

    def article(self, identifier: str, title: str, metadata: Mapping[str, Value] | None = None) -> Article:
        """The article. Raises InvalidData if there is no text at all."""
        while self._open:
            self.close_section()
        captions = self._length
        elements: list[Element] = []
        for one in self._elements:
            said = f"{one.label}. {one.caption}" if one.label and one.caption else one.label or one.caption
            if not said:
                continue
            # A table's cells follow its caption on a line of their own, where a search finds them.
            end = self.paragraph(Line.of(said))
            if one.content:
                self._parts.append(f"\n{one.content}")
                self._length += 1 + len(one.content)
            elements.append(replace(one, label=one.label or said[:40], start=end - len(said), end=end))
        text = "".join(self._parts)
        if not text:
            raise InvalidData("the article has no text")
        body = text[:captions]
        resolved = resolve(body, elements, self._links)
        sections = sorted(self._sections, key=lambda one: (one.start, one.level))
        return Article(
            identifier, tidy(title).strip(), text, captions, tuple(sections), tuple(resolved), metadata or {}
        )
