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
from dataclasses import replace
from pathlib import Path

from damage import FIRST, LAYOUT, RETRIEVERS, SECOND, entry

from ccheck.core.stages import Bm25
from ccheck.core.types import Entry, Query
from ccheck.search.local import LocalStore, sparse
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
    """Go on with a store until killed; after each step the number of documents that are promised to be there."""
    local_store.COMMIT_EVERY, sparse.SEGMENT_FROM, sparse.SEGMENT_DOCUMENTS, sparse.FAN = 60, 20, 60, 4
    store = LocalStore(folder)
    store.prepare(LAYOUT)
    print("ready", flush=True)
    first = len(store.digests([f"d{number}" for number in range(100_000)]))
    while True:
        store.upsert([entry(number) for number in range(first, first + AT_ONCE)])
        first += AT_ONCE
        print(first, flush=True)
        store.upsert([entry(number, 1) for number in range(max(0, first - 3 * AT_ONCE), first - 2 * AT_ONCE)])
        store.delete([f"x{first - AT_ONCE}"])
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


def problems(folder: Path, promised: int) -> list[str]:
    """What is not as promised in a store."""
    found = []
    with LocalStore(folder) as store:
        count = len(store.digests([f"d{number}" for number in range(promised + 10 * AT_ONCE)]))
        if count < promised:
            found.append(f"{promised - count} documents are lost")
        everything = store.count()
        (ranking,) = store.rankings([Query("title")], {"words": Bm25(depth=10_000, fields={"title": 1.0})})
        assert isinstance(ranking, dict)
        ids = [id_ for id_, _ in ranking["words"]]
        if len(ids) != everything or len(set(ids)) != everything:
            found.append(f"{len(ids)} of {everything} documents are found by words")
        for number in sorted({0, promised // 3, promised // 2, promised - 2, promised - 1} & set(range(promised))):
            own = [_found(store, number, version) for version in (0, 1)]
            if not any(own):
                found.append(f"d{number} is not found by all of its fields")
        found += [str(damage) for damage in store.check()]
    return found


def _found(store: LocalStore, number: int, version: int) -> bool:
    """Whether this version of a document is what its own fields lead to."""
    made = entry(number, version)
    own = {"second": made.passages[SECOND][0].vector, "sparse": made.sparse}
    asked = {name: RETRIEVERS[name] for name in ("dense", "second", "sparse", "windows", "window vectors")}
    window = made.units["windows"][0].unit.text
    (ranking,) = store.rankings([Query(window, made.passages[FIRST][0].vector, own)], asked)
    assert isinstance(ranking, dict)
    return all(found and found[0][0] == f"d{number}" for found in ranking.values())


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
                bad += problems(folder, 0)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is counted
                bad.append(f"{type(error).__name__}: {error}")
    print(f"{count} creations killed, {unmade} of them before the store was there: {len(bad)} bad")
    return bad


def run_ingests(count: int, draw: random.Random) -> list[str]:
    bad, promised = [], 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "store")
        for number in range(count):
            if number % 10 == 9:  # not ever larger
                folder, promised = Path(scratch, f"store{number}"), 0
            said = killed("ingest", folder, draw.uniform(0, LONGEST_INGEST_S))
            promised = max([promised, *(int(one) for one in said if one.isdecimal())])
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
