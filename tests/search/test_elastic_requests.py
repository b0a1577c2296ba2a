"""What `ccheck query` sends to a real server, as a proxy between them sees it, with and without a licence for `rrf`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from cli_runs import ccheck
from http_stub import Asked, HttpStub, Reply, http_stub

from ccheck.demo import CLAIMS, CORPUS

HOW = ("--json", "--no-record", "--verdict", "none", "-k", "5")
PASSED_ON = ("accept", "content-type")


@contextmanager
def proxy(url: str) -> Iterator[HttpStub]:
    """A server that hands every request on to another one."""

    def hand_on(asked: Asked) -> Reply:
        path = f"{url}{asked.path}" + (f"?{asked.query}" if asked.query else "")
        headers = {name: value for name, value in asked.headers.items() if name in PASSED_ON}
        found = httpx.request(asked.method, path, content=asked.body, headers=headers, timeout=60)
        kept = {name: found.headers.get(name) for name in ("Content-Type", "X-Elastic-Product")}
        return Reply(found.content, found.status_code, kept)

    with http_stub(hand_on) as stub:
        yield stub


def said(stub: HttpStub) -> list[str]:
    """The requests but for the one that finds out that a server speaks 8, in a word each."""
    words = [
        f"{one.method} {one.path.rpartition('/')[2]}" + (" rrf" if b'"rrf"' in one.body else "") for one in stub.asked
    ]
    return words[1:] if words[0] == words[1] else words


def test_the_licence_decides_on_the_requests_and_not_on_the_answer(
    elasticsearch_url: str, elasticsearch_8_url: str, elasticsearch_basic_url: str, elasticsearch_index: str
) -> None:
    index, answers = elasticsearch_index, []
    for url in (elasticsearch_url, elasticsearch_8_url, elasticsearch_basic_url):
        assert ccheck("ingest", CORPUS, "--store", f"{url}/{index}").code == 0
        fuses = url != elasticsearch_basic_url
        with proxy(url) as stub:
            ran = ccheck("query", "sea level has risen", "--store", f"{stub.url}/{index}", *HOW)
            asked = ["POST _msearch rrf", *([] if fuses else ["POST _msearch", "POST _search"])]
            assert said(stub) == [f"GET {index}", "GET docs,store", *asked]
        with proxy(url) as stub:
            many = ccheck("query", "--claims", "-", "--store", f"{stub.url}/{index}", *HOW, stdin=claims(80))
            searches = [word.endswith("rrf") for word in said(stub) if "_msearch" in word]
            # What the first batch was refused, the others do not ask for.
            assert len(searches) > 1 and searches == ([True] * len(searches) if fuses else [True] + [False] * 3)
        answers.append([ranked(each["evidence"]) for each in (*ran.objects, *many.objects)])
    assert len(answers[0]) == 81 and answers[0] == answers[1] == answers[2]


def claims(count: int) -> bytes:
    """The sample claims over and over, each time under other ids."""
    lines = CLAIMS.read_text(encoding="utf-8").splitlines()
    rows = (lines[number % len(lines)] for number in range(count))
    return "\n".join(row.replace('"_id": "', f'"_id": "{number}-', 1) for number, row in enumerate(rows)).encode()


def ranked(evidence: list[dict[str, object]]) -> list[tuple[object, ...]]:
    """The places and scores of the evidence; the server's scores are of single precision."""
    return [(one["doc_id"], one["ranks"], pytest.approx(one["score"], rel=1e-4)) for one in evidence]
