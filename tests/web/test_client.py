"""`ccheck query` with `CCHECK_SERVER`: the same output as without, from a server that has its models loaded."""

from __future__ import annotations

import json

import pytest
from cli_runs import ccheck
from http_stub import Reply, http_stub
from web_servers import CLAIM, KEYS

from ccheck.core.errors import InvalidData, ServerError
from ccheck.web.client import check_on


@pytest.fixture
def asked(web, monkeypatch):
    monkeypatch.setenv("CCHECK_SERVER", web.url)
    return web


def test_a_query_prints_what_the_server_has(asked, tmp_path):
    said = ccheck("query", CLAIM, "--json", "-k", 2)
    assert said.code == 0, said.err
    (answer,) = said.objects
    (check,) = [
        one
        for one in asked.client.get("/v1/checks", params={"limit": 200}).json()
        if one["claim"] == CLAIM and one["settings"]["k"] == 2
    ]
    assert answer == check["result"]
    shown = ccheck("query", CLAIM, "-k", 2)
    assert "Tide gauges" in shown.out and "Verdict  CONFLICTING" in shown.out
    assert ccheck("query", CLAIM, "--format", "bibtex").out.startswith("@article{church2015")
    assert ccheck("query", "-", stdin=CLAIM).out == ccheck("query", CLAIM).out


def test_its_errors_have_their_codes(asked, monkeypatch):
    wrong = ccheck("query", CLAIM, "--filter", "yeer>2010")
    assert wrong.code == 2 and "yeer" in wrong.err
    assert ccheck("query", "...").code == 5
    monkeypatch.setenv("CCHECK_SERVER", "http://127.0.0.1:9")
    gone = ccheck("query", CLAIM)
    assert gone.code == 6 and "CCHECK_SERVER" in gone.err and "ccheck serve web" in gone.err


def test_with_a_store_of_ones_own_the_claim_is_checked_here(asked, tmp_path):
    said = ccheck("query", CLAIM, "--store", tmp_path / "nothing")
    assert said.code == 4 and "nothing" in said.err


def test_the_key_is_sent(serve_web, monkeypatch):
    web = serve_web(keys=KEYS)
    monkeypatch.setenv("CCHECK_SERVER", web.url)
    assert ccheck("query", CLAIM).code == 6
    monkeypatch.setenv("CCHECK_SERVER_KEY", "checker-012345678")
    # It may check, and not read: the answer comes at once.
    assert ccheck("query", CLAIM).code == 0


def test_a_server_that_is_none_of_ours(monkeypatch):
    with pytest.raises(ServerError, match="write the address"):
        check_on("localhost:8350", None, CLAIM, {})
    for body in (b"[]", b"not json", json.dumps({"id": "x"}).encode()):
        with http_stub(lambda asked, body=body: Reply(body)) as stub, pytest.raises(InvalidData, match="not a ccheck"):
            check_on(stub.url, None, CLAIM, {})
    with http_stub(lambda asked: Reply(b"x" * 3000)) as stub, monkeypatch.context() as patch:
        patch.setattr("ccheck.web.client.MOST_BYTES", 2000)
        with pytest.raises(ServerError, match="larger than 2,000 bytes"):
            check_on(stub.url, None, CLAIM, {})
