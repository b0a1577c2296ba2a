"""A batch of claims whose Elasticsearch node is stopped, and started again, in the middle."""

import json
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from cli_runs import BM25, ccheck, command, environment, jsonl, program
from elasticsearch_nodes import Node, start_node
from searching import paper, rank_all

from ccheck.core.errors import CcheckError
from ccheck.core.stages import Bm25
from ccheck.core.types import Query
from ccheck.demo import CORPUS
from ccheck.search.elastic import Connection, ElasticStore

COUNT = 400
"""Claims enough for several batches of 64."""
OPTIONS = (*BM25, "--verdict", "none", "-k", "3")


@pytest.fixture(scope="module")
def own_node() -> Iterator[Node]:
    with start_node("basic") as node:
        yield node


@pytest.fixture
def node(own_node: Node) -> Node:
    """A node that runs, whatever the test before did to it."""
    if not own_node.runs:
        own_node.start()
    return own_node


@pytest.fixture
def store(node: Node) -> str:
    url = f"{node.url}/papers"
    assert ccheck("ingest", CORPUS, "--store", url, "--no-dense").code == 0
    return url


@pytest.fixture
def claims(tmp_path: Path) -> Path:
    words = ("sea level", "ice sheets", "vaccines", "climate", "ocean")
    return jsonl(
        tmp_path / "claims.jsonl", *({"_id": f"c{n}", "text": f"{words[n % len(words)]} {n}"} for n in range(COUNT))
    )


def started(claims: Path, store: str, **settings: str) -> subprocess.Popen[bytes]:
    """The program, in the middle: its first answer was read, and the others fit into no pipe."""
    asked = command("query", "--claims", claims, "--store", store, *OPTIONS)
    pipe = subprocess.PIPE
    running = subprocess.Popen(asked, stdout=pipe, stderr=pipe, bufsize=0, env=environment(**settings))
    assert running.stdout is not None
    first = json.loads(running.stdout.readline())
    assert first["claim"]["id"] == "c0" and "error" not in first
    return running


def test_what_could_not_be_asked_is_said_and_asked_later(node: Node, store: str, claims: Path, tmp_path: Path) -> None:
    running = started(claims, store, CCHECK_ELASTICSEARCH_RETRY_SECONDS="2")
    node.stop()
    out, err = running.communicate(timeout=300)
    answers = [json.loads(line) for line in out.splitlines()]
    failed = [one for one in answers if "error" in one]
    assert running.returncode == 7 and f"of {COUNT} claims could not be checked" in err.decode()
    assert b"is not answering (the connection was refused" in err and b"trying again for up to 2 s" in err
    assert [one["claim"]["id"] for one in answers] == [f"c{n}" for n in range(1, COUNT)]
    assert failed and all("can't be reached" in one["error"] and not one["evidence"] for one in failed)
    assert answers[-1] == failed[-1]

    node.start()
    resumed = ("--resume", "--run", tmp_path / "all.run")
    ran = program("query", "--claims", claims, "--store", store, *OPTIONS, *resumed)
    assert ran.code == 0 and [one["claim"]["id"] for one in ran.objects] == [f"c{n}" for n in range(COUNT)]
    assert all("error" not in one and one["evidence"] for one in ran.objects)
    # What was answered while the node was gone is not in the record, which is on it, and is checked again.
    (kept,) = re.findall(r"(\d+) answers? kept", ran.err)
    assert 1 <= int(kept) <= COUNT - len(failed)
    assert len({line.split()[0] for line in (tmp_path / "all.run").read_text().splitlines()}) == COUNT


def test_an_interrupt_does_not_wait_for_a_node_that_is_gone(node: Node, store: str, claims: Path) -> None:
    with started(claims, store, CCHECK_ELASTICSEARCH_RETRY_SECONDS="3600") as running:
        node.stop()
        assert running.stderr is not None and running.stdout is not None
        reading = threading.Thread(target=running.stdout.read)  # so that it comes to ask again
        reading.start()
        while b"trying again" not in running.stderr.readline():
            assert running.poll() is None
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 130 and b"interrupted" in running.stderr.read()
        reading.join()


PAPERS = 7_500
"""So that each part has more than a batch, and what waits in a pipe's buffer."""


def ranked(url: str, index: str) -> list[dict[str, float]]:
    """The scores of all papers that match some queries."""
    queries = [Query("sea cohort"), Query("ice w77 w4001"), Query("fish heat risk")]
    with ElasticStore(Connection(url), index) as store:
        answers = rank_all(store, queries, {"bm25": Bm25(depth=PAPERS)})
    return [dict(one["bm25"]) for one in answers if not isinstance(one, CcheckError)]


def test_three_write_at_once_and_one_is_killed(elasticsearch_url, elasticsearch_index, tmp_path):
    papers = [f"{json.dumps(paper(n))}\n".encode() for n in range(PAPERS)]
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
        assert again.code == 0 and report["unchanged"] > 0 < report["added"] and store.count() == PAPERS
        assert report["unchanged"] + report["added"] == PAPERS - others
    whole = ccheck("ingest", corpus, "--store", shared, "--no-dense", "--json")
    assert whole.code == 0 and json.loads(whole.out)["unchanged"] == PAPERS
    assert ccheck("ingest", corpus, "--store", alone, "--no-dense").code == 0
    by_all, by_one = (ranked(elasticsearch_url, f"{elasticsearch_index}-{name}") for name in ("shared", "alone"))
    assert by_all == by_one and all(len(one) > 500 for one in by_one) and len(by_one) == 3
