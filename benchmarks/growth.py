"""How time, memory and disk grow with the documents: ccheck's local store, tantivy with numpy and SQLite, and LanceDB.

    python benchmarks/growth.py [FOLDER] [--documents 10000 --documents 100000]

FOLDER is SciFact: corpus.jsonl.gz and queries.jsonl (default: scifact in $CCHECK_SHARED_DATA). A document is a stand-in
for a paper: a quarter of the sentences of two abstracts, about 110 words, and the mixture of two abstracts' vectors
(codes.py). All sides are given the same ones. A side ingests in one process, without the making of documents in its
figures, and answers in another: `first` is opening and the first claim, `claim` each of the next. A claim takes the
best 100 by words and by vectors, fuses them, and reads the best 10. Seconds are the process's CPU time. Memory is the
most that was resident beyond what there was before, with mapped files. LanceDB indexes one field of words where the
others index three, has its index IVF_RQ, and reads the vectors of 3 times as many candidates again.

ccheck must find what tantivy and numpy find, with the same scores, but for documents that its codes miss: this is
asserted. LanceDB has other words and searches a part of its index: how many of the same ten it finds is in the table.
"""

from __future__ import annotations

import itertools
import json
import math
import multiprocessing
import os
import random
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import codes
import common
import local_search
import numpy as np
import tantivy
from numpy.typing import NDArray
from processes import processes, received

from ccheck.core.analysis import analyzer
from ccheck.core.layout import MAIN_VECTORS
from ccheck.core.stages import Bm25, Dense, Fusion
from ccheck.core.types import Document, Entry, Passage, Query
from ccheck.search import Search, answer
from ccheck.search.local import LocalStore

SIDES = {"ccheck": "ccheck", "bare": "tantivy, numpy and SQLite", "lancedb": "LanceDB"}
ROWS = ()
"""The page has a table of its own for these."""
SAME_TEN = "same ten"
MEASURES = {
    "all": "ingest and publish, s",
    "ingest MiB": "its memory, MiB",
    "disk MB": "disk, MB",
    "first": "first claim, s",
    "claim": "further claims, s",
    "own MiB": "without mapped files, MiB",
    SAME_TEN: "of the same ten",
}
"""What the page shows. `all` is `ingest` and `publish`: a side may index at any time in between."""
BATCH, DEPTH, TEN = 2000, 100, 10
ABSTRACTS = 1000
"""So many are embedded here."""
SAME = 0.95
"""Of the ten documents, on average, where ccheck searches with codes."""
Batch = tuple[list[Document], NDArray[np.float32]]


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path), required=False)
@click.option("--documents", "counts", multiple=True, type=int, default=(10_000, 100_000, 1_000_000))
@click.option("--claims", default=50, show_default=True)
def main(folder: Path | None, counts: tuple[int, ...], claims: int) -> None:
    folder = folder or Path(os.environ["CCHECK_SHARED_DATA"]) / "scifact"
    os.environ["OMP_NUM_THREADS"] = "1"
    queries, passages = codes.embedded(folder, ABSTRACTS)
    abstracts = [(row["title"], row["text"].split(". ")) for row in common.rows(folder / "corpus.jsonl.gz")]
    texts = [row["text"] for row in common.rows(folder / "queries.jsonl")]
    asked = [Query(text, vector) for text, vector in zip(texts, queries, strict=False)][:claims]
    sides = [side for side in SIDES if side != "lancedb" or find_spec("lancedb")]
    taken: common.Taken = {side: {} for side in sides}
    context = multiprocessing.get_context("spawn")  # each with the memory that it needs itself
    for count in counts:
        found: dict[str, list[list[tuple[str, float]]]] = {}
        with tempfile.TemporaryDirectory() as scratch:
            for side in random.sample(sides, len(sides)):
                place = Path(scratch, side)
                with processes(context, [side], built, place, abstracts, passages, count) as ask:
                    told = ask[side]()
                with processes(context, [side], searched, place) as ask:
                    more, found[side] = ask[side](asked)
                for name, values in (told | more).items():
                    taken[side][f"{count} {name}"] = values
                said = ", ".join(f"{name} {statistics.median(values):.4g}" for name, values in (told | more).items())
                print(f"{count:,} documents, {side}: {said}", flush=True)
        same = {side: overlap(found[side], found["bare"]) for side in sides}
        for side in sides:
            taken[side][f"{count} {SAME_TEN}"] = [same[side]]
        compare(found["ccheck"], found["bare"], same["ccheck"], count)
        common.told(taken, ROWS, np, tantivy, table=table(taken, counts[: counts.index(count) + 1]))


def overlap(some: list[list[tuple[str, float]]], others: list[list[tuple[str, float]]]) -> float:
    return statistics.mean(len(dict(one).keys() & dict(other)) / TEN for one, other in zip(some, others, strict=True))


def compare(ours: list[list[tuple[str, float]]], plain: list[list[tuple[str, float]]], same: float, count: int) -> None:
    if count >= codes.vectors.LEAST_ROWS:
        assert same >= SAME, same
        return
    # By score: documents of the same score may change places.
    for one, other in zip(ours, plain, strict=True):
        assert np.allclose([score for _, score in one], [score for _, score in other], atol=1e-9), (one, other)


def table(taken: common.Taken, counts: Sequence[int]) -> list[str]:
    """The page's table: what each side took by size, and the exponents between one size and the next."""
    said = "/".join(f"{count:,}" for count in counts)
    lines = [
        f"| {said} documents | {' | '.join(SIDES[side] for side in taken)} |",
        "| --- " * (len(taken) + 1) + "|",
    ]
    for name, measure in MEASURES.items():
        cells = []
        for measures in taken.values():
            known = [count for count in counts if f"{count} {name}" in measures]
            values = [statistics.median(measures[f"{count} {name}"]) for count in known]
            steps = itertools.pairwise(zip(known, values, strict=True))
            grown = [f"{math.log(most / least) / math.log(to / by):.2f}" for (by, least), (to, most) in steps]
            some = "/".join(f"{value:.2g}" if value < 10 else f"{value:,.0f}" for value in values)
            cells.append(some + (f" ({'/'.join(grown)})" if name != SAME_TEN else ""))
        lines.append(f"| {measure} | {' | '.join(cells)} |")
    return lines


def batches(abstracts: list[tuple[str, list[str]]], passages: NDArray[np.float32], count: int) -> Iterator[Batch]:
    chance, number = random.Random(7), itertools.count()
    for vectors in codes.mixtures(passages, count, BATCH):
        made = []
        for _ in range(len(vectors)):
            (title, one), (_, other) = chance.choices(abstracts, k=2)
            sentences = chance.sample(one + other, max(1, (len(one) + len(other)) // 4))
            seq = next(number)
            made.append(Document(f"d{seq}", f"{title} {seq}", ". ".join(sentences), {"year": 1950 + seq % 75}))
        yield made, vectors


class Meter:
    """What a process takes beyond what it had, and beyond the making of what it is given (one thread's time)."""

    def __init__(self) -> None:
        self.apart, self.start, self.before = 0.0, time.process_time(), memory("VmRSS")

    def given(self, some: Iterable[Batch]) -> Iterator[Batch]:
        steps = iter(some)
        while True:
            begun = time.thread_time()
            step = next(steps, None)
            self.apart += time.thread_time() - begun
            if step is None:
                return
            yield step

    def lap(self) -> list[float]:
        now = time.process_time()
        spent, self.apart, self.start = now - self.start - self.apart, 0.0, now
        return [spent]

    def memory(self) -> list[float]:
        return [max(1.0, memory("VmHWM") - self.before)]


def memory(name: str) -> float:
    """A line of Linux's account of this process, in MiB."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:"))


def size(folder: Path) -> float:
    """MB of all files, one that has several names counted once."""
    found = [file.stat() for file in folder.rglob("*") if file.is_file()]
    return sum({one.st_ino: one.st_size for one in found}.values()) / 1e6


def ready(side: str) -> Meter:
    """After the imports, which the other sides have at the head of this file."""
    for name in ("lancedb", "lancedb.index", "pyarrow") if side == "lancedb" else ():
        import_module(name)
    return Meter()


def built(side: str, folder: Path, abstracts: Any, passages: Any, count: int, pipe: Any) -> None:
    """Ingest and publish."""
    for _ in received(pipe):
        next(batches(abstracts, passages, BATCH))
        ingest = {"ccheck": ccheck_ingest, "bare": bare_ingest, "lancedb": lancedb_ingest}[side]
        phases = ingest(folder, batches(abstracts, passages, count), meter := ready(side))
        taken = {name: meter.lap() for name in phases}
        taken["all"] = [sum(itertools.chain(*taken.values()))]
        pipe.send(taken | {"ingest MiB": meter.memory(), "disk MB": [size(folder)]})


def searched(side: str, folder: Path, pipe: Any) -> None:
    """Open it and search."""
    for (asked,) in received(pipe):
        meter, own = ready(side), memory("RssAnon")
        search = {"ccheck": ccheck_search, "bare": bare_search, "lancedb": lancedb_search}[side](folder)
        found, taken = [search(asked[0])], {"first": meter.lap()}
        for query in asked[1:]:
            found.append(search(query))
            taken.setdefault("claim", []).extend(meter.lap())
        # Of what is resident, pages of mapped files can go at any time.
        taken["own MiB"] = [max(1.0, memory("RssAnon") - own)]
        pipe.send((taken | {"claim MiB": meter.memory()}, found))


def ccheck_ingest(folder: Path, documents: Iterable[Batch], meter: Meter) -> Iterator[str]:
    with LocalStore(folder) as store:
        store.prepare(local_search.LAYOUT)
        for made, vectors in meter.given(documents):
            pairs = zip(made, vectors, strict=True)
            store.upsert([Entry(one, "1", {MAIN_VECTORS: (Passage(0, len(one.text), row),)}) for one, row in pairs])
        yield "ingest"
        store.publish()
        yield "publish"


def ccheck_search(folder: Path) -> Any:
    store = LocalStore(folder)
    stages, fusion = {"bm25": Bm25(depth=DEPTH), "dense": Dense(depth=DEPTH)}, Fusion(k=60)

    def search(query: Query) -> list[tuple[str, float]]:
        hits = answer(store, Search([query], stages, fusion, TEN))[0].hits
        return [(hit.document.id, hit.score) for hit in hits]

    return search


def bare_ingest(folder: Path, documents: Iterable[Batch], meter: Meter) -> Iterator[str]:
    """The files that `local_search.bare` reads."""
    (folder / "bm25-0").mkdir(parents=True)
    schema = tantivy.SchemaBuilder().add_unsigned_field("seq", indexed=True, fast=True)
    for name in ("content", "title", "text"):
        schema = schema.add_text_field(name, tokenizer_name="ccheck", index_option="freq")
    built = schema.build()
    index = tantivy.Index(built, str(folder / "bm25-0"))
    index.register_tokenizer("ccheck", analyzer())
    writer = index.writer(128 << 20, 1)
    database = sqlite3.connect(folder / "documents.sqlite")
    database.execute("CREATE TABLE documents (seq INTEGER PRIMARY KEY, id TEXT UNIQUE, title, text, metadata)")
    seqs = itertools.count(1)
    with (folder / "vectors-0.f32").open("wb") as file:
        for made, vectors in meter.given(documents):
            rows = [(next(seqs), one.id, one.title, one.text, json.dumps(dict(one.metadata))) for one in made]
            for seq, _, title, text, _ in rows:
                row = {"seq": seq, "content": f"{title}\n{text}", "title": title, "text": text}
                writer.add_document(tantivy.Document.from_dict(row, built))
            with database:
                database.executemany("INSERT INTO documents VALUES (?, ?, ?, ?, ?)", rows)
            file.write(vectors.data)
    yield "ingest"
    writer.commit()
    writer.wait_merging_threads()
    yield "publish"


def bare_search(folder: Path) -> Any:
    search = local_search.bare(folder)
    return lambda query: [(row[0], row[-1]) for row in search(query)]


def lancedb_ingest(folder: Path, documents: Iterable[Batch], meter: Meter) -> Iterator[str]:
    import lancedb
    import pyarrow as pa
    from lancedb.index import FTS, IvfRq

    texts = [(name, pa.string()) for name in ("id", "title", "text", "metadata")]
    schema = pa.schema([*texts, ("vector", pa.list_(pa.float32(), local_search.DIMENSIONS))])

    def arrow() -> Iterator[Any]:
        for made, vectors in meter.given(documents):
            rows = [(one.id, one.title, f"{one.title}\n{one.text}", json.dumps(dict(one.metadata))) for one in made]
            flat = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
            yield pa.RecordBatch.from_arrays([*map(pa.array, zip(*rows, strict=True)), flat], schema=schema)

    # One call, since each call makes a version with a file.
    found = lancedb.connect(str(folder)).create_table("papers", arrow(), schema=schema)
    yield "ingest"
    found.create_index("text", config=FTS(with_position=False))
    found.create_index("vector", config=IvfRq(distance_type="dot"))
    yield "publish"


def lancedb_search(folder: Path) -> Any:
    import lancedb

    found = lancedb.connect(str(folder)).open_table("papers")

    def search(query: Query) -> list[tuple[str, float]]:
        words = found.search(query.text, query_type="fts", fts_columns="text")
        near = found.search(query.vector, vector_column_name="vector").distance_type("dot").refine_factor(3)
        totals: dict[int, float] = {}
        for side, score in ((words, "_score"), (near, "_distance")):
            rows = side.with_row_id(True).select([score]).limit(DEPTH).to_arrow()["_rowid"].to_pylist()
            for rank, row in enumerate(rows, 1):
                totals[row] = totals.get(row, 0) + 1 / (60 + rank)
        best = sorted(totals, key=lambda row: -totals[row])[:TEN]
        taken = found.take_row_ids(best).with_row_id().select(["id", "title", "text", "metadata"]).to_list()
        read = {row["_rowid"]: row for row in taken}
        return [(read[row]["id"], totals[row]) for row in best]

    return search


if __name__ == "__main__":
    main()
