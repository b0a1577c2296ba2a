"""What tests fill local stores with: entries of which each is found by its number, in every field that there is."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from searching import answer_one, rank_one
from store_documents import DIMENSIONS, PLAIN, SECOND

from ccheck.core.layout import MAIN_VECTORS
from ccheck.core.stages import Bm25, Dense, Retriever, Sparse
from ccheck.core.types import Document, Entry, Passage, Query, SparseVector
from ccheck.search.local import LocalStore


def entry(number: int, word: str = "paper") -> Entry:
    vector = np.random.default_rng(number).standard_normal(DIMENSIONS).astype(np.float32)
    text = f"{word} number{number}"
    return Entry(
        Document(f"d{number}", "", text),
        word,
        {MAIN_VECTORS: (Passage(0, len(text), vector / np.linalg.norm(vector)),)},
    )


WRITER = """
    from pathlib import Path
    from ccheck.search.local import store as local_store
    from local_entries import LocalStore, full_entry
    from store_documents import FULL
    local_store.COMMIT_EVERY = 40
    store = LocalStore(Path({folder!r}))
    store.prepare(FULL)
    for first in range(0, 100_000, 20):
        store.upsert([full_entry(i) for i in range(first, first + 20)])
        # What was there before is changed, so that the BM25 index has deletes to do.
        store.upsert([full_entry(i) for i in range(max(0, first - 40), max(0, first - 20))])
        print(first + 20, flush=True)
"""
"""A program that writes to a store until it is killed, and prints how many entries are there for sure."""


def replace_bytes(file: Path, data: bytes | bytearray) -> None:
    """Gives a file other bytes, as a new file: whoever has mapped the old one into memory would die of its end."""
    new = file.with_name(f"{file.name}.new")
    new.write_bytes(data)
    new.replace(file)


def flip_bit(file: Path, at: int | None = None) -> None:
    """Changes one bit of a file, of the byte in the middle unless told which."""
    data = bytearray(file.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 4
    replace_bytes(file, data)


def bm25_count(store: LocalStore, word: str = "paper") -> int:
    ranking = answer_one(store, Query(word), {"bm25": Bm25(depth=10_000)}, k=10_000)
    assert len({hit.document.id for hit in ranking.hits}) == len(ranking.hits)
    return len(ranking.hits)


def dense_first(store: LocalStore, number: int) -> str:
    query = Query("", entry(number).passages[MAIN_VECTORS][0].vector)
    ranking = answer_one(store, query, {"dense": Dense()}, k=1)
    assert ranking.hits[0].score == pytest.approx(1, abs=1e-5)
    return ranking.hits[0].document.id


def full_entry(number: int, word: str = "paper") -> Entry:
    """With something in every field that says which document it is."""
    plain = entry(number, word)
    second = np.random.default_rng(number + 1_000_000).standard_normal(4).astype(np.float32)
    tokens, weights = np.array([0, 1 + number % 1_999], np.int32), np.array([0.5, 3.0], np.float32)
    return replace(
        plain,
        passages={**plain.passages, SECOND: (Passage(0, 0, second / np.linalg.norm(second)),)},
        sparse=SparseVector(tokens, weights),
        additional=(f"extra{number}",),
    )


def found_everywhere(store: LocalStore, number: int) -> bool:
    """Whether each field of FULL leads to the document."""
    made = full_entry(number)
    assert made.sparse is not None
    query = Query(f"number{number}", made.passages[MAIN_VECTORS][0].vector)
    own = {"second": made.passages[SECOND][0].vector, "sparse": made.sparse, "additional": f"extra{number}"}
    retrievers: dict[str, Retriever] = {
        "bm25": Bm25(),
        "dense": Dense(depth=1),
        "terms": Bm25(analysis=PLAIN),
        "second": Dense(field=SECOND, depth=1),
        "sparse": Sparse(depth=1),
        "additional": Bm25(fields={"additional": 1.0}),
    }
    found = rank_one(store, replace(query, own=own), retrievers)
    return {name: [id_ for id_, _ in ranking] for name, ranking in found.items()} == {
        name: [f"d{number}"] for name in retrievers
    }
