"""Somebody who searches and writes to an Elasticsearch store all the time, while a test moves it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from searching import answer_all

from ccheck.core.layout import MAIN_VECTORS, Layout
from ccheck.core.stages import Bm25, Dense, Retriever
from ccheck.core.types import Entry, Query, Ranking
from ccheck.search.elastic import ElasticStore

K, PAUSE = 5, 0.05
RETRIEVERS: dict[str, Retriever] = {"bm25": Bm25(depth=10 * K), "dense": Dense(depth=10 * K)}


class Busy:
    """Searches and writes to a store from two threads, each with a connection of its own, until it is left.

    A search asks for `K` hits with the title and the first vector of a document of `filled`. Each time it writes, it
    changes one document of `filled`, adds the next of `added` and removes one of `filled`. `counts` has the searches
    that were answered, short (fewer than `K` hits), empty or failed, and the documents written. What fails is kept in
    `failures`, and the work goes on. `digests` has the digest that each document of the store must have in the end.
    """

    def __init__(
        self, store: ElasticStore, layout: Layout, filled: Sequence[Entry], added: Callable[[int], Entry]
    ) -> None:
        self._store, self._layout, self._filled, self._added = store, layout, filled, added
        self._stop = threading.Event()
        self.counts: Counter[str] = Counter()
        self.failures: list[str] = []
        self.digests = {one.document.id: one.digest for one in filled}
        self._threads = [threading.Thread(target=self._run, args=[one]) for one in (self._search, self._write)]

    def __enter__(self) -> Busy:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, act: Callable[[ElasticStore, int], None]) -> None:
        with ElasticStore(self._store.client.connection, self._store.index) as own:
            own.info()
            own.prepare(self._layout)
            number = 0
            while not self._stop.is_set():
                try:
                    act(own, number)
                except Exception as error:  # noqa: BLE001 - whatever it is, it is shown
                    self.counts["failed"] += 1
                    self.failures.append(repr(error)[:300])
                number += 1
                self._stop.wait(PAUSE)

    def _search(self, own: ElasticStore, number: int) -> None:
        asked = self._filled[number * 37 % len(self._filled)]
        query = Query(asked.document.title, asked.passages[MAIN_VECTORS][0].vector)
        (answer,) = answer_all(own, [query], RETRIEVERS, k=K)
        if not isinstance(answer, Ranking):
            raise answer
        self.counts["answered" if len(answer.hits) == K else "short" if answer.hits else "empty"] += 1

    def _write(self, own: ElasticStore, number: int) -> None:
        changed = replace(self._filled[number % len(self._filled)], digest=f"changed {number}")
        added = self._added(number)
        assert own.upsert([changed, added]) == {}
        self.digests |= {one.document.id: one.digest for one in (changed, added)}
        removed = self._filled[number * 7 % len(self._filled)].document.id
        own.delete([removed])
        self.digests.pop(removed, None)
        self.counts["written"] += 3
