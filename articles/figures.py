"""Which figures and tables of an article ground a claim, after Context24's task 1 (Bölücü et al., SDP 2024, 4.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ..core.analysis import query_terms, sentence_spans, terms
from ..core.errors import NotFound, UsageError
from ..core.fusion import Projection, Scored, projected
from ..core.grounding_stages import ChunkRun, ElementRun, FigureRun, FiguresStage, ImageRun
from ..core.types import Vector
from . import Article, Element
from .bm25 import Bm25Index
from .chunks import Cut, Span, cited_in, citing
from .embedding import Embedders, ImageEncoders, encode_claim, encoder_of, searched
from .merge import merged

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Order: TypeAlias = Callable[[str, Sequence[str], Sequence[str], str | None], Sequence[int]]
"""A claim, the labels of elements, the best chunks and a model's name to the elements' numbers, best first."""
Rephrase: TypeAlias = Callable[[str, str, str | None], str]
"""An element's label, the text that stands for it and a model's name to what the model says the element presents."""
FindImage: TypeAlias = Callable[[str, Element], Path | None]
"""An article's id and an element to the element's image, if it is there."""
_INDEXES = 64
"""How many articles' chunks are kept."""


@dataclass(frozen=True, slots=True)
class Why:
    """A piece of the article that speaks for an element: `granularity` is caption, sentence, paragraph or window."""

    text: str
    start: int
    end: int
    granularity: str

    def to_dict(self) -> dict[str, Any]:
        return {"text": self.text, "start": self.start, "end": self.end, "granularity": self.granularity}


@dataclass(frozen=True, slots=True)
class RankedElement:
    """An element of an article with its place in the ranking."""

    article: str
    element: Element
    rank: int
    score: float
    why: tuple[Why, ...] = ()


class FigureRanker:
    """Ranks the elements of articles for claims.

    BM25 of element-guided runs has the statistics of all articles given, that of chunk-guided runs those of the
    articles that are asked. `embedders` and `images` are by the name of the model in the recipe. `order` and `rephrase`
    ask a language model. `find_image` gives the images of runs of the kind image.
    """

    def __init__(
        self,
        articles: Sequence[Article],
        stage: FiguresStage,
        embedders: Embedders | None = None,
        order: Order | None = None,
        rephrase: Rephrase | None = None,
        images: ImageEncoders | None = None,
        find_image: FindImage = lambda article, element: None,
    ) -> None:
        self._stage, self._embedders, self._order, self._rephrase = stage, embedders or {}, order, rephrase
        self._images, self._find_image = images or {}, find_image
        self._cuts = {article.id: Cut(article) for article in articles}
        self._elements = {
            article.id: candidates(article, supplements=stage.supplements, panels=stage.panels) for article in articles
        }
        self._rows: dict[str, range] = {}
        for key, some in self._elements.items():
            first = self._rows[next(reversed(self._rows))].stop if self._rows else 0
            self._rows[key] = range(first, first + len(some))
        self._indexes: dict[str, Bm25Index] = {}
        self._texts: dict[tuple[str, str], list[str]] = {}
        self._vectors: dict[tuple[str, str], list[Vector]] = {}
        self._pictures: dict[tuple[str, str], list[Vector | None]] = {}
        self._chunks: dict[tuple[str, str, int], _Chunks] = {}

    @property
    def articles(self) -> list[str]:
        return list(self._cuts)

    def elements(self, article: str) -> list[Element]:
        """The elements of an article that are ranked."""
        return self._elements[article]

    def rank(self, claim: str, articles: Sequence[str]) -> list[RankedElement]:
        """The elements of these articles, best first, all of them. Raises NotFound for an article that is not here."""
        for one in articles:
            if one not in self._cuts:
                raise NotFound(f"there is no article {one!r}")
        keys = [(one, number) for one in articles for number in range(len(self._elements[one]))]
        if not keys:
            return []
        rankings = [self._run(name, run, claim, articles, keys) for name, run in self._stage.runs.items()]
        order = merged(
            [ranking for ranking, _ in rankings], [run.weight for run in self._stage.runs.values()], self._stage
        )
        scored = dict(order)
        # What no run found comes last, in the order of the article.
        order += [(key, 0.0) for key in keys if key not in scored]
        chunks = next((found for _, found in rankings if found), {})
        return [
            RankedElement(one, self._elements[one][number], rank, float(score), self._why(claim, one, number, chunks))
            for rank, ((one, number), score) in enumerate(order, 1)
        ]

    # -- runs

    def _run(
        self, name: str, run: FigureRun, claim: str, articles: Sequence[str], keys: Sequence[_Key]
    ) -> tuple[Scored[_Key], Mapping[_Key, list[Why]]]:
        if isinstance(run, ElementRun):
            return self._by_elements(name, run, claim, keys), {}
        if isinstance(run, ImageRun):
            return self._by_images(name, run, claim, keys), {}
        return self._by_chunks(run, claim, articles, keys)

    def _by_elements(self, name: str, run: ElementRun, claim: str, keys: Sequence[_Key]) -> Scored[_Key]:
        rows = [self._rows[one][number] for one, number in keys]

        def words() -> NDArray[np.float64]:
            if name not in self._indexes:
                texts = [text for one in self._elements for text in self._texts_of(name, one, run)]
                self._indexes[name] = Bm25Index([terms(text) for text in texts])
            return self._indexes[name].scores(query_terms(claim))[rows]

        def vectors() -> Sequence[Vector]:
            wanted = [one for one in dict.fromkeys(one for one, _ in keys) if (name, one) not in self._vectors]
            texts = [text for one in wanted for text in self._texts_of(name, one, captions_once(run))]
            made = iter(encoder_of(self._embedders, run.model).documents(texts)) if texts else iter(())
            for one in wanted:
                self._vectors[name, one] = [next(made) for _ in self._elements[one]]
            return [self._vectors[name, one][number] for one, number in keys]

        return _searched(run, claim, keys, words, vectors, self._embedders)

    def _texts_of(self, name: str, article: str, run: ElementRun) -> list[str]:
        """The text that stands for each element of an article. If a model has to rephrase it, it is asked once."""
        texts = self._texts.get((name, article))
        if texts is None:
            elements = self._elements[article]
            texts = [represent(self._cuts[article], one, run) for one in elements]
            if not run.rephrased:
                return texts
            if self._rephrase is None:
                raise UsageError("this recipe asks a language model what figures present. Choose one with --llm MODEL")
            texts = [self._rephrase(one.task_id, text, run.llm) for one, text in zip(elements, texts, strict=True)]
            self._texts[name, article] = texts
        return texts

    def _by_images(self, name: str, run: ImageRun, claim: str, keys: Sequence[_Key]) -> Scored[_Key]:
        encoder = self._images.get(run.model)
        if encoder is None:
            raise UsageError(f"this recipe needs the model of images {run.model}, which is not loaded")
        for article in dict.fromkeys(one for one, _ in keys):
            if (name, article) not in self._pictures:
                files = [self._find_image(article, element) for element in self._elements[article]]
                made = iter(encoder.images([one for one in files if one is not None]))
                self._pictures[name, article] = [None if one is None else next(made) for one in files]
        vectors = {(one, number): self._pictures[name, one][number] for one, number in keys}
        asked = encoder.queries([claim])[0]
        scored = [(key, float(vector @ asked)) for key, vector in vectors.items() if vector is not None]
        return sorted(scored, key=lambda item: -item[1])

    def _by_chunks(
        self, run: ChunkRun, claim: str, articles: Sequence[str], keys: Sequence[_Key]
    ) -> tuple[Scored[_Key], Mapping[_Key, list[Why]]]:
        chunks: list[tuple[str, int]] = []
        cited: dict[tuple[str, int], list[_Key]] = {}
        spans: dict[tuple[str, int], Why] = {}
        for one in articles:
            for number, (span, granularity, elements) in enumerate(self._cut_chunks(one, run)):
                chunks.append((one, number))
                cited[(one, number)] = [(one, element) for element in elements]
                spans[(one, number)] = Why(self._cuts[one].article.text[slice(*span)], *span, granularity)
        texts = [spans[chunk].text for chunk in chunks]
        ranking = _searched(
            run,
            claim,
            chunks,
            lambda: Bm25Index([terms(text) for text in texts]).scores(query_terms(claim)),
            lambda: encoder_of(self._embedders, run.model).documents(texts),
            self._embedders,
        )
        ranking = [(chunk, score) for chunk, score in ranking if score > 0]
        if run.order == "llm":
            found = self._ordered(run, claim, keys, [spans[chunk].text for chunk, _ in ranking[: run.chunks]])
        else:
            how: Projection = "sum" if run.order == "rank-fusion" else "first"
            found = projected(ranking, lambda chunk: cited[chunk], how)
        why: dict[_Key, list[Why]] = {}
        for chunk, _ in ranking:
            for key in cited[chunk]:
                why.setdefault(key, []).append(spans[chunk])
        return found, why

    def _cut_chunks(self, article: str, run: ChunkRun) -> _Chunks:
        key = (article, f"{run.granularity} {run.captions}", run.tokens)
        if key not in self._chunks:
            if len(self._chunks) >= _INDEXES:
                self._chunks.pop(next(iter(self._chunks)))
            elements = self._elements[article]
            spans = self._cuts[article].at(run.granularity, run.tokens)
            cited = cited_in(spans, elements)
            made: _Chunks = [(span, run.granularity, some) for span, some in zip(spans, cited, strict=True)]
            if run.captions:
                made += [((one.start, one.end), "caption", [number]) for number, one in enumerate(elements)]
            self._chunks[key] = made
        return self._chunks[key]

    def _ordered(self, run: ChunkRun, claim: str, keys: Sequence[_Key], texts: Sequence[str]) -> Scored[_Key]:
        if self._order is None:
            raise UsageError("this recipe asks a language model to order figures. Choose one with --llm MODEL")
        labels = [self._elements[one][number].task_id for one, number in keys]
        numbers = self._order(claim, labels, texts, run.llm)
        return [(keys[number], 1 / rank) for rank, number in enumerate(numbers, 1)]

    # -- why

    def _why(self, claim: str, article: str, number: int, chunks: Mapping[_Key, list[Why]]) -> tuple[Why, ...]:
        """The sentences that speak for an element: of its caption, that cite it, and around its place."""
        most, found = self._stage.why, chunks.get((article, number))
        if most == 0:
            return ()
        if found and all(isinstance(run, ChunkRun) for run in self._stage.runs.values()):
            return tuple(found[:most])
        cut, element = self._cuts[article], self._elements[article][number]
        pieces = [
            Why(element_text, start, end, "caption")
            for start, end, element_text in (
                (element.start + a, element.start + b, cut.article.text[element.start + a : element.start + b])
                for a, b in sentence_spans(cut.article.text[element.start : element.end])
            )
        ]
        numbers = dict.fromkeys(citing(cut.sentences, element))
        if (home := home_paragraph(cut, element)) is not None:
            numbers.update(dict.fromkeys(n for n, (start, _) in enumerate(cut.sentences) if home[0] <= start < home[1]))
        pieces += [Why(cut.article.text[slice(*cut.sentences[n])], *cut.sentences[n], "sentence") for n in numbers]
        wanted = query_terms(claim)
        scores = Bm25Index([terms(piece.text) for piece in pieces]).scores(wanted)
        best = sorted(range(len(pieces)), key=lambda one: (-scores[one], one))
        return tuple(pieces[one] for one in best[:most] if scores[one] > 0) or tuple(pieces[:1])


_Key: TypeAlias = tuple[str, int]
"""An article's id and the number of an element among its candidates."""
_Chunks: TypeAlias = list[tuple[Span, str, list[int]]]


def _searched(
    run: ElementRun | ChunkRun,
    claim: str,
    keys: Sequence[_Key],
    words: Callable[[], NDArray[np.float64]],
    vectors: Callable[[], Sequence[Vector]],
    embedders: Embedders,
) -> Scored[_Key]:
    """Keys by the run's retriever, best first."""
    return searched(
        run.retriever, keys, words, vectors, lambda: encode_claim(embedders, run.model, run.instruction, claim)
    )


def captions_once(run: ElementRun) -> ElementRun:
    """The same with the caption once: repeating it changes nothing for an embedding but its length."""
    return run.model_copy(update={"captions": 1})


def candidates(article: Article, *, supplements: bool = False, panels: bool = False) -> list[Element]:
    """The elements that are ranked. With `panels`, the cited parts of a figure take its place."""
    whole = [one for one in article.elements if supplements or one.kind != "supplement"]
    if not panels:
        return whole
    parents = {one.parent for one in whole}
    found: list[Element] = []
    for one in whole:
        letters = sorted({letter for mention in one.mentions for letter in mention.panels})
        if one.kind != "figure" or one.id in parents or one.parent is not None or not letters:
            found.append(one)
            continue
        found += [
            replace(
                one,
                id=f"{one.id}#{letter}",
                label=f"{one.label}{letter}",
                parent=one.id,
                mentions=tuple(m for m in one.mentions if letter in m.panels or not m.panels),
            )
            for letter in letters
        ]
    return found


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
