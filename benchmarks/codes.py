"""Codes of vectors against reading all of them: recall, scores, and CPU time a claim, by the number of vectors.

    python benchmarks/codes.py FOLDER                     # SciFact: corpus.jsonl.gz and queries.jsonl
    python benchmarks/codes.py FOLDER --rows 1000000

Vectors are mixtures of two of SciFact's passages each, with noise: a stand-in for a million papers, whose vectors would
take a day to make here. The other side is numpy's matrix product over the same mapped file, as the store does it below
`LEAST_ROWS`. Both return the same documents, but for those that recall counts, with the same scores, which is asserted.
"""

from __future__ import annotations

import itertools
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click
import common
import numpy as np
from numpy.typing import NDArray

import ccheck
from ccheck.core.runtime import Runtime
from ccheck.encode.cache import embedding_cache, encode_once
from ccheck.encode.dense import load_embedder
from ccheck.search.local import vectors
from ccheck.search.local.files import VectorBlock, Verified
from ccheck.search.local.vectors import VectorIndex, codes_file, open_codes, write_codes

DEPTH, CLAIMS, AT_ONCE = 100, 100, 50_000


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.option("--rows", multiple=True, type=int, default=(250_000, 1_000_000))
def main(folder: Path, rows: tuple[int, ...]) -> None:
    queries, passages = embedded(folder)
    print(common.machine("local", f"{len(queries)} claims, {len(passages):,} abstracts, depth {DEPTH}"))
    print("   vectors  recall  worst  exact ms  codes ms  ratio  write s    MB")
    for count in rows:
        with tempfile.TemporaryDirectory() as scratch:
            print(measured(Path(scratch), queries, passages, count))


def embedded(folder: Path, most: int | None = None) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The vectors of claims and of the first abstracts, from the cache where it has them."""
    settings = ccheck.Settings()
    embedder = load_embedder(settings.embedding_model or "all-MiniLM-L6-v2", Runtime(settings))
    claims = [row["text"] for row in common.rows(folder / "queries.jsonl")][:CLAIMS]
    records = itertools.islice(common.rows(folder / "corpus.jsonl.gz"), most)
    texts = [f"{row['title']}\n{row['text']}" for row in records]
    with embedding_cache(embedder.spec, settings.cache_dir) as cache:
        return embedder.encode_queries(claims), np.stack(encode_once(texts, embedder.encode_documents, cache))


def mixtures(passages: NDArray[np.float32], count: int, at_once: int = AT_ONCE) -> Iterator[NDArray[np.float32]]:
    """Unit vectors between two passages each."""
    chance = np.random.default_rng(7)
    for first in range(0, count, at_once):
        many = min(at_once, count - first)
        one, other = (passages[chance.integers(0, len(passages), many)] for _ in range(2))
        share = chance.uniform(0.5, 0.85, (many, 1)).astype(np.float32)
        made = share * one + (1 - share) * other + chance.normal(0, 0.012, one.shape).astype(np.float32)
        yield made / np.linalg.norm(made, axis=1, keepdims=True)


def measured(folder: Path, queries: NDArray[np.float32], passages: NDArray[np.float32], count: int) -> str:
    path, blocks, done = folder / "vectors-00000000.f32", list[VectorBlock](), 0
    (folder / "documents.sqlite").touch()
    for part in mixtures(passages, count):
        blocks += vectors.write_rows(path, done, part, np.arange(done, done + len(part)))
        done += len(part)
    alive, verified = np.ones(count, np.bool_), Verified()
    exact = VectorIndex.open(path, queries.shape[1], blocks, alive, verified)
    exact.blocks.check_all()
    coded = folder / codes_file(path.name)
    begun = time.process_time()
    write_codes(exact.blocks)
    took = time.process_time() - begun
    index = replace(exact, codes=open_codes(exact.blocks))
    assert index.codes is not None
    seconds: dict[str, list[float]] = {"exact": [], "codes": []}
    recalls = []
    for query in queries:
        found = {}
        sides = [("exact", exact), ("codes", index)]
        random.shuffle(sides)
        for name, side in sides:
            begun = time.process_time()
            found[name] = dict(side.search(query[None], DEPTH)[0])
            seconds[name].append(1000 * (time.process_time() - begun))
        both = found["exact"].keys() & found["codes"].keys()
        assert np.allclose([found["exact"][one] for one in both], [found["codes"][one] for one in both], atol=1e-6)
        recalls.append(len(both) / DEPTH)
    slow, fast = (statistics.median(seconds[name]) for name in ("exact", "codes"))
    size = coded.stat().st_size / 1e6
    return (
        f"{count:>10,} {np.mean(recalls):>7.4f} {min(recalls):>6.2f} {slow:>9.1f} {fast:>9.1f} {slow / fast:>6.1f} "
        f"{took:>8.1f} {size:>5.0f}"
    )


if __name__ == "__main__":
    main()
