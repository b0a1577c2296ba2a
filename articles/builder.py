"""Putting an article's text together, piece by piece, with what stands where."""

from __future__ import annotations

import io
import re
import unicodedata
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from ..core.errors import InvalidData
from ..core.text import TEXT_CHARS
from ..core.types import Value
from .types import Article, Element, Kind, Mention, Section

Number: TypeAlias = str
"""The number of an element as its label has it, in capitals: 2, S4, A1, 3.1, IV."""

MOST_IN_A_RANGE = 30
"""A longer range is a misreading, such as "Fig. 1–2004"."""
_WORDS: dict[str, Kind] = {
    **dict.fromkeys(("fig", "figs", "figure", "figures", "scheme", "schemes", "plate", "plates"), "figure"),
    **dict.fromkeys(("chart", "charts", "exhibit", "exhibits"), "figure"),
    **dict.fromkeys(("tab", "tabs", "table", "tables"), "table"),
}
_NUMBER = r"(?:S\.?\s?|[A-Z])?\d{1,3}(?:\.\d{1,2})?(?!\d)(?!\.\d)|[IVX]{1,5}(?![A-Za-z])"
_FAMILIES = "|".join(sorted(_WORDS, key=len, reverse=True))
_HEAD = re.compile(rf"\b({_FAMILIES})\b\.?\s{{0,3}}(?=[A-Z]?\d|S\.?\s?\d|[IVX]{{1,5}}\b)", re.IGNORECASE)
"""The word before the numbers."""
_SERIES = re.compile(
    r"\b(?:(extended data)|supplement(?:ary|al)|supp?l?\.|appendix|(?-i:Supporting|Additional))\s$", re.IGNORECASE
)
"""The words that name a series: "Extended Data Fig. 1" and "Supplementary Table 2" are not Fig. 1 and Table 2."""
_NUMBERED = re.compile(r"\bS\d{1,3}\s$")
"""PLOS's order of a supplement: after "S4 Fig." a number begins the next sentence."""
_ITEM = re.compile(rf"({_NUMBER})")
_LETTER = r"(\()?([A-Za-z])(?![A-Za-z0-9])(?(1)\))"
_PANEL = re.compile(rf"\s?{_LETTER}")
_PANEL_RANGE = re.compile(rf"\s?(?:[-–—‐−]|to)\s?{_LETTER}")
_NEXT_PANEL = re.compile(rf"(?:\s?[,;/&]\s?(?:and\s)?|\s(?:and|&|or)\s){_LETTER}")
_JOINED = re.compile(
    rf"(?:\s?[,;/&]\s?(?:and\s|or\s)?|\s(?:and|&|or|to|through)\s|\s?[-–—‐−]\s?)(?:({_FAMILIES})\.?\s)?"
    rf"(?={_NUMBER})",
    re.IGNORECASE,
)
_RANGE = re.compile(r"\s?(?:[-–—‐−]|to|through)\s?$|\s(?:to|through)\s")


@dataclass(frozen=True, slots=True)
class Citation:
    """A citation in a text: which element it names, where, and which of its panels."""

    kind: Kind
    number: Number
    start: int
    end: int
    panels: tuple[str, ...] = ()


def find_citations(text: str) -> list[Citation]:
    """The citations of a text in their order; a range names all that lie in it."""
    found: list[Citation] = []
    for head in _HEAD.finditer(text):
        if _NUMBERED.search(text, max(0, head.start() - 5), head.start()):
            continue
        series, start = _series(text, head.start())
        cited = [
            one if not series or one.number[0].isalpha() else replace(one, number=f"{series}{one.number}")
            for one in _items(text, head.start(), head.end(), _WORDS[head[1].lower()])
        ]
        if cited and start < cited[0].start:
            cited[0] = replace(cited[0], start=start)
        found += cited
    return sorted(dict.fromkeys(found), key=lambda one: (one.start, one.end))


def _series(text: str, position: int) -> tuple[str, int]:
    """S or ED for the series that the word at this position counts in, empty for the article's own; where it begins."""
    before = _SERIES.search(text, max(0, position - 16), position)
    if before is None:
        return "", position
    return "ED" if before[1] else "S", before.start()


def _items(text: str, start: int, position: int, kind: Kind) -> Iterator[Citation]:
    """The numbers of a list that begins at `position`, after its word."""
    last: Number | None = None
    joined = ""
    while item := _ITEM.match(text, position):
        number = _clean(item[1])
        panels, position = _panels(text, item.end())
        if last is not None and _RANGE.search(joined):
            yield from (Citation(kind, between, start, position) for between in _between(last, number))
        yield Citation(kind, number, start, position, panels)
        last = number
        joint = _JOINED.match(text, position)
        if joint is None or joint[1] is not None:  # "Fig. 1 and Table 2": the next word has its own list
            return
        joined, start, position = joint[0], joint.end(), joint.end()


def _panels(text: str, position: int) -> tuple[tuple[str, ...], int]:
    """The panels named right after a number, and where they end."""
    first = _PANEL.match(text, position)
    if first is None:
        return (), position
    if text[position : position + 1] == " ":
        # "Fig. 2 a mutation" and "Fig. 3 A large effect" name no panel; "Fig. 3 B" does.
        article = first[2] in "AI" and text[first.end() : first.end() + 1] == " "
        if not first[2].isupper() or article:
            return (), position
    panels, position = [first[2].upper()], first.end()
    while True:
        if (ranged := _PANEL_RANGE.match(text, position)) is not None:
            low, high = ord(panels[-1]), ord(ranged[2].upper())
            panels += [chr(code) for code in range(low + 1, high + 1)]
            position = ranged.end()
        elif (further := _NEXT_PANEL.match(text, position)) is not None and not _is_word(text, further):
            panels.append(further[2].upper())
            position = further.end()
        else:
            return tuple(dict.fromkeys(panels)), position


def _is_word(text: str, letter: re.Match[str]) -> bool:
    """Whether a letter is the word "a" or "I" rather than a panel: "Fig. 1B and a second one"."""
    return letter[2] in ("a", "I") and text[letter.end() : letter.end() + 1] == " "


def _clean(number: str) -> Number:
    return re.sub(r"[\s]|(?<=S)\.", "", number).upper()


def _between(first: Number, last: Number) -> list[Number]:
    """The numbers that a range leaves out and its last one stands for: 3 and 4 of 2 to 5."""
    low, high = re.fullmatch(r"([A-Z]?)(\d+)", first), re.fullmatch(r"([A-Z]?)(\d+)", last)
    if low is None or high is None or (low[1] != high[1] and high[1]):
        return []
    if int(high[2]) - int(low[2]) > MOST_IN_A_RANGE:
        return []
    return [f"{low[1]}{number}" for number in range(int(low[2]) + 1, int(high[2]))]


# -- elements


def label_keys(element: Element) -> list[tuple[Kind, Number]]:
    """The element's keys in citations: (figure, 2) for "Fig. 2", (figure, 2A) and (figure, 2) for "Fig. 2a"."""
    first = next(iter(find_citations(element.label)), None)
    if first is None:
        number = _ITEM.search(element.label)
        return [(element.kind, _clean(number[1]))] if number is not None else []
    keys = [(first.kind, f"{first.number}{''.join(first.panels)}")]
    # The number of a part is that of the whole.
    return keys if first.panels and element.parent is not None else [*keys, (first.kind, first.number)]


def resolve(text: str, elements: Sequence[Element], linked: Iterable[tuple[str, Mention]] = ()) -> list[Element]:
    """The elements with their mentions in the text.

    `linked` are citations that the file itself connects with an element's id. They count where the text names none.
    """
    by_key: dict[tuple[Kind, Number], str] = {}
    for element in elements:
        for key in label_keys(element):
            by_key.setdefault(key, element.id)
    mentions: dict[str, set[Mention]] = {element.id: set() for element in elements}
    parents = {element.id: element.parent for element in elements}
    for citation in find_citations(text):
        mention = Mention(citation.start, citation.end)
        numbers = [*(f"{citation.number}{panel}" for panel in citation.panels), citation.number]
        ids = dict.fromkeys(by_key[key] for number in numbers if (key := (citation.kind, number)) in by_key)
        for one in ids:
            mentions[one].add(mention)
            parent = parents.get(one)
            if parent in mentions:
                mentions[parent].add(mention)
    links: dict[str, list[Mention]] = {owner: [] for owner in mentions}
    for identifier, mention in linked:
        for owner in (identifier, parents.get(identifier)):
            if owner in links:
                links[owner].append(mention)
    return [replace(one, mentions=_with_links(mentions[one.id], links[one.id])) for one in elements]


def _with_links(own: Iterable[Mention], links: Iterable[Mention]) -> tuple[Mention, ...]:
    """Mentions in their order; a link counts where it overlaps none of the others."""
    ahead = deque(sorted(own))
    found: list[Mention] = []
    end = 0
    for link in sorted(links):
        while ahead and ahead[0].start <= link.start:
            found.append(ahead.popleft())
            end = max(end, found[-1].end)
        if end <= link.start and not (ahead and ahead[0].start < link.end):
            found.append(link)
            end = link.end
    return (*found, *ahead)


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
        self._text = io.StringIO()
        self._links: list[tuple[str, Mention]] = []
        self._sections: list[Section] = []
        self._level = 0
        self._elements: list[Element] = []

    def paragraph(self, line: Line) -> int:
        """Add a paragraph. Returns the offset at which it ends."""
        if not (text := line.text):
            return self._text.tell()
        if self._text.tell() + len(text) > TEXT_CHARS:
            raise InvalidData(f"the text is too long: more than {TEXT_CHARS:,} characters")
        if self._text.tell():
            self._text.write("\n\n")
        start = self._text.tell()
        self._text.write(text)
        for identifier, first, last in line.links:
            self._links.append((identifier, Mention(start + first, start + min(last, len(text)))))
        return self._text.tell()

    @contextmanager
    def section(self, title: str) -> Iterator[None]:
        """What is added in the context is a section. One without a title is only a level for those in it."""
        start = self._text.tell() + (2 if self._text.tell() else 0)
        self._level += 1
        if title:
            self.paragraph(Line.of(title))
        yield
        if title and (end := self._text.tell()) > start:
            self._sections.append(Section(title, start, end, self._level))
        self._level -= 1

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
        content, place = tidy(one.content).strip(), None if floating else self._text.tell()
        self._elements.append(replace(one, id=identifier, label=label, caption=caption, content=content, place=place))

    def article(self, identifier: str, title: str, metadata: Mapping[str, Value] | None = None) -> Article:
        """The article. Raises InvalidData if there is no text at all."""
        captions = self._text.tell()
        elements: list[Element] = []
        for one in self._elements:
            said = f"{one.label}. {one.caption}" if one.label and one.caption else one.label or one.caption
            if not said:
                continue
            # A table's cells follow its caption on a line of their own, where a search finds them.
            end = self.paragraph(Line.of(said))
            if one.content:
                self._text.write(f"\n{one.content}")
            elements.append(replace(one, label=one.label or said[:40], start=end - len(said), end=end))
        text = self._text.getvalue()
        if not text:
            raise InvalidData("the article has no text")
        body = text[:captions]
        resolved = resolve(body, elements, self._links)
        sections = sorted(self._sections, key=lambda one: (one.start, one.level))
        return Article(
            identifier, tidy(title).strip(), text, captions, tuple(sections), tuple(resolved), metadata or {}
        )
