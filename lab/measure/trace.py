"""Shows where each stage won or lost a relevant document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .evaluate import Evaluation
from .types import Qrels


@dataclass(frozen=True, slots=True)
class DocumentTrace:
    """A relevant document's way through the stages.

    `ranks` has its place, from 1, after each stage, None if it is not there. `won` and `lost` are the stages that
    moved it into and out of the first `top`; a fusion is compared with the best place that any retriever gave it.
    """

    claim: str
    document: str
    grade: int
    ranks: Mapping[str, int | None]
    top: int
    won: tuple[str, ...]
    lost: tuple[str, ...]

    @property
    def found(self) -> bool:
        """Whether any stage returned it at all."""
        return any(rank is not None for rank in self.ranks.values())

    @property
    def in_top(self) -> bool:
        """Whether it is among the first after the last stage."""
        return bool(self.ranks) and _within(list(self.ranks.values())[-1], self.top)


@dataclass(frozen=True, slots=True)
class Gain:
    """A stage's effect on all claims' relevant documents: how many of them are among its first `top`, and how many
    it moved in and out. A retriever moves none."""

    there: int
    won: int
    lost: int


def trace_documents(evaluation: Evaluation, qrels: Qrels, top: int) -> list[DocumentTrace]:
    """The way of each relevant document of the claims that were answered, in the order of the claims."""
    stages = evaluation.stages
    retrievers = [name for name in stages if name in evaluation.recipe.retrievers]
    later = [name for name in stages if name not in retrievers]
    found: list[DocumentTrace] = []
    for claim in evaluation.claims:
        id_ = str(claim.id)
        if id_ not in evaluation.run:
            continue
        relevant = {document: grade for document, grade in qrels.get(id_, {}).items() if grade > 0}
        places = {name: _places(stages[name].get(id_, ()), relevant) for name in stages}
        for document, grade in relevant.items():
            ranks = {name: places[name].get(document) for name in stages}
            before = any(_within(ranks[name], top) for name in retrievers)
            won: list[str] = []
            lost: list[str] = []
            for name in later:
                now = _within(ranks[name], top)
                if now != before:
                    (won if now else lost).append(name)
                before = now
            found.append(DocumentTrace(id_, document, grade, ranks, top, tuple(won), tuple(lost)))
    return found


def gains(evaluation: Evaluation, traced: Sequence[DocumentTrace]) -> dict[str, Gain]:
    """The effect of each stage, in the order in which they ran."""
    return {
        name: Gain(
            sum(_within(way.ranks[name], way.top) for way in traced),
            sum(name in way.won for way in traced),
            sum(name in way.lost for way in traced),
        )
        for name in evaluation.stages
    }


def _places(ranking: Sequence[str], wanted: Mapping[str, int]) -> dict[str, int]:
    return {document: place for place, document in enumerate(ranking, 1) if document in wanted}


def _within(rank: int | None, top: int) -> bool:
    return rank is not None and rank <= top
