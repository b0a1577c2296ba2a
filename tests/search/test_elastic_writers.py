"""Several processes that write parts of one corpus into one index, at once."""

from __future__ import annotations

import json
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

from cli_runs import ccheck, command, environment
from searching import rank_all

from ccheck.core.errors import CcheckError
from ccheck.core.stages import Bm25
from ccheck.core.types import Query
from ccheck.search.elastic import Connection, ElasticStore

WORDS = "sea ice heat rain coast soil bird fish risk dose trial cohort model flood storm cloud".split()
COUNT = 7_500
"""So that each part has more than a batch, and what waits in a pipe's buffer."""


def paper(n: int) -> str:
    """A line of the corpus; no two papers have the same words."""
    text = f"{WORDS[n % 7]} {WORDS[n % 11]} {WORDS[n % 13]} w{n}"
    return json.dumps({"_id": f"p{n}", "title": WORDS[n % 16], "text": text})


def ranked(url: str, index: str) -> list[dict[str, float]]:
    """The scores of all papers that match some queries."""
    queries = [Query("sea cohort"), Query("ice w77 w4001"), Query("fish heat risk")]
    with ElasticStore(Connection(url), index) as store:
        answers = rank_all(store, queries, {"bm25": Bm25(depth=COUNT)})
    return [dict(one["bm25"]) for one in answers if not isinstance(one, CcheckError)]


def test_three_write_at_once_and_one_is_killed(
    elasticsearch_url: str, elasticsearch_index: str, tmp_path: Path
) -> None:
    papers = [f"{paper(n)}\n".encode() for n in range(COUNT)]
    parts = [b"".join(papers[number::3]) for number in range(3)]
    corpus, second = tmp_path / "corpus.jsonl", tmp_path / "second.jsonl"
    corpus.write_bytes(b"".join(papers))
    second.write_bytes(parts[1])
    writing = "ingest", "-", "--format", "jsonl", "--store", f"{elasticsearch_url}/{elasticsearch_index}-shared"
    shared, alone = (f"{elasticsearch_url}/{elasticsearch_index}-{name}" for name in ("shared", "alone"))

    with ExitStack() as stack:
        running = []
        for _ in parts:  # each may be the one that makes the index
            asked = command(*writing, "--no-dense")
            one = subprocess.Popen(asked, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
            running.append(stack.enter_context(one))
            stack.callback(one.kill)
        for one, part in ((running[0], parts[0]), (running[2], parts[2])):
            _, said = one.communicate(part, timeout=300)
            assert one.returncode == 0, said.decode()
        store = stack.enter_context(ElasticStore(Connection(elasticsearch_url), f"{elasticsearch_index}-shared"))
        others = store.count()
        killed = running[1]
        assert killed.stdin is not None
        killed.stdin.write(parts[1])
        killed.stdin.flush()  # its input does not end, so it waits after its first batch
        while store.count() == others:
            assert killed.poll() is None
            time.sleep(0.05)
        killed.kill()
        killed.communicate()
        again = ccheck("ingest", second, "--store", shared, "--no-dense", "--json")
        report = json.loads(again.out)
        assert again.code == 0 and report["unchanged"] > 0 < report["added"] and store.count() == COUNT
        assert report["unchanged"] + report["added"] == COUNT - others
    whole = ccheck("ingest", corpus, "--store", shared, "--no-dense", "--json")
    assert whole.code == 0 and json.loads(whole.out)["unchanged"] == COUNT
    assert ccheck("ingest", corpus, "--store", alone, "--no-dense").code == 0
    by_all, by_one = (ranked(elasticsearch_url, f"{elasticsearch_index}-{name}") for name in ("shared", "alone"))
    assert by_all == by_one and all(len(one) > 500 for one in by_one) and len(by_one) == 3
