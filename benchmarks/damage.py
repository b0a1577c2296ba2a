"""Damage a local store: is every answer correct, or an error that says what to do?

    python benchmarks/damage.py [--count 500] [--seed 1] [--show]

Builds a store with everything that a store can contain: vectors from two models, sparse vectors, two analyses,
additional texts, units of two granularities, metadata, and documents that were replaced or removed. Then, each time in
a fresh copy, it damages one file (flips a bit, cuts it short, zeroes a page, swaps two pages, removes it), reads
everything, writes, and reads again. It compares each answer with the intact store's and prints how often each outcome
occurred:

    right          every answer was correct: nothing reads the damaged place, or ccheck repaired it
    said           an answer was one of ccheck's errors (`CcheckError`), and the others were correct
    silently wrong an answer differed from the intact store's, without an error
    missed by check `LocalStore.check()` found nothing, although a derived file was damaged or an answer was an error
    a bug          another exception was raised, or the process died

The exit code is 1 for any of the last three.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ccheck.core.errors import CcheckError
from ccheck.core.layout import (
    AdditionalTexts,
    Chunking,
    DenseField,
    Embedding,
    Layout,
    SparseField,
    UnitField,
    named_fields,
)
from ccheck.core.stages import Analysis, Bm25, Dense, Retriever, Sparse
from ccheck.core.types import Document, Entry, Passage, Query, Ranking, SparseVector, Unit, UnitEntry, Vector
from ccheck.search import Ranks, Search, answer
from ccheck.search.filters import parse_filter
from ccheck.search.local import LocalStore

BAD = ("silently wrong", "missed by check", "a bug")
KINDS = ("bit flipped", "cut short", "page zeroed", "pages swapped", "removed")
PAGE = 4096
DENSE = named_fields(
    DenseField(Embedding(name, dimensions, digit * 64, 128), Chunking(128, 128, 16))
    for name, dimensions, digit in (("first", 32, "f"), ("second", 24, "e"))
)
FIRST, SECOND = DENSE
ANALYSIS = Analysis(stopwords="nltk")
LAYOUT = Layout(
    DENSE,
    SparseField("sparse", 500, "d" * 64, 128),
    (ANALYSIS,),
    AdditionalTexts("model", True, 0, "prompts"),
    {"windows": UnitField("window", 20, embedding=DENSE[FIRST].embedding), "halves": UnitField("paragraph")},
)
RETRIEVERS: dict[str, Retriever] = {
    "bm25": Bm25(depth=30),
    "terms": Bm25(depth=30, analysis=ANALYSIS),
    "fuzzy": Bm25(depth=30, fuzziness="auto"),
    "additional": Bm25(depth=30, fields={"additional": 1.0}),
    "dense": Dense(depth=30),
    "second": Dense(depth=30, field=SECOND),
    "sparse": Sparse(depth=30),
    "windows": Bm25(depth=30, units="windows", parents="max"),
    "halves": Bm25(depth=30, units="halves", parents="sum"),
    "window vectors": Dense(depth=30, units="windows", parents="max"),
}
UNITS: dict[str, Retriever] = {
    "words": Bm25(depth=30, units="windows"),
    "vectors": Dense(depth=30, units="windows"),
}
WORDS = [a + b + c for a in ("", "ra", "lo", "ne") for b in ("n", "r", "s", "t", "l") for c in ("a", "um", "ic", "o")]
DOCUMENTS = 400


def entry(number: int, version: int = 0) -> Entry:
    """A document generated from a seed, the same each time."""
    draw = np.random.default_rng([number, version])
    picks = draw.zipf(1.3, 60) % len(WORDS)
    text = " ".join(WORDS[pick] for pick in picks)
    ids = np.unique(draw.integers(0, 500, 25)).astype(np.int32)
    made = [draw.standard_normal((1 + number % 3, size)).astype(np.float32) for size in (32, 24)]
    first, second = (
        tuple(Passage(0, 10, row / np.linalg.norm(row)) for row in rows.astype(np.float32)) for rows in made
    )
    return Entry(
        Document(f"d{number}", f"title {number}", text, {"year": 1950 + number % 70, "of": WORDS[picks[0]]}),
        f"{number}-{version}",
        {FIRST: first, SECOND: second},
        SparseVector(ids, draw.gamma(2.0, 0.5, len(ids)).astype(np.float32)),
        (f"summary {WORDS[picks[1]]}",),
        {
            "windows": units("windows", text, 20, [passage.vector for passage in first]),
            "halves": units("halves", text, 30, []),
        },
    )


def units(granularity: str, text: str, words: int, vectors: Sequence[Vector]) -> tuple[UnitEntry, ...]:
    """So many words each; vectors in turn."""
    all_words, made, at = text.split(), [], 0
    for number in range(len(all_words) // words):
        piece = " ".join(all_words[number * words : (number + 1) * words])
        vector = vectors[number % len(vectors)] if vectors else None
        made.append(UnitEntry(Unit(granularity, number, at, at + len(piece), piece), vector))
        at += len(piece) + 1
    return tuple(made)


def build(folder: Path) -> None:
    with LocalStore(folder) as store:
        store.prepare(LAYOUT)
        for first in range(0, DOCUMENTS, 40):
            store.upsert([entry(number) for number in range(first, first + 40)])
        store.publish()
        store.upsert([entry(number, 1) for number in range(30)])
        store.delete([f"d{number}" for number in range(100, 110)])
        store.mark_ingested()
        store.publish()


def answers(store: LocalStore, note: Callable[[str, Any], None]) -> None:
    """Read everything. An answer that fails is replaced with ccheck's error."""
    ids = [f"d{number}" for number in range(DOCUMENTS + 5)]
    made = [entry(number, version) for number, version in ((5, 1), (50, 0), (333, 0))]
    queries = [
        Query(
            one.document.text[:80],
            one.passages[FIRST][0].vector,
            {"second": one.passages[SECOND][0].vector, "sparse": one.sparse, "additional": one.additional[0]},
        )
        for one in made
    ]
    filters = [parse_filter("year>=1990"), parse_filter(f"of={made[0].document.metadata['of']}")]
    scoped = [replace(query, filters=(one,)) for query, one in zip(queries, filters, strict=False)]
    asked: Mapping[str, Callable[[], Any]] = {
        "count": store.count,
        "info": lambda: [(found.documents, found.passages, found.pending) if (found := store.info()) else None],
        "ids": lambda: sorted(store.digests(ids).items()),
        "documents": lambda: sorted(map(str, store.get(ids).values())),
        "search": lambda: list(map(_shown, answer(store, Search(queries, RETRIEVERS, k=10)))),
        "filtered": lambda: list(map(_shown, answer(store, Search(queries, RETRIEVERS, k=10, filters=filters[:1])))),
        "twice filtered": lambda: list(map(_ranked, store.rank(Search(queries, RETRIEVERS, filters=filters)))),
        "units": lambda: list(map(_shown, answer(store, Search(queries, UNITS, k=10)))),
        "scopes": lambda: list(map(_ranked, store.rank(Search(scoped, UNITS)))),
        "units by key": lambda: sorted(map(str, store.get_units("halves", [f"{id_}#1" for id_ in ids]).items())),
        "deep": lambda: list(
            map(_ranked, store.rank(Search(queries, {"dense": Dense(depth=5_000), "bm25": Bm25(depth=5_000)})))
        ),
    }
    for name, ask in asked.items():
        try:
            note(name, ask())
        except CcheckError as error:
            note(name, f"error: {error}")


def _rounded(score: float) -> float:
    return float(f"{score:.5g}")


def _shown(ranking: Ranking | CcheckError) -> Any:
    if isinstance(ranking, CcheckError):
        return f"error: {ranking}"
    return [(str(hit.document), str(hit.unit), _rounded(hit.score)) for hit in ranking.hits]


def _ranked(found: Ranks | CcheckError) -> Any:
    if isinstance(found, CcheckError):
        return f"error: {found}"
    return {name: [(id_, _rounded(score)) for id_, score in ranking] for name, ranking in found.rankings.items()}


def everything(folder: Path) -> dict[str, Any]:
    """What `check()` says of a store and its answers as it is, and both again after a write, as JSON."""
    found: dict[str, Any] = {"check": _checked(folder)}
    with LocalStore(folder) as store:
        answers(store, found.__setitem__)
    with LocalStore(folder) as store:
        try:
            store.prepare(LAYOUT)
            store.upsert([entry(number, 2) for number in range(40, 44)])
            store.upsert([entry(number) for number in range(DOCUMENTS, DOCUMENTS + 3)])
            store.delete(["d60"])
            store.publish()
        except CcheckError as error:
            found["writing"] = f"error: {error}"
        else:
            answers(store, lambda name, answer: found.__setitem__(f"{name} after writing", answer))
    found["check after writing"] = _checked(folder)
    return json.loads(json.dumps(found))  # type: ignore[no-any-return]


def _checked(folder: Path) -> list[str]:
    with LocalStore(folder) as store:
        try:
            return [str(damage) for damage in store.check()]
        except CcheckError as error:
            return [f"error: {error}"]


def damage(file: Path, kind: str, draw: random.Random) -> bool:
    """Damage a file. True if anything changed."""
    data = bytearray(file.read_bytes())
    before = bytes(data)
    if kind == "removed":
        file.unlink()
        return True
    if not data:
        return False
    if kind == "bit flipped":
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    elif kind == "cut short":
        del data[draw.randrange(len(data)) :]
    else:
        size = PAGE if len(data) >= 2 * PAGE else max(1, len(data) // 4)
        first, second = (draw.randrange(len(data) // size) * size for _ in range(2))
        if kind == "page zeroed":
            data[first : first + size] = bytes(len(data[first : first + size]))
        else:
            data[first : first + size], data[second : second + size] = (
                data[second : second + size],
                data[first : first + size],
            )
    file.write_bytes(data)
    return bytes(data) != before


def in_child(work: Callable[[], Any]) -> Any:
    """Run a function in its own process. Returns its result as JSON, or an exception as `{"bug": …}`."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # where a panic of tantivy is told at length
        try:
            result = work()
        except BaseException:  # noqa: BLE001 - a panic of tantivy is no Exception
            result = {"bug": traceback.format_exc()}
        with os.fdopen(writing, "w") as stream:
            json.dump(result, stream)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as stream:
        text = stream.read()
    status = os.waitpid(child, 0)[1]
    return json.loads(text) if text else {"bug": f"the process died with status {status}"}


def outcome(found: Mapping[str, Any], expected: Mapping[str, Any], derived: bool) -> tuple[str, list[str]]:
    """The outcome for a damaged store, and where it occurred.

    `check()` must see each damage of a `derived` file. Of the database, which has unused pages, it must see what an
    answer showed. What it sees after writing must be in answers, too, or have been there before.
    """
    if "bug" in found:
        return "a bug", [str(found["bug"])]
    wrong, said = [], []
    for name, given in found.items():
        if name.startswith("check"):
            continue
        if "error: " in str(given)[:60]:
            said.append(name)
        elif given != expected[name]:
            wrong.append(name)
    if wrong:
        return "silently wrong", wrong
    if not found["check"] and (derived or said):
        return "missed by check", said or ["derived file"]
    if found["check after writing"] and not found["check"]:
        return "missed by check", ["after writing", *found["check after writing"]]
    return ("said", said) if said else ("right", [])


def run(count: int, seed: int, *, show: bool = False) -> Counter[tuple[str, str]]:
    """Counts by (outcome, file's kind)."""
    draw = random.Random(seed)
    counts: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory() as scratch:
        whole, copy = Path(scratch, "whole"), Path(scratch, "copy")
        failed = in_child(lambda: build(whole))
        if failed:
            sys.exit(f"the store could not be built: {failed}")
        shutil.copytree(whole, copy)
        expected = in_child(lambda: everything(copy))
        groups: dict[str, list[Path]] = {}
        for path in sorted(whole.rglob("*")):
            if path.is_file() and path.suffix != ".lock":
                file = path.relative_to(whole)
                groups.setdefault(_kind(file).partition(" ")[0], []).append(file)
        done = 0
        while done < count:
            shutil.rmtree(copy)
            shutil.copytree(whole, copy)
            # The database, the words and the vectors in equal parts.
            file, kind = draw.choice(groups[draw.choice(sorted(groups))]), draw.choice(KINDS)
            if not damage(copy / file, kind, draw):
                continue
            done += 1
            derived = _kind(file).partition(" ")[0] in ("bm25", "vectors")
            result, where = outcome(in_child(lambda: everything(copy)), expected, derived)
            counts[result, _kind(file)] += 1
            if show or result in BAD:
                print(f"{result}: {file} {kind}: {'; '.join(where)}", flush=True)
    return counts


def _kind(file: Path) -> str:
    if file.parts[0].startswith("bm25"):
        return f"bm25 {file.suffix}"
    return file.parts[0].partition("-")[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=500, help="how many damages (default 500)")
    parser.add_argument("--seed", type=int, default=1, help="random seed (default 1)")
    parser.add_argument("--show", action="store_true", help="print the outcome of each")
    options = parser.parse_args()
    counts = run(options.count, options.seed, show=options.show)
    kinds = sorted({kind for _, kind in counts})
    outcomes = ("right", "said", *BAD)
    print(f"{'':24}" + "".join(f"{one:>16}" for one in outcomes))
    for kind in kinds:
        print(f"{kind:24}" + "".join(f"{counts[one, kind]:>16}" for one in outcomes))
    totals = {one: sum(counts[one, kind] for kind in kinds) for one in outcomes}
    print(f"{'all':24}" + "".join(f"{totals[one]:>16}" for one in outcomes))
    sys.exit(1 if any(totals[one] for one in BAD) else 0)


if __name__ == "__main__":
    main()
