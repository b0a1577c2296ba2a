"""Sparse retrieval in the local store against scipy's plain matrix products, over the same synthetic vectors.

    python benchmarks/local_sparse.py --documents 400000

Vectors resemble SPLADE's: out of 30,522 tokens a document has about 150 and a claim about 30, common ones more often. A
claim's answer is the best 100 documents with their scores. ccheck's side is `store.rankings`, including the ids. The
other side is (1) the product of the CSR matrix and the claim's vector, or (2) the product of the claim's columns in the
CSC matrix. The sides alternate in one run. The script prints the medians of CPU time, and the ratio by claim with its
quartiles.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import click
import numpy as np
import scipy.sparse
from common import in_turns, machine

from ccheck.core.layout import Layout, SparseField
from ccheck.core.stages import Sparse
from ccheck.core.types import Document, Entry, Query, SparseVector
from ccheck.search import Ranks, Search
from ccheck.search.local import LocalStore

VOCABULARY = 30_522
LAYOUT = Layout(sparse=SparseField("synthetic", VOCABULARY, "0" * 64, 512))


def vectors(random: np.random.Generator, count: int, tokens: int) -> list[SparseVector]:
    """Vectors of about so many tokens, drawn by a flattened Zipf's law."""
    chances = np.cumsum((np.arange(VOCABULARY) + 50.0) ** -0.8)
    chances /= chances[-1]
    sizes = np.maximum(1, random.normal(tokens, tokens / 4, count).astype(int))
    drawn = [
        np.unique(np.searchsorted(chances, random.random(int(1.2 * size)))).clip(max=VOCABULARY - 1) for size in sizes
    ]
    kept = [np.sort(random.permutation(ids)[:size]) for ids, size in zip(drawn, sizes, strict=True)]
    return [
        SparseVector(ids.astype(np.int32), random.gamma(1.5, 0.4, len(ids)).astype(np.float32) + 0.01)
        for ids in (np.unique(one) for one in kept)
    ]


def build(folder: Path, documents: int, random: np.random.Generator) -> scipy.sparse.csr_matrix:
    """The store, and its vectors as a matrix."""
    ids, weights, lengths = [], [], []
    seconds = 0.0
    with LocalStore(folder) as store:
        store.prepare(LAYOUT)
        for first in range(0, documents, 5000):
            made = vectors(random, min(5000, documents - first), 150)
            ids += [one.ids for one in made]
            weights += [one.weights for one in made]
            lengths += [len(one.ids) for one in made]
            entries = [Entry(Document(f"d{first + i}", "", "x"), "1", sparse=one) for i, one in enumerate(made)]
            started = time.process_time()
            store.upsert(entries)
            seconds += time.process_time() - started
        started = time.process_time()
        store.publish()
        seconds += time.process_time() - started
        info = store.info()
    assert info is not None and info.bytes is not None
    print(
        f"{documents:,} documents, {sum(lengths):,} weights; stored in {seconds:.0f} CPU s, {info.bytes / 1e6:,.0f} MB"
    )
    offsets = np.r_[0, np.cumsum(lengths)]
    shape = (documents, VOCABULARY)
    return scipy.sparse.csr_matrix((np.concatenate(weights), np.concatenate(ids), offsets), shape)


def best(scores: np.ndarray[tuple[int], np.dtype[np.float32]], depth: int) -> list[tuple[int, float]]:
    top = np.argpartition(scores, -depth)[-depth:]
    order = top[np.lexsort((top, -scores[top]))]
    return [(int(row), float(scores[row])) for row in order if scores[row] > 0]


@click.command()
@click.option("--documents", default=400_000, show_default=True)
@click.option("--claims", default=100, show_default=True)
@click.option("--depth", default=100, show_default=True)
def main(documents: int, claims: int, depth: int) -> None:
    random = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as scratch:
        rows = build(Path(scratch) / "store", documents, random)
        columns = rows.tocsc()
        asked = vectors(random, claims + 10, 30)
        with LocalStore(Path(scratch) / "store") as store:
            stages = {"sparse": Sparse(depth=depth)}

            def ours(claim: SparseVector) -> list[tuple[int, float]]:
                (answer,) = store.rank(Search([Query("", None, {"sparse": claim})], stages))
                assert isinstance(answer, Ranks)
                return [(int(id_[1:]), score) for id_, score in answer.rankings["sparse"]]

            def by_rows(claim: SparseVector) -> list[tuple[int, float]]:
                dense = np.zeros(VOCABULARY, np.float32)
                dense[claim.ids] = claim.weights
                return best(rows @ dense, depth)

            def by_columns(claim: SparseVector) -> list[tuple[int, float]]:
                return best(columns[:, claim.ids] @ claim.weights, depth)

            found = []
            for claim in asked:
                sides = in_turns([lambda c=claim, f=side: f(c) for side in (ours, by_rows, by_columns)])
                scores = [np.array([score for _, score in side.answer]) for side in sides]
                assert all(np.allclose(scores[0], other, rtol=1e-5) for other in scores[1:])
                found.append([side.cpu for side in sides])
            times = list(zip(*found[10:], strict=True))  # the first ones warm the caches up
    print(machine(np, scipy))
    print(f"ccheck {statistics.median(times[0]) * 1e3:.1f} ms a claim")
    for name, other in (("CSR product", times[1]), ("CSC columns", times[2])):
        ratios = [b / a for a, b in zip(times[0], other, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        print(
            f"{name} {statistics.median(other) * 1e3:.1f} ms: {middle:.2f} times ccheck's "
            f"(quartiles {low:.2f} to {high:.2f}) over {len(ratios)} claims"
        )


if __name__ == "__main__":
    main()
