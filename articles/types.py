"""An article as its readers give it: one text, and what stands where in it.

Offsets (`start`, `end`) count characters of `Article.text`, end exclusive.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from ..core.types import Value

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


@dataclass(frozen=True, slots=True)
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
