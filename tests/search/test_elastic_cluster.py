"""A cluster of three real nodes that loses some of them while documents are ingested and claims are checked.

One test runs always. The others run where CCHECK_TEST_CLUSTER is set: they take minutes.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_runs import BM25, ccheck, command, environment, jsonl
from elasticsearch_clusters import Cluster, three_nodes
from searching import WORDS, paper

on_demand = pytest.mark.skipif(not os.environ.get("CCHECK_TEST_CLUSTER"), reason="on demand: set CCHECK_TEST_CLUSTER=1")

BATCH = 2_500
"""Papers of which an ingest writes a batch, whatever waits in a pipe's buffer."""
CLAIMS = 320
OPTIONS = (*BM25, "--verdict", "none", "--json")


@pytest.fixture(scope="module")
def started() -> Iterator[Cluster]:
    with three_nodes() as cluster:
        yield cluster


@pytest.fixture
def cluster(started: Cluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A whole cluster, whatever the test before did to it."""
    for node in started.nodes:
        if not node.runs:
            node.launch()
            node.await_port()
    started.await_health()
    monkeypatch.setenv("ELASTICSEARCH_HOSTS", started.hosts)
    return started


class Traffic:
    """An ingest and a batch of claims, as programs, that go on until `assert_whole`."""

    def __init__(self, cluster: Cluster, index: str, folder: Path, **settings: str) -> None:
        self.store = f"{cluster.nodes[0].url}/{index}"
        self.fed = 0
        self.folder = folder
        jsonl(folder / "first.jsonl", *(paper(n) for n in range(100)))
        assert ccheck("ingest", folder / "first.jsonl", "--store", self.store, "--no-dense").code == 0
        # The record of checks is an index, too, which must have its copy before a node is killed.
        assert ccheck("query", WORDS[0], "--store", self.store, *OPTIONS).code == 0
        # A copy that was lost is made again at once, instead of after a minute.
        cluster.change("/*/_settings", {"index.unassigned.node_left.delayed_timeout": "0"})
        cluster.await_health()
        claims = ({"_id": f"c{n}", "text": f"{WORDS[n % 16]} {WORDS[n % 7]} {n}"} for n in range(CLAIMS))
        jsonl(folder / "claims.jsonl", *claims)
        environ = environment(ELASTICSEARCH_HOSTS=cluster.hosts, **settings)
        query = ("query", "--claims", folder / "claims.jsonl", "--store", self.store, *OPTIONS, "-k", "3")
        self.query = self._start(environ, *query)
        self.ingest = self._start(environ, "ingest", "-", "--format", "jsonl", "--store", self.store, "--no-dense")
        try:
            self.answers = [self._answer()]
        except BaseException:
            self.__exit__()
            raise

    def _start(self, environ: dict[str, str], name: str, *arguments: object) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        with (self.folder / name).open("wb") as said:
            asked = command(name, *arguments)
            return subprocess.Popen(asked, bufsize=0, stdin=pipe, stdout=pipe, stderr=said, env=environ)

    def feed(self) -> None:
        """A batch for the ingest to write, and some answers, which makes room for the next."""
        assert self.ingest.stdin is not None
        papers = "".join(f"{json.dumps(paper(n))}\n" for n in range(self.fed, self.fed + BATCH))
        self.ingest.stdin.write(papers.encode())
        self.fed += BATCH

    def read(self) -> None:
        """Some answers, so that the next claims are searched for."""
        self.answers += [self._answer() for _ in range(CLAIMS // 5)]

    def _answer(self) -> dict[str, Any]:
        assert self.query.stdout is not None
        line = self.query.stdout.readline()
        assert line, (self.folder / "query").read_text()
        answer: dict[str, Any] = json.loads(line)
        return answer

    @property
    def _programs(self) -> list[tuple[str, subprocess.Popen[bytes]]]:
        return [("ingest", self.ingest), ("query", self.query)]

    def assert_whole(self) -> None:
        """Both end well: each paper is there once, and each claim has its answer."""
        assert self.ingest.stdin is not None and self.query.stdout is not None
        self.ingest.stdin.close()
        self.answers += [json.loads(line) for line in self.query.stdout]
        for name, one in self._programs:
            assert one.wait(600) == 0, (self.folder / name).read_text()
        again = ccheck("index", "info", "--store", self.store, "--json")
        assert again.code == 0 and json.loads(again.out)["documents"] == self.fed
        assert [one["claim"]["id"] for one in self.answers] == [f"c{n}" for n in range(CLAIMS)]
        assert all(one["evidence"] and "error" not in one for one in self.answers)

    def __enter__(self) -> Traffic:
        return self

    def __exit__(self, *_: object) -> None:
        for _, one in self._programs:
            one.kill()
            with one:  # waits, and closes its pipes
                pass


def test_the_master_and_a_data_node_are_killed(cluster: Cluster, tmp_path: Path) -> None:
    """The second leaves one node, which elects no master: everything waits until another is back."""
    with Traffic(cluster, "killed", tmp_path) as traffic:
        traffic.feed()
        master = cluster.master()
        master.kill()
        traffic.feed()
        traffic.read()
        cluster.await_health()
        data = cluster.primary("killed")
        data.kill()
        traffic.feed()
        master.launch()
        traffic.read()
        master.await_port()
        traffic.assert_whole()
    assert cluster.master() in (node for node in cluster.nodes if node is not data)


@on_demand
def test_a_rolling_restart(cluster: Cluster, tmp_path: Path) -> None:
    with Traffic(cluster, "rolling", tmp_path) as traffic:
        for node in cluster.nodes:
            traffic.feed()
            node.stop()
            traffic.read()
            node.launch()
            node.await_port()
            cluster.await_health()
        traffic.assert_whole()


@on_demand
def test_a_node_that_is_cut_off_and_comes_back(cluster: Cluster, tmp_path: Path) -> None:
    """The node with the primary shard hangs (SIGSTOP): the others elect and promote, and it finds itself stale."""
    with Traffic(cluster, "frozen", tmp_path, CCHECK_ELASTICSEARCH_TIMEOUT="10") as traffic:
        traffic.feed()
        frozen = cluster.primary("frozen")
        frozen.freeze()
        traffic.feed()
        traffic.read()
        traffic.feed()
        traffic.read()
        frozen.thaw()
        cluster.await_health()
        traffic.assert_whole()


@on_demand
@pytest.mark.parametrize("block", ["flood", "read_only", "write", "cluster"])
def test_blocks(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: str) -> None:
    """What can't be written says why; searches go on; the same command goes on once the block is lifted."""
    jsonl(tmp_path / "papers.jsonl", *(paper(n) for n in range(50)))
    jsonl(tmp_path / "more.jsonl", *(paper(n) for n in range(100)))
    store = f"{cluster.nodes[0].url}/blocked-{block}"
    assert ccheck("ingest", tmp_path / "papers.jsonl", "--store", store, "--no-dense").code == 0
    settings = f"/blocked-{block}/_settings"
    watermarks = {
        f"cluster.routing.allocation.disk.{name}": value
        for name, value in (
            ("threshold_enabled", True), ("watermark.low", "900tb"), ("watermark.high", "800tb"),
            ("watermark.flood_stage", "700tb"),
        )
    }  # fmt: skip
    path, body = {
        "flood": ("/_cluster/settings", {"persistent": {"cluster.info.update.interval": "10s", **watermarks}}),
        "read_only": (settings, {"index.blocks.read_only": True}),
        "write": (settings, {"index.blocks.write": True}),
        "cluster": ("/_cluster/settings", {"persistent": {"cluster.blocks.read_only": True}}),
    }[block]
    lifted = {"persistent": dict.fromkeys(body["persistent"])} if "persistent" in body else dict.fromkeys(body)
    cluster.change(path, body)
    try:
        if block == "flood":
            while "read_only_allow_delete" not in str(cluster.ask(settings)):
                time.sleep(0.5)
        monkeypatch.setenv("CCHECK_ELASTICSEARCH_RETRY_SECONDS", "3")
        refused = ccheck("ingest", tmp_path / "more.jsonl", "--store", store, "--no-dense")
        searched = ccheck("query", "ice and rain", "--store", store, *OPTIONS)
    finally:
        cluster.change(path, lifted)
    assert refused.code == 6 and searched.code == 0 and searched.objects[0]["evidence"]
    monkeypatch.setenv("CCHECK_ELASTICSEARCH_RETRY_SECONDS", "120")
    again = ccheck("ingest", tmp_path / "more.jsonl", "--store", store, "--no-dense", "--json")
    assert again.code == 0 and (again.objects[0]["added"], again.objects[0]["unchanged"]) == (50, 50)
