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
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(f"{paper(n)}\n" for n in range(COUNT)), encoding="utf-8")
    shared, alone = (f"{elasticsearch_url}/{elasticsearch_index}-{name}" for name in ("shared", "alone"))

    def part(number: int) -> tuple[object, ...]:
        return "ingest", "-", "--format", "jsonl", "--store", shared, "--no-dense", "--part", f"{number}/3"

    with ExitStack() as stack:
        running = []
        for number in (1, 2, 3):  # each may be the one that makes the index
            asked = command(*part(number))
            one = subprocess.Popen(asked, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
            running.append(stack.enter_context(one))
            stack.callback(one.kill)
        for one in (running[0], running[2]):
            _, said = one.communicate(corpus.read_bytes(), timeout=300)
            assert one.returncode == 0, said.decode()
        store = stack.enter_context(ElasticStore(Connection(elasticsearch_url), f"{elasticsearch_index}-shared"))
        others = store.count()
        killed = running[1]
        assert killed.stdin is not None
        killed.stdin.write(corpus.read_bytes())
        killed.stdin.flush()  # its input does not end, so it waits after its first batch
        while store.count() == others:
            assert killed.poll() is None
            time.sleep(0.05)
        killed.kill()
        killed.communicate()
        again = ccheck("ingest", corpus, "--store", shared, "--no-dense", "--part", "2/3", "--json")
        report = json.loads(again.out)
        assert again.code == 0 and report["unchanged"] > 0 < report["added"] and store.count() == COUNT
        assert report["unchanged"] + report["added"] == COUNT - others
    whole = ccheck("ingest", corpus, "--store", shared, "--no-dense", "--json")
    assert whole.code == 0 and json.loads(whole.out)["unchanged"] == COUNT
    assert ccheck("ingest", corpus, "--store", alone, "--no-dense").code == 0
    by_all, by_one = (ranked(elasticsearch_url, f"{elasticsearch_index}-{name}") for name in ("shared", "alone"))
    assert by_all == by_one and all(len(one) > 500 for one in by_one) and len(by_one) == 3
