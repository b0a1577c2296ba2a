"""What ccheck says for each answer of a server that is an error."""

from __future__ import annotations

from typing import Any

import pytest

from ccheck.core.errors import CcheckError, InvalidData, NotFound, ServerError
from ccheck.search.elastic import Connection
from ccheck.search.elastic.errors import (
    _errors,
    from_response,
    is_licence,
    may_pass,
    reason_of,
    refuse_parts,
    too_many_clauses,
)

HERE = Connection("http://host:9200")


def body(type_: str, reason: str = "why") -> dict[str, Any]:
    return {"error": {"type": type_, "reason": reason}}


@pytest.mark.parametrize(
    ("status", "type_", "kind", "said"),
    [
        (
            404,
            "index_not_found_exception",
            NotFound,
            "there is no index http://host:9200/papers. Create it with",
        ),
        (404, "alias_missing", NotFound, "there is no index"),
        (404, "aliases_not_found_exception", NotFound, "there is no index"),
        (400, "index_not_found_exception", InvalidData, "refuses the request (400 index_not_found_exception): why"),
        (404, "resource_not_found_exception", ServerError, "papers failed (404 resource_not_found_exception): why"),
        (405, "", ServerError, "papers failed (405 ): why"),
        (410, "gone", ServerError, "papers failed (410 gone): why"),
        (401, "security_exception", ServerError, "http://host:9200 does not accept the credentials (why): set ELASTIC"),
        (403, "security_exception", ServerError, "papers denies access: why. To see which privileges are missing"),
        (
            403,
            "cluster_block_exception",
            ServerError,
            "papers does not accept changes: why. Somebody made it read-only. Lift the block",
        ),
        (429, "cluster_block_exception", ServerError, "papers does not accept changes: why"),
        (503, "cluster_block_exception", ServerError, "papers is too busy or not ready (503, why)"),
        (413, "", InvalidData, "papers refuses a request of this size: raise http.max_content_length"),
        (429, "x", ServerError, "papers is too busy or not ready (429, why): try again later"),
        (502, "x", ServerError, "papers is too busy or not ready (502, why)"),
        (504, "x", ServerError, "papers is too busy or not ready (504, why)"),
        (500, "node_closed_exception", ServerError, "papers is too busy or not ready (500, why)"),
        (500, "x", ServerError, "papers failed (500 x): why"),
        (501, "x", ServerError, "papers failed (501 x): why"),
        (499, "x", InvalidData, "papers refuses the request (499 x): why"),
        (400, "x", InvalidData, "papers refuses the request (400 x): why"),
    ],
)
def test_each_answer_has_its_words(status: int, type_: str, kind: type[CcheckError], said: str) -> None:
    error = from_response(status, body(type_), HERE, "papers")
    assert isinstance(error, kind) and error.exit_code == kind.exit_code and said in str(error)


def test_without_an_index_the_server_is_named() -> None:
    assert str(from_response(500, body("x"), HERE, None)).startswith("http://host:9200 failed (500 x)")


def test_an_index_full_of_fields_says_what_lifts_the_limit() -> None:
    full = body("illegal_argument_exception", "Limit of total fields [1000] has been exceeded")
    said = str(from_response(400, full, HERE, "papers-000001"))
    assert 'PUT papers-000001/_settings {"index.mapping.total_fields.limit": 2000}' in said


def failed_shard(cause: dict[str, str]) -> dict[str, Any]:
    """How a server says why a search failed."""
    shard = {"reason": {"type": "query_shard_exception", "reason": "failed to create query", "caused_by": cause}}
    return {"error": {"type": "search_phase_execution_exception", "failed_shards": [shard]}}


@pytest.mark.parametrize(
    "refused",
    [
        failed_shard({"type": "too_many_clauses", "reason": "any words"}),
        failed_shard({"type": "too_many_nested_clauses", "reason": "any words"}),
        body("circuit_breaking_exception", "Data too large, data for [query] would be [9/5b]"),
    ],
)
def test_too_many_clauses_are_the_claims_matter(refused: dict[str, Any]) -> None:
    for status in (400, 429, 500):
        error = from_response(status, refused, HERE, "papers")
        assert isinstance(error, InvalidData) and "the claim has too many words" in str(error)
        assert too_many_clauses(refused) and not may_pass(status, refused)


@pytest.mark.parametrize(
    "other",
    [
        body("x", "maxClauseCount is set to 1024"),
        body("circuit_breaking_exception", "Data too large, data for [request] would be [9/5b]"),
    ],
)
def test_other_refusals_are_not_the_claims_matter(other: dict[str, Any]) -> None:
    assert not too_many_clauses(other)


def test_licences() -> None:
    refused = {"error": {"type": "security_exception", "reason": "no", "license.expired.feature": "RRF"}}
    assert is_licence(refused) and is_licence({"error": {"caused_by": refused["error"]}})
    assert not is_licence(body("security_exception", "current license is non-compliant"))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({}, None),
        ({"timed_out": False, "_shards": {"failed": 0, "total": 2}}, None),
        ({"timed_out": True}, "stopped the search early"),
        (
            {"_shards": {"failed": 1, "total": 2, "failures": [{"reason": {"reason": "gone"}}]}},
            "1 of 2 shards failed (gone)",
        ),
        ({"_shards": {"failed": 1}}, "1 of ? shards failed (no reason given)"),
    ],
)
def test_answers_in_part(answer: dict[str, Any], said: str | None) -> None:
    for index, where in (("papers", "http://host:9200/papers "), (None, "http://host:9200 ")):
        if said is None:
            refuse_parts(answer, HERE, index)
            continue
        with pytest.raises(ServerError) as caught:
            refuse_parts(answer, HERE, index)
        assert said in str(caught.value) and str(caught.value).startswith(where)


def test_of_an_error_as_much_is_read_as_helps() -> None:
    """A server chooses how deep its errors are nested, and how many shards say the same."""
    nested: dict[str, Any] = {}
    for _ in range(300):
        nested = {"caused_by": nested}
    assert len(list(_errors({"error": nested}))) == 50
    shards = [{"reason": {"reason": f"shard {number}"}} for number in range(3)]
    assert reason_of({"error": {"type": "t", "reason": "all failed", "failed_shards": shards}}) == (
        "t",
        "all failed: shard 0",
    )
