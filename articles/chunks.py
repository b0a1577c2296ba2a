"""Cutting an article into sentences, paragraphs and windows, and which elements each of them cites."""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from ..core.analysis import count_words, sentence_spans
from ..core.windows import pieces, windows
from . import Article, Element

Span = tuple[int, int]
"""(start, end) in the article's text."""
_CLAUSE = re.compile(
    r"(?<=[;:])\s+|,\s+(?=(?:and|but|or|which|where|while|whereas|because|although|so|that|who|when|as)\b)",
    re.IGNORECASE,
)
_CLAUSE_WORDS = 4
"""A shorter piece stays with the one before it."""


@dataclass(frozen=True)
class Cut:
    """An article with its body cut at all granularities."""

    article: Article

    @cached_property
    def paragraphs(self) -> list[Span]:
        spans, start = [], 0
        for part in self.article.body.split("\n\n"):
            if part.strip():
                spans.append((start, start + len(part)))
            start += len(part) + 2
        return spans

    @cached_property
    def by_paragraph(self) -> list[list[Span]]:
        """The sentences of each paragraph."""
        text = self.article.text
        return [
            [(first + start, first + end) for start, end in sentence_spans(text[first:last])]
            for first, last in self.paragraphs
        ]

    @cached_property
    def sentences(self) -> list[Span]:
        return [one for some in self.by_paragraph for one in some]

    def paragraph_at(self, position: int) -> Span | None:
        """The paragraph at this offset, or the last before it."""
        number = bisect.bisect_right([start for start, _ in self.paragraphs], position) - 1
        return self.paragraphs[number] if number >= 0 else None

    def windows(self, tokens: int) -> list[Span]:
        """Windows of whole sentences of at most `tokens` words over the whole body."""
        return self._filled([self.sentences], count_words, tokens)

    def semantic(self, characters: int) -> list[Span]:
        """Whole sentences of one paragraph, as many as fit."""
        return self._filled(self.by_paragraph, len, characters)

    def _filled(self, groups: Sequence[Sequence[Span]], count: Callable[[str], int], most: int) -> list[Span]:
        found: list[Span] = []
        for sentences in groups:
            [parts] = pieces([self.article.text], [sentences], lambda texts: [count(one) for one in texts], [most])
            found += windows(parts, most, 0)
        return found

    def at(self, granularity: str, tokens: int = 0) -> list[Span]:
        """The chunks of this granularity: sentence, paragraph or window."""
        if granularity == "window":
            return self.windows(tokens)
        return self.sentences if granularity == "sentence" else self.paragraphs

    @cached_property
    def clauses(self) -> list[Span]:
        """The parts of sentences between semicolons, colons, and commas before a conjunction or relative pronoun."""
        found: list[Span] = []
        for first, last in self.sentences:
            start = first
            for joint in _CLAUSE.finditer(self.article.text, first, last):
                if count_words(self.article.text[start : joint.start()]) >= _CLAUSE_WORDS:
                    found.append((start, joint.start()))
                    start = joint.end()
            if start > first and count_words(self.article.text[start:last]) < _CLAUSE_WORDS:
                found[-1] = (found[-1][0], last)
            else:
                found.append((start, last))
        return found


def citing(spans: Sequence[Span], element: Element) -> list[int]:
    """The numbers of the spans, which are in order, that cite the element."""
    return [number for number, cited in enumerate(cited_in(spans, [element])) if cited]


def cited_in(spans: Sequence[Span], elements: Iterable[Element]) -> list[list[int]]:
    """The numbers of the elements that each span cites, in the order of first mention."""
    found: list[dict[int, int]] = [{} for _ in spans]
    starts = [start for start, _ in spans]
    for number, element in enumerate(elements):
        for mention in element.mentions:
            chunk = bisect.bisect_right(starts, mention.start) - 1
            if chunk >= 0 and mention.start < spans[chunk][1]:
                found[chunk].setdefault(number, mention.start)
    return [sorted(one, key=lambda number: (one[number], number)) for one in found]
