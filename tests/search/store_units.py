"""Documents with their units, and how tests ask for them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from searching import answer_one, rank_one
from store_documents import LAYOUT, unit

from ccheck.core.layout import MAIN_VECTORS, Layout, UnitField
from ccheck.core.stages import Retriever
from ccheck.core.types import Document, Entry, Hit, Passage, Query, Unit, UnitEntry
from ccheck.search import Store

SENTENCES = UnitField("sentence", embedding=LAYOUT.dense[MAIN_VECTORS].embedding)
PARAGRAPHS = UnitField("paragraph")
UNITS = Layout(LAYOUT.dense, units={"sentences": SENTENCES, "paragraphs": PARAGRAPHS})

Vector = np.ndarray[Any, np.dtype[np.float32]]

TEXTS: Mapping[str, Sequence[str]] = {
    "sea": ("The sea rises.", "Tide gauges show it.", "The sea, the sea and the sea rise."),
    "ice": ("Greenland loses ice.", "So the sea rises too."),
    "flu": ("Vaccines work.",),
    "tea#1": ("Green tea is tasty.", "Nobody drinks the sea."),
}
"""The sentences of each document. A paragraph is two of them."""
VECTORS: Mapping[str, Sequence[Vector]] = {
    "sea": (unit(1, 0.1), unit(0, 1), unit(1, 0.3)),
    "ice": (unit(0, 0, 1), unit(1, 0.2)),
    "flu": (unit(0, 0, 0, 1),),
    "tea#1": (unit(0, 0, 0, 0, 1), unit(1, 1)),
}
YEARS = {"sea": 2011, "ice": 2019, "flu": 2015, "tea#1": 2019}


def cut(granularity: str, text: str, pieces: Sequence[str], vectors: Sequence[Vector] = ()) -> tuple[UnitEntry, ...]:
    units, at = [], 0
    for number, piece in enumerate(pieces):
        at = text.index(piece, at)
        units.append(
            UnitEntry(Unit(granularity, number, at, at + len(piece), piece), vectors[number] if vectors else None)
        )
        at += len(piece)
    return tuple(units)


def entry(id_: str, pieces: Sequence[str], vectors: Sequence[Vector], digest: str = "1") -> Entry:
    text = " ".join(pieces)
    pairs = [" ".join(pieces[first : first + 2]) for first in range(0, len(pieces), 2)]
    return Entry(
        Document(id_, f"Title of {id_}", text, {"year": YEARS.get(id_, 2000)}),
        digest,
        {MAIN_VECTORS: (Passage(0, len(text), vectors[0]),)},
        units={"sentences": cut("sentences", text, pieces, vectors), "paragraphs": cut("paragraphs", text, pairs)},
    )


ENTRIES = [entry(id_, TEXTS[id_], VECTORS[id_]) for id_ in TEXTS]


def ranked(store: Store, query: Query | str, retriever: Retriever, **options: Any) -> dict[str, float]:
    """What one retriever hands on, best first; `search` must agree with it."""
    query = Query(query) if isinstance(query, str) else query
    found = rank_one(store, query, {retriever.kind: retriever}, **options)[retriever.kind]
    assert len(dict(found)) == len(found)
    hits = searched(store, query, retriever, **options)
    assert [key_of(hit) for hit in hits] == [key for key, _ in found]
    assert [hit.scores[retriever.kind] for hit in hits] == pytest.approx([score for _, score in found], rel=1e-5)
    return dict(found)


def searched(store: Store, query: Query | str, retriever: Retriever, **options: Any) -> tuple[Hit, ...]:
    query = Query(query) if isinstance(query, str) else query
    ranking = answer_one(store, query, {retriever.kind: retriever}, k=retriever.depth, **options)
    assert [hit.rank for hit in ranking.hits] == list(range(1, len(ranking.hits) + 1))
    return ranking.hits


def key_of(hit: Hit) -> str:
    return hit.document.id if hit.unit is None else f"{hit.document.id}#{hit.unit.number}"
