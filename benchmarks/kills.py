"""Kill a local store's writer: is everything that was promised still there, and can it be found?

    python benchmarks/kills.py [--creations 60] [--ingests 60] [--seed 1]

Creations: the script kills (SIGKILL) a process at a random moment while it creates a store. What it leaves must be a
store or nothing, and the next process must turn it into one. Ingests: the script kills a process at a random moment
while it stores, replaces and removes documents with vectors, sparse vectors and units. The next process continues in
the same folder. After each kill, words, vectors, sparse vectors and units must find everything that was promised, and
all files must match their checksums. The script prints the counts. The exit code is 1 if anything was lost, duplicated
or broken.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from damage import FIRST, LAYOUT, RETRIEVERS, SECOND, entry

from ccheck.core.stages import Bm25
from ccheck.core.types import Document, Entry, Query
from ccheck.search import Ranks, Search
from ccheck.search.local import LocalStore
from ccheck.search.local import store as local_store

LONGEST_INGEST_S = 3.0
AT_ONCE = 20


def create(folder: Path) -> None:
    import tantivy  # noqa: F401 - so that the time of the import is no part of it

    print("ready", flush=True)
    LocalStore(folder).prepare(LAYOUT)
    print("made", flush=True)
    time.sleep(60)


def ingest(folder: Path) -> None:
    """Go on with a store until killed, and say after each write what is promised.

    `20`: so many documents are there. `r40`: the `AT_ONCE` from there on are replaced. `-60`: x60 is removed.
    """
    local_store.COMMIT_EVERY = 60
    store = LocalStore(folder)
    store.prepare(LAYOUT)
    print("ready", flush=True)
    first = len(store.digests([f"d{number}" for number in range(100_000)]))
    while True:
        store.upsert([entry(number) for number in range(first, first + AT_ONCE)])
        first += AT_ONCE
        print(first, flush=True)
        replaced = first - 3 * AT_ONCE
        if replaced >= 0:
            store.upsert([entry(number, 1) for number in range(replaced, replaced + AT_ONCE)])
            print(f"r{replaced}", flush=True)
        store.delete([f"x{first - AT_ONCE}"])
        print(f"-{first - AT_ONCE}", flush=True)
        store.upsert([_extra(first)])
        if first % (4 * AT_ONCE) == 0:
            store.publish()


def _extra(number: int) -> Entry:
    """A document that the next step removes."""
    made = entry(number, 7)
    return replace(made, document=replace(made.document, id=f"x{number}"))


def killed(what: str, folder: Path, after_s: float) -> list[str]:
    """What a process said until it was killed, so long after it was ready."""
    process = subprocess.Popen([sys.executable, __file__, what, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = [process.stdout.readline().strip()]
    time.sleep(after_s)
    process.send_signal(signal.SIGKILL)
    said += process.stdout.read().split()
    process.wait()
    return said


@dataclass
class Promised:
    """What a writer said before it was killed: how many documents, which of them replaced, what is removed."""

    documents: int = 0
    replaced: set[int] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)

    def add(self, said: list[str]) -> None:
        for one in said:
            if one.startswith("r") and one[1:].isdecimal():
                self.replaced |= set(range(int(one[1:]), int(one[1:]) + AT_ONCE))
            elif one.startswith("-"):
                self.removed.add(f"x{one[1:]}")
            elif one.isdecimal():
                self.documents = max(self.documents, int(one))


def problems(folder: Path, promised: Promised) -> list[str]:
    """What is not as promised in a store."""
    found = []
    with LocalStore(folder) as store:
        digests = store.digests([f"d{number}" for number in range(promised.documents + 10 * AT_ONCE)])
        lost = [number for number in range(promised.documents) if f"d{number}" not in digests]
        if lost:
            found.append(f"{len(lost)} documents are lost")
        old = [number for number in promised.replaced if digests.get(f"d{number}") != f"{number}-1"]
        texts = store.get([f"d{number}" for number in promised.replaced])
        old += [number for number in promised.replaced if _differs(texts.get(f"d{number}"), entry(number, 1))]
        if old:
            found.append(f"{len(set(old))} replacements are lost, such as d{old[0]}")
        if back := store.digests(sorted(promised.removed)):
            found.append(f"{len(back)} removed documents are there again, such as {next(iter(back))}")
        everything = store.count()
        (ranks,) = store.rank(Search([Query("title")], {"words": Bm25(depth=10_000, fields={"title": 1.0})}))
        assert isinstance(ranks, Ranks)
        ids = [id_ for id_, _ in ranks.rankings["words"]]
        if back := promised.removed & set(ids):
            found.append(f"{len(back)} removed documents are found by words")
        if len(ids) != everything or len(set(ids)) != everything:
            found.append(f"{len(ids)} of {everything} documents are found by words")
        last = promised.documents
        some = {0, last // 3, last // 2, last - 2, last - 1, *sorted(promised.replaced)[-2:]}
        for number in sorted(some & set(range(last))):
            version = int(digests.get(f"d{number}", "-0").rpartition("-")[2])
            if not _found(store, number, version):
                found.append(f"d{number} is not found by all of its fields")
        found += [str(damage) for damage in store.check()]
    return found


def _differs(document: Document | None, made: Entry) -> bool:
    return document is None or document.text != made.document.text


def _found(store: LocalStore, number: int, version: int) -> bool:
    """Whether this version of a document is what its own fields lead to."""
    made = entry(number, version)
    own = {"second": made.passages[SECOND][0].vector, "sparse": made.sparse}
    asked = {name: RETRIEVERS[name] for name in ("dense", "second", "sparse", "windows", "window vectors")}
    window = made.units["windows"][0].unit.text
    (ranks,) = store.rank(Search([Query(window, made.passages[FIRST][0].vector, own)], asked))
    assert isinstance(ranks, Ranks)
    return all(found and found[0][0] == f"d{number}" for found in ranks.rankings.values())


def _creation_s(folder: Path) -> float:
    """How long a creation takes that is left alone."""
    process = subprocess.Popen([sys.executable, __file__, "create", str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    started = time.perf_counter()
    process.stdout.readline()
    seconds = time.perf_counter() - started
    process.kill()
    process.wait()
    return seconds


def run_creations(count: int, draw: random.Random) -> list[str]:
    bad, unmade = [], 0
    with tempfile.TemporaryDirectory() as scratch:
        longest = 1.2 * max(_creation_s(Path(scratch, f"timed{number}")) for number in range(3))
        for number in range(count):
            folder = Path(scratch, f"store{number}")
            said = killed("create", folder, draw.uniform(0, longest))
            try:
                with LocalStore(folder) as reader:
                    made = reader.info() is not None
                if "made" in said and not made:
                    bad.append("a store that was made is not there")
                unmade += not made
                with LocalStore(folder) as store:
                    store.prepare(LAYOUT)
                    store.upsert([entry(1)])
                    store.publish()
                bad += problems(folder, Promised())
            except Exception as error:  # noqa: BLE001 - whatever it is, it is counted
                bad.append(f"{type(error).__name__}: {error}")
    print(f"{count} creations killed, {unmade} of them before the store was there: {len(bad)} bad")
    return bad


def run_ingests(count: int, draw: random.Random) -> list[str]:
    bad, promised = [], Promised()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "store")
        for number in range(count):
            if number % 10 == 9:  # not ever larger
                folder, promised = Path(scratch, f"store{number}"), Promised()
            said = killed("ingest", folder, draw.uniform(0, LONGEST_INGEST_S))
            promised.add(said)
            try:
                bad += problems(folder, promised)
            except Exception as error:  # noqa: BLE001
                bad.append(f"{type(error).__name__}: {error}")
    print(f"{count} ingests killed: {len(bad)} bad")
    return bad


def main() -> None:
    if len(sys.argv) == 3 and sys.argv[1] in ("create", "ingest"):
        {"create": create, "ingest": ingest}[sys.argv[1]](Path(sys.argv[2]))
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--creations", type=int, default=60, help="how many creations to kill (default 60)")
    parser.add_argument("--ingests", type=int, default=60, help="how many ingests to kill (default 60)")
    parser.add_argument("--seed", type=int, default=1, help="random seed (default 1)")
    options = parser.parse_args()
    draw = random.Random(options.seed)
    bad = run_creations(options.creations, draw) + run_ingests(options.ingests, draw)
    for one in bad:
        print(one)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
