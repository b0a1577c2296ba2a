"""Which figures and tables of an article ground a claim, after Context24's task 1 (Bölücü et al., SDP 2024, 4.1)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..core.analysis import query_terms, sentence_spans, terms
from ..core.errors import NotFound
from ..core.fusion import Projection, Scored, projected
from ..core.grounding_stages import ChunkRun, ElementRun, FigureRun, FiguresStage, ImageRun, MergedRun
from ..core.types import Vector
from . import Article, Element
from .chunks import Cut, Span, cited_in, citing
from .embedding import Bm25Index, Models, ordered, rephrased, searched

Key = TypeVar("Key", bound=Hashable)
Made = TypeVar("Made")
_Key: TypeAlias = tuple[str, int]
"""An article's id and the number of an element in it."""


@dataclass(frozen=True, slots=True)
class Why:
    """A piece of the article that speaks for an element: `granularity` is caption, sentence, paragraph or window."""

    text: str
    start: int
    end: int
    granularity: str


@dataclass(frozen=True, slots=True)
class RankedElement:
    """An element of an article with its place in the ranking."""

    article: str
    element: Element
    rank: int
    score: float
    why: tuple[Why, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """JSON values: `id` and `label` are the article's, `task_id` is Context24's."""
        names = {"id": self.element.id, "task_id": self.element.task_id, "label": self.element.label}
        return {**names, "rank": self.rank, "score": self.score, "why": [asdict(why) for why in self.why]}


class FigureRanker:
    """Ranks the elements of articles for claims.

    BM25 of element-guided runs has the statistics of all articles given, that of chunk-guided runs those of the
    articles that are asked.
    """

    def __init__(self, articles: Sequence[Article], stage: FiguresStage, models: Models | None = None) -> None:
        self._stage, self._models = stage, models or Models()
        self._cuts = {article.id: Cut(article) for article in articles}
        self.elements = {article.id: article.elements for article in articles}
        keys = [(one, number) for one, some in self.elements.items() for number in range(len(some))]
        self._rows = {key: row for row, key in enumerate(keys)}
        self._made: dict[tuple[object, ...], Any] = {}

    def rank(self, claim: str, articles: Sequence[str]) -> list[RankedElement]:
        """The elements of these articles, best first, all of them. Raises NotFound for an article that is not here."""
        for one in articles:
            if one not in self._cuts:
                raise NotFound(f"there is no article {one!r}")
        keys = [(one, number) for one in articles for number in range(len(self.elements[one]))]
        if not keys:
            return []
        found, chunks = self._run("", self._stage, claim, articles, keys)
        scored = dict(found)
        # What no run found comes last, in the order of the article.
        order = [*found, *((key, 0.0) for key in keys if key not in scored)]
        return [
            RankedElement(key[0], self._element(key), rank, float(score), self._why(claim, key, chunks))
            for rank, (key, score) in enumerate(order, 1)
        ]

    def _element(self, key: _Key) -> Element:
        return self.elements[key[0]][key[1]]

    def _once(self, make: Callable[[], Made], *key: object) -> Made:
        """What was made under this key, from then on."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]  # type: ignore[no-any-return]

    # -- runs

    def _run(
        self, name: str, run: FigureRun | FiguresStage, claim: str, articles: Sequence[str], keys: Sequence[_Key]
    ) -> tuple[Scored[_Key], Mapping[_Key, list[Why]]]:
        if isinstance(run, ElementRun):
            return self._by_elements(name, run, claim, keys), {}
        if isinstance(run, ImageRun):
            return self._by_images(run, claim, articles), {}
        if isinstance(run, MergedRun | FiguresStage):
            inner = [self._run(f"{name}.{part}", one, claim, articles, keys) for part, one in run.runs.items()]
            order = merged([ranking for ranking, _ in inner], [one.weight for one in run.runs.values()], run)
            return order, next((found for _, found in inner if found), {})
        return self._by_chunks(run, claim, articles, keys)

    def _by_elements(self, name: str, run: ElementRun, claim: str, keys: Sequence[_Key]) -> Scored[_Key]:
        def made() -> Bm25Index:
            return Bm25Index([terms(self._text(name, run, key)) for key in self._rows], run.k1)

        def words() -> NDArray[np.float64]:
            index = self._once(made, name)
            return index.scores(query_terms(claim))[[self._rows[key] for key in keys]]

        # Repeating a caption changes nothing for an embedding but its length.
        once = run.model_copy(update={"captions": 1})
        return searched(run, claim, keys, words, lambda: [self._text(name, once, key) for key in keys], self._models)

    def _text(self, name: str, run: ElementRun, key: _Key) -> str:
        """The text that stands for an element. If a model has to rephrase it, it is asked once."""
        element = self._element(key)
        text = represent(self._cuts[key[0]], element, run)
        if not run.rephrased:
            return text
        return self._once(lambda: rephrased(self._models.llm(run.llm), element.task_id, text), name, key)

    def _by_images(self, run: ImageRun, claim: str, articles: Sequence[str]) -> Scored[_Key]:
        encoder = self._models.images[run.model]

        def pictures(article: str) -> list[Vector | None]:
            files = [self._models.find_image(article, element) for element in self.elements[article]]
            made = iter(encoder.images([one for one in files if one is not None]))
            return [None if one is None else next(made) for one in files]

        [asked] = encoder.queries([claim])
        found = {one: self._once(lambda one=one: pictures(one), run.model, one) for one in articles}  # type: ignore[misc]
        scored = [
            ((one, number), float(vector @ asked))
            for one, vectors in found.items()
            for number, vector in enumerate(vectors)
            if vector is not None
        ]
        return sorted(scored, key=lambda item: -item[1])

    def _by_chunks(
        self, run: ChunkRun, claim: str, articles: Sequence[str], keys: Sequence[_Key]
    ) -> tuple[Scored[_Key], Mapping[_Key, list[Why]]]:
        found = {(one, number): chunk for one in articles for number, chunk in enumerate(self._chunks(one, run))}
        texts = [chunk.text for chunk, _ in found.values()]
        ranking = searched(
            run,
            claim,
            list(found),
            lambda: Bm25Index([terms(text) for text in texts]).scores(query_terms(claim)),
            lambda: texts,
            self._models,
        )
        ranking = [(key, score) for key, score in ranking if score > 0]
        why: dict[_Key, list[Why]] = {}
        for key, _ in ranking:
            chunk, cited = found[key]
            for one in cited:
                why.setdefault(one, []).append(chunk)
        if run.order == "llm":
            labels = [self._element(key).task_id for key in keys]
            best = [found[key][0].text for key, _ in ranking[: run.chunks]]
            numbers = ordered(self._models.llm(run.llm), claim, labels, best)
            return [(keys[number], 1 / rank) for rank, number in enumerate(numbers, 1)], why
        how: Projection = "sum" if run.order == "rank-fusion" else "first"
        return projected(ranking, lambda key: found[key][1], how), why

    def _chunks(self, article: str, run: ChunkRun) -> list[tuple[Why, list[_Key]]]:
        """The chunks of an article, each with the elements that it cites."""

        def made() -> list[tuple[Why, list[_Key]]]:
            cut, elements = self._cuts[article], self.elements[article]
            text, spans = cut.article.text, cut.at(run.granularity, run.tokens)
            chunks = [Why(text[slice(*span)], *span, run.granularity) for span in spans]
            cited = cited_in(spans, elements)
            if run.captions:
                chunks += [Why(text[one.start : one.end], one.start, one.end, "caption") for one in elements]
                cited += [[number] for number in range(len(elements))]
            keys = [[(article, number) for number in numbers] for numbers in cited]
            return list(zip(chunks, keys, strict=True))

        return self._once(made, article, run.granularity, run.captions, run.tokens)

    # -- why

    def _why(self, claim: str, key: _Key, chunks: Mapping[_Key, list[Why]]) -> tuple[Why, ...]:
        """The sentences that speak for an element: of its caption, that cite it, and around its place."""
        most, found = self._stage.why, chunks.get(key)
        if found and all(isinstance(run, ChunkRun) for run in self._stage.runs.values()):
            return tuple(found[:most])
        cut, element = self._cuts[key[0]], self._element(key)
        text, first = cut.article.text, element.start
        pieces = [(first + a, first + b, "caption") for a, b in sentence_spans(text[first : element.end])]
        numbers = dict.fromkeys(citing(cut.sentences, element))
        if (home := home_paragraph(cut, element)) is not None:
            numbers.update(dict.fromkeys(n for n, (start, _) in enumerate(cut.sentences) if home[0] <= start < home[1]))
        pieces += [(*cut.sentences[n], "sentence") for n in numbers]
        scores = Bm25Index([terms(text[start:end]) for start, end, _ in pieces]).scores(query_terms(claim))
        best = sorted(range(len(pieces)), key=lambda one: (-scores[one], one))
        best = [one for one in best if scores[one] > 0] or [0]
        return tuple(Why(text[slice(*pieces[n][:2])], *pieces[n]) for n in best[:most] if pieces)


def home_paragraph(cut: Cut, element: Element) -> Span | None:
    """The paragraph that the file places an element after; where it says nothing, that of the first mention."""
    place = element.place if element.place is not None else next((one.start for one in element.mentions), None)
    return cut.paragraph_at(place) if place is not None else None


def represent(cut: Cut, element: Element, run: ElementRun) -> str:
    """The text that stands for an element in an element-guided run."""
    text, body = cut.article.text, cut.sentences
    parts: list[str] = []
    if "caption" in run.text:
        parts += [f"{element.label}. {element.caption}"] * run.captions
    if "cells" in run.text:
        parts.append(element.content)
    numbers: dict[int, None] = {}
    home = home_paragraph(cut, element) if "place" in run.text else None
    if home is not None:
        parts.append(text[slice(*home)])
    if "sentences" in run.text:
        for found in citing(body, element):
            near = range(max(0, found - run.neighbours), min(len(body), found + run.neighbours + 1))
            numbers.update(dict.fromkeys(near))
        # What the paragraph of its place has already does not count twice.
        parts += [text[slice(*body[n])] for n in sorted(numbers) if home is None or not home[0] <= body[n][0] < home[1]]
    for name, spans in (("windows", cut.windows), ("semantic", cut.semantic)):
        if name in run.text:
            chunks = spans(run.tokens if name == "windows" else run.characters)
            parts += [text[slice(*chunks[n])] for n in citing(chunks, element)]
    return " ".join(parts)


def merged(
    rankings: Sequence[Scored[Key]], weights: Sequence[float], stage: FiguresStage | MergedRun
) -> list[tuple[Key, float]]:
    """One ranking, best first, as `stage.merge` says (see `FiguresStage`). A single ranking stays as it is.

    Equal scores keep the order in which the keys first came up. Round robin's score is 1 / rank.
    """
    if len(rankings) == 1:
        return list(rankings[0])
    if stage.merge == "round-robin":
        keys = _in_turn([[key for key, _ in ranking] for ranking in rankings])
        return [(key, 1 / rank) for rank, key in enumerate(keys, 1)]
    totals: dict[Key, float] = {}
    for place, (ranking, weight) in enumerate(zip(rankings, weights, strict=True)):
        best = max((score for _, score in ranking), default=0.0)
        for rank, (key, score) in enumerate(ranking, 1):
            if stage.merge == "rank-and-score":
                share = 1 / (rank * stage.s**place)
            else:
                share = weight * max(score, 0.0) / best if best > 0 else 0.0
            totals[key] = totals.get(key, 0.0) + share
    return sorted(totals.items(), key=lambda item: -item[1])


def _in_turn(rankings: Sequence[Sequence[Key]]) -> list[Key]:
    """Takes the new keys in each ranking's next portion, in passes. The portion is one larger with each pass."""
    keys: dict[Key, None] = {}
    start, portion = 0, 1
    while any(start < len(ranking) for ranking in rankings):
        for ranking in rankings:
            keys.update(dict.fromkeys(ranking[start : start + portion]))
        start += portion
        portion += 1
    return list(keys)
