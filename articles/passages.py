"""Passages of an article that show how it arrived at a claim, after Context24's task 2 (Bölücü et al., 2024, 4.2)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeAlias

from more_itertools import split_when

from ..core.analysis import query_terms, terms
from ..core.errors import InvalidData, NotFound
from ..core.files import read_text
from ..core.grounding_stages import PassagesStage
from . import Article
from .chunks import Cut, Span
from .embedding import Bm25Index, Models, searched, selected

Expressions: TypeAlias = frozenset[tuple[str, ...]]
"""The tokens of each expression."""
_TOKEN = re.compile(r"[^\W_]+(?:[-'’][^\W_]+)*|[^\w\s]")
MOST = 50_000
"""Characters of one passage that are read."""


def tokens(text: str) -> list[str]:
    """Words and punctuation marks, in lower case."""
    return [token.lower() for token in _TOKEN.findall(text[:MOST])]


def packaged() -> Expressions:
    """ccheck's own list."""
    return listed((files(f"{__package__}") / "expressions.txt").read_text(encoding="utf-8").splitlines())


def load(path: str | Path) -> Expressions:
    """Reads a text file with one expression per line. Raises NotFound, or InvalidData if it has none."""
    found = listed(read_text(path, "the expressions").splitlines())
    if not found:
        raise InvalidData(f"{path} has no expressions. Write one on each line")
    return found


def listed(expressions: Iterable[str]) -> Expressions:
    """The expressions; empty ones and those that begin with # are left out."""
    return frozenset(tuple(words) for one in expressions if not one.startswith("#") and (words := tokens(one)))


def holds(text: str, expressions: Expressions) -> bool:
    """Whether the text holds one of the expressions, as whole words."""
    words, sizes = tuple(tokens(text)), set(map(len, expressions))
    return any(words[start : start + size] in expressions for size in sizes for start in range(len(words)))


@dataclass(frozen=True, slots=True)
class GroundingPassage:
    """A passage of an article: `section` is the title of the innermost section, `score` that of its best sentence."""

    article: str
    text: str
    start: int
    end: int
    section: str
    score: float

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "article"}


class PassageRanker:
    """Finds the passages of articles that ground claims."""

    def __init__(
        self,
        articles: Sequence[Article],
        stage: PassagesStage,
        models: Models | None = None,
        expressions: Expressions | None = None,
    ) -> None:
        self._stage, self._models, self._expressions = stage, models or Models(), expressions
        self._cuts = {article.id: Cut(article) for article in articles}
        self._indexes: dict[str, Bm25Index] = {}

    def find(self, claim: str, articles: Sequence[str]) -> list[GroundingPassage]:
        """The passages of these articles, best first. Raises NotFound for an article that is not here."""
        for one in articles:
            if one not in self._cuts:
                raise NotFound(f"there is no article {one!r}")
        found = [passage for one in articles for passage in self._in_article(claim, self._cuts[one])]
        return sorted(found, key=lambda passage: -passage.score)

    def _in_article(self, claim: str, cut: Cut) -> list[GroundingPassage]:
        stage, spans = self._stage, self._spans(cut)
        texts = [cut.article.text[slice(*span)] for span in spans]
        if not spans:
            return []
        if stage.select == "llm-article":
            chosen = selected(self._models.llm(stage.llm), claim, texts)
            return self._joined(cut, spans, dict.fromkeys(chosen, 1.0))
        ranking = searched(
            stage,
            claim,
            [(cut.article.id, number) for number in range(len(spans))],
            lambda: self._index(cut.article.id, texts).scores(query_terms(claim)),
            lambda: texts,
            self._models,
        )[: stage.sentences]
        scores: dict[int, float] = {}
        for (_, number), score in ranking:
            for near in range(number, max(-1, number - stage.neighbours - 1), -1):
                if cut.paragraph_at(spans[near][0]) == cut.paragraph_at(spans[number][0]):
                    scores[near] = max(scores.get(near, 0.0), score)
        if self._expressions is not None:
            held = {n: score for n, score in scores.items() if holds(texts[n], self._expressions)}
            scores = held or scores
        if stage.select == "llm":
            numbers = sorted(scores)
            kept = selected(self._models.llm(stage.llm), claim, [texts[number] for number in numbers])
            scores = {numbers[one]: scores[numbers[one]] for one in kept}
        return self._joined(cut, spans, scores)

    def _spans(self, cut: Cut) -> list[Span]:
        """The sentences or clauses of the body, without headings."""
        headings = {(section.start, section.start + len(section.title)) for section in cut.article.sections}
        return [span for span in (cut.clauses if self._stage.clauses else cut.sentences) if span not in headings]

    def _index(self, article: str, texts: Sequence[str]) -> Bm25Index:
        if article not in self._indexes:
            self._indexes[article] = Bm25Index([terms(text) for text in texts], self._stage.k1)
        return self._indexes[article]

    def _joined(self, cut: Cut, spans: Sequence[Span], scores: dict[int, float]) -> list[GroundingPassage]:
        """Neighbouring sentences of one paragraph become one passage."""
        paragraph = {number: cut.paragraph_at(spans[number][0]) for number in scores}
        groups = split_when(sorted(scores), lambda one, other: other > one + 1 or paragraph[one] != paragraph[other])
        passages = [
            (spans[group[0]][0], spans[group[-1]][1], max(scores[number] for number in group)) for group in groups
        ]
        article = cut.article
        return [
            GroundingPassage(article.id, article.text[start:end], start, end, article.section_at(start), score)
            for start, end, score in sorted(passages, key=lambda one: (-one[2], one[0]))
        ]
