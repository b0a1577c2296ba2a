"""A batch of claims whose Elasticsearch node is stopped, and started again, in the middle."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_runs import BM25, ccheck, command, environment, jsonl, program
from elasticsearch_nodes import Node, start_node

from ccheck.demo import CORPUS

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
        tmp_path / "claims.jsonl",
        *({"_id": f"c{n}", "text": f"{words[n % len(words)]} {n}"} for n in range(COUNT)),
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
    (tmp_path / "part.jsonl").write_bytes(out)
    resumed = ("--resume", tmp_path / "part.jsonl", "--run", tmp_path / "all.run")
    ran = program("query", "--claims", claims, "--store", store, *OPTIONS, *resumed)
    assert ran.code == 0 and [one["claim"]["id"] for one in ran.objects] == [f"c{n}" for n in range(COUNT)]
    assert all("error" not in one and one["evidence"] for one in ran.objects)
    assert f"{COUNT - 1 - len(failed)} answers kept from" in ran.err
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
