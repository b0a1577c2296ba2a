"""Servers of strangers, on loopback: they keep what they were sent, and say it again wherever a text can stand."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from http_stub import Asked, HttpStub, Reply, http_stub


@contextmanager
def listening(answer: Callable[[Asked], tuple[int, Any]]) -> Iterator[HttpStub]:
    """A server that answers with a status and JSON, and with what it was sent in a header."""

    def reply(asked: Asked) -> Reply:
        status, said = answer(asked)
        sent = asked.headers.get("authorization", "")
        return Reply(said, status, {"X-Elastic-Product": "Elasticsearch", "x-echo": sent})

    with http_stub(reply) as server:
        yield server


def echo(asked: Asked) -> str:
    """All that a request says."""
    return f"{asked.path}?{asked.query} {json.dumps(asked.headers)}"


def all_headers(server: HttpStub) -> str:
    return json.dumps([one.headers for one in server.asked])


def ranking(asked: Asked) -> tuple[int, Any]:
    """A reranking server of Cohere's shape, whose labels say what it was sent."""
    if not asked.body:
        return 404, {"error": echo(asked)}
    count = len(asked.json["documents"])
    results = [{"index": i, "relevance_score": 1 - i / 100, "label": echo(asked)} for i in range(count)]
    return 200, {"id": echo(asked), "model": echo(asked), "results": results}


def refusing(asked: Asked) -> tuple[int, Any]:
    """Any server that refuses and says why, with what it was sent."""
    return 422, {"error": {"message": echo(asked), "type": echo(asked), "reason": echo(asked)}}


def judging(asked: Asked) -> tuple[int, Any]:
    """A language model whose rationale says what it was sent."""
    reply = {"rationale": echo(asked), "quote": "", "label": "NOT_ENOUGH_INFO", "confidence": 0.9}
    message = {"role": "assistant", "content": json.dumps(reply)}
    return 200, {"choices": [{"message": message, "finish_reason": "stop"}]}
