"""A server that answers what a test says, in the place of Elasticsearch."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from http_stub import Asked, Reply, Scripted, http_stub, next_reply

if TYPE_CHECKING:
    from ccheck.search.elastic import ElasticStore

Answer = tuple[int, Any] | Reply | None
"""A status with its body, or a reply; None drops the connection."""
WORDS = {name: {"type": "text"} for name in ("title", "text", "content")}
"""The fields that every index of ccheck's has."""


def mapping(meta: Mapping[str, Any], fields: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """What `GET /papers` answers for an index of ccheck's."""
    mapped = {"_meta": meta, "properties": WORDS | (fields or {})}
    return {"papers-000001": {"aliases": {"papers": {}, WRITES: {"is_hidden": True}}, **UUID, "mappings": mapped}}


UUID = {"settings": {"index": {"uuid": "u-1"}}}
WRITES = "papers-000001-writes-0123456789abcdef"
"""The alias by which only this index is written to."""
MAPPING = mapping({"ccheck": {"format": 1, "layout": {}}})


@dataclass
class Stub:
    """The server: `answers` maps (method, path) to what is answered, in order, the last one for ever."""

    url: str
    seen: list[Asked]
    bodies: Callable[[str], list[bytes]]
    answers: Scripted = field(default_factory=dict)
    product: str = "Elasticsearch"

    def reply(self, asked: Asked) -> Reply | None:
        otherwise = {"/papers": MAPPING, f"/{WRITES}/_settings/index.uuid": {"papers-000001": UUID}}
        answer = next_reply(self.answers, asked, (200, otherwise.get(asked.path, {})))
        answer = answer(asked.body) if callable(answer) else answer
        if answer is None or isinstance(answer, Reply):
            return answer
        status, body = answer
        return Reply(body, status, {"X-Elastic-Product": self.product})


def searched(body: bytes) -> list[Any]:
    """The lines of a `_msearch`."""
    return [json.loads(line) for line in body.splitlines()]


@pytest.fixture
def stub(hurried: None) -> Iterator[Stub]:
    with http_stub(lambda asked: stub.reply(asked)) as server:
        stub = Stub(server.url, server.asked, server.bodies)
        yield stub


@pytest.fixture
def store(stub: Stub) -> Iterator[ElasticStore]:
    from ccheck.search.elastic import Connection, ElasticStore

    with ElasticStore(Connection(stub.url, retry_seconds=0.4, request_timeout=5), "papers") as store:
        yield store
