"""Hybrid search in the local store against direct calls of tantivy and numpy, over the same index files.

    python benchmarks/local_search.py --documents 400000

Documents are synthetic: words drawn with Zipf's law, and random unit vectors. Each claim is a round, in which the sides
go in random order. Each side must answer with the same ten documents, read in full, and the same scores; the script
asserts this.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import click
import numpy as np
import tantivy
from common import Row, Spent, in_rounds, spent, told

from ccheck.core.analysis import analyzer, terms
from ccheck.core.layout import MAIN_VECTORS, Chunking, Embedding, Layout
from ccheck.core.stages import Bm25, Dense, Fusion
from ccheck.core.types import Document, Entry, Passage, Query
from ccheck.search import Search, answer
from ccheck.search.local import LocalStore

DIMENSIONS = 384
Answer = tuple[str, str, str, dict[str, Any], float]
"""Id, title, text, metadata, score."""
LAYOUT = Layout.with_vectors(Embedding("random", DIMENSIONS, "0" * 64, 256), Chunking(256, 256, 50))
WARM = 10
ROWS = (Row("", "ccheck", "bare", "tantivy, numpy and SQLite, CPU time", "cpu", goal=1.3),)


def build(folder: Path, documents: int, random: np.random.Generator) -> None:
    words = np.array([f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in _ENDS])
    random.shuffle(words)
    started = time.perf_counter()
    with LocalStore(folder) as store:
        store.prepare(LAYOUT)
        for first in range(0, documents, 2000):
            count = min(2000, documents - first)
            picks = random.zipf(1.2, (count, 200)) % len(words)
            vectors = random.standard_normal((count, DIMENSIONS), np.float32)
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
            texts = [" ".join(words[row]) for row in picks]
            store.upsert(
                [
                    Entry(
                        Document(f"d{first + i}", text[:80], text, {"year": 1950 + i % 75}),
                        "1",
                        {MAIN_VECTORS: (Passage(0, len(text), vectors[i]),)},
                    )
                    for i, text in enumerate(texts)
                ]
            )
        store.publish()
        info = store.info()
    assert info is not None and info.bytes is not None
    seconds = time.perf_counter() - started
    print(f"built {documents:,} documents in {seconds:.0f} s, {info.bytes / 1e6:,.0f} MB")


_ENDS = [
    a + b + c for a in ("", "ra", "lo", "ne", "ti") for b in ("n", "r", "s", "t", "l") for c in ("a", "um", "ic", "o")
]


def bare(folder: Path) -> Any:
    """The same search with nothing around it: the best 100 of each side, reciprocal rank fusion, the best 10 read."""
    schema = tantivy.SchemaBuilder().add_unsigned_field("seq", indexed=True, fast=True)
    for name in ("content", "title", "text"):
        schema = schema.add_text_field(name, tokenizer_name="ccheck", index_option="freq")
    built = schema.build()
    index = tantivy.Index(built, str(next(folder.glob("bm25-*"))), reuse=True)
    index.register_tokenizer("ccheck", analyzer())
    searcher = index.searcher()
    matrix = np.memmap(next(folder.glob("vectors-*.f32")), np.float32, "r").reshape(-1, DIMENSIONS)
    database = sqlite3.connect(folder / "documents.sqlite")
    marks = ",".join("?" * 10)
    select = f"SELECT seq, id, title, text, metadata FROM documents WHERE seq IN ({marks})"

    def search(query: Query) -> list[Answer]:
        clauses = []
        for word, times in Counter(terms(query.text)).items():
            clause = tantivy.Query.term_query(built, "content", word, index_option="freq")
            if times > 1:
                clause = tantivy.Query.boost_query(clause, times)
            clauses.append((tantivy.Occur.Should, clause))
        hits = searcher.search(tantivy.Query.boolean_query(clauses), 100, count=False).hits
        lexical = searcher.fast_field_values("seq", [address for _, address in hits])
        scores = matrix @ query.vector
        top = np.argpartition(scores, -100)[-100:]
        dense = (top[np.argsort(-scores[top])] + 1).tolist()
        totals: dict[int, float] = {}
        for ranking in (lexical, dense):
            for rank, key in enumerate(ranking, 1):
                totals[key] = totals.get(key, 0) + 1 / (60 + rank)
        best = sorted(totals, key=lambda key: -totals[key])[:10]
        rows = {row[0]: row[1:] for row in database.execute(select, best)}
        return [(*rows[key][:3], json.loads(rows[key][3]), totals[key]) for key in best]

    return search


@click.command()
@click.option("--documents", default=400_000, show_default=True)
@click.option("--claims", default=100, show_default=True)
@click.option("--folder", type=click.Path(path_type=Path), help="Keep the store here and reuse it.")
def main(documents: int, claims: int, folder: Path | None) -> None:
    random = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as scratch:
        folder = folder or Path(scratch) / "store"
        if not folder.exists():
            build(folder, documents, random)
        random = np.random.default_rng(2)
        with LocalStore(folder) as store:
            wanted = store.get([f"d{i}" for i in random.integers(0, documents, claims).tolist()])
            vectors = random.standard_normal((len(wanted), DIMENSIONS)).astype(np.float32)
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
            queries = [
                Query(" ".join(document.text.split()[20:32]), vector)
                for document, vector in zip(wanted.values(), vectors, strict=True)
            ]
            plain = bare(folder)
            stages, fusion = {"bm25": Bm25(), "dense": Dense()}, Fusion(k=60)
            found: dict[str, list[Answer]] = {}

            def ours(number: int) -> dict[str, float]:
                took = spent(lambda: answer(store, Search([queries[number]], stages, fusion, 10))[0])
                rows = [
                    (hit.document.id, hit.document.title, hit.document.text, dict(hit.document.metadata), hit.score)
                    for hit in took.answer.hits
                ]
                return same(number, rows, took)

            def theirs(number: int) -> dict[str, float]:
                took = spent(lambda: plain(queries[number]))
                return same(number, took.answer, took)

            def same(number: int, rows: list[Answer], took: Spent) -> dict[str, float]:
                first = found.setdefault(queries[number].text, rows)
                assert len(rows) == 10 and rows == first, queries[number].text
                return {"cpu": took.cpu, "wall": took.wall}

            taken = in_rounds({"ccheck": ours, "bare": theirs}, len(queries), warm=WARM)
    told(taken, ROWS, np, tantivy)


if __name__ == "__main__":
    main()
