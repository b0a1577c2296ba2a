"""Three real Elasticsearch nodes from the jars, as one cluster on 127.0.0.1."""

import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from elasticsearch_nodes import Node, new_node, until_healthy

QUICK = {
    # A node that hangs is missed after some seconds; by default after half a minute.
    "cluster.fault_detection.leader_check.timeout": "3s",
    "cluster.fault_detection.leader_check.retry_count": 2,
    "cluster.fault_detection.follower_check.timeout": "3s",
    "cluster.fault_detection.follower_check.retry_count": 2,
}


@dataclass(frozen=True)
class Cluster:
    nodes: Sequence[Node]

    @property
    def hosts(self) -> str:
        """Every node's address, for ELASTICSEARCH_HOSTS."""
        return ",".join(node.url for node in self.nodes)

    def ask(self, path: str, **parameters: Any) -> Any:
        """What a node that runs answers. Raises httpx.HTTPError where none does."""
        error: httpx.HTTPError | None = None
        for node in self.nodes:
            if node.runs:
                try:
                    return httpx.get(node.url + path, params=parameters, timeout=60).raise_for_status().json()
                except httpx.HTTPError as failed:
                    error = failed
        raise error or httpx.ConnectError("no node runs")

    def change(self, path: str, body: Mapping[str, Any]) -> None:
        """PUT to a node that runs."""
        node = next(node for node in self.nodes if node.runs)
        httpx.put(node.url + path, json=body, timeout=60).raise_for_status()

    def master(self) -> Node:
        """The elected master."""
        (elected,) = self.ask("/_cat/master", format="json")
        return self.node(elected["node"])

    def primary(self, index: str) -> Node:
        """The node that holds the index's primary shard."""
        shards = self.ask(f"/_cat/shards/{index}", format="json")
        return self.node(next(one["node"] for one in shards if one["prirep"] == "p"))

    def node(self, name: str) -> Node:
        return next(node for node in self.nodes if node.settings and node.settings["node.name"] == name)

    def await_health(self, status: str = "green", nodes: int | None = None) -> None:
        """Waits until so many nodes (all that run) have met, and all shards have their copies."""
        wanted = {"wait_for_status": status, "wait_for_nodes": nodes or sum(node.runs for node in self.nodes)}
        until_healthy(lambda: self.ask("/_cluster/health", timeout="30s", **wanted))


@contextmanager
def three_nodes() -> Iterator[Cluster]:
    """A cluster that has met; skips the test where the jars can't be run."""
    names = ["one", "two", "three"]
    ports = _free_ports(len(names))
    common = {
        "cluster.name": "three",
        "discovery.seed_hosts": [f"127.0.0.1:{port}" for port in ports],
        "cluster.initial_master_nodes": names,
    }
    with ExitStack() as stack:
        nodes = []
        for name, port in zip(names, ports, strict=True):
            own = {**QUICK, **common, "node.name": name, "transport.port": port}
            nodes.append(stack.enter_context(new_node("basic", settings=own)))
            nodes[-1].launch()
        for node in nodes:
            node.await_port()
        cluster = Cluster(nodes)
        cluster.await_health()
        yield cluster


def _free_ports(count: int) -> list[int]:
    """Ports that nobody listens on at the moment; members of a cluster must know them beforehand."""
    with ExitStack() as stack:
        found = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in found:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in found]
