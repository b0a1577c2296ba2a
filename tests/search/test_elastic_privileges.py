"""What doctor says of privileges and life cycle policies. A stub answers as a server with security and ILM does.

The test node has neither: what is tested is what ccheck asks and how it reads documented answers.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from elastic_stub import MAPPING, Stub

from ccheck.core.errors import InvalidData
from ccheck.core.layout import Layout
from ccheck.search.elastic import Connection, ElasticStore, diagnose

ASKS = ("POST", "/_security/user/_has_privileges")
POLICY = {"hot": {"actions": {"rollover": {"max_age": "30d"}}}, "delete": {"actions": {"delete": {}}}}


def granting(index: dict[str, list[str]], cluster: tuple[str, ...] = ()) -> Any:
    """The answer to whoever has these privileges, to any question."""

    def answer(body: bytes) -> tuple[int, Any]:
        asked = json.loads(body)
        found: dict[str, dict[str, bool]] = {}
        for entry in asked["index"]:
            for name in entry["names"]:
                had = {one: one in index.get(name, ()) for one in entry["privileges"]}
                found[name] = found.get(name, {}) | had
        return 200, {"cluster": {one: one in cluster for one in asked["cluster"]}, "index": found}

    return answer


def found(stub: Stub, part: str, index: str = "articles") -> list[tuple[bool, str]]:
    stub.answers.setdefault(("GET", "/"), [(200, {"version": {"number": "9.5.3"}})])
    return [(ok, said) for name, ok, said in diagnose(Connection(stub.url), index) if name == part]


def test_what_a_key_may_not_do_and_what_to_grant(stub: Stub) -> None:
    denied = {"error": {"type": "security_exception", "reason": "unauthorized"}, "status": 403}
    stub.answers["GET", "/"] = [(403, denied)]
    read = ["read", "view_index_metadata"]
    stub.answers[ASKS] = [granting({"articles": [*read, "write"], "articles-*": read})]
    ((ok, said),) = found(stub, "privileges")
    assert ok and said.startswith("can search; can't write to the store: grant monitor, maintenance, indices:admin/")
    assert "on articles; monitor, maintenance, write, indices:admin/mapping/put on articles-* (es_mappings" in said
    assert "companion" not in said
    assert "read_ilm on the cluster" in said and "delete_index" in said
    assert found(stub, "elasticsearch")[0][0]  # who may only search may not ask for the version
    stub.answers[ASKS] = [granting({})]
    ((ok, said),) = found(stub, "privileges")
    assert not ok and said.startswith("can't search: grant read, view_index_metadata on articles (")


def test_a_server_without_security(stub: Stub) -> None:
    reason = "no handler found for uri [/_security/user/_has_privileges] and method [POST]"
    stub.answers[ASKS] = [(400, {"error": reason, "status": 400})]
    assert found(stub, "privileges") == [(True, "unknown: the server has no security, or does not say")]


@pytest.mark.parametrize(
    ("policy", "lifecycle", "said"),
    [
        ((200, {"hot-warm": {"policy": {"phases": POLICY}}}), {}, "with delete and rollover"),
        ((200, {"hot-warm": {"policy": {"phases": POLICY}}}), {"indexing_complete": "true"}, "with delete, which"),
        ((200, {"hot-warm": {"policy": {"phases": {"warm": {"actions": {"forcemerge": {}}}}}}}), {}, None),
        ((403, {"error": {"type": "security_exception"}, "status": 403}), {}, "grant the cluster privilege read_ilm"),
    ],
)
def test_a_policy_that_takes_the_store_apart_is_refused(
    stub: Stub, policy: Any, lifecycle: dict[str, str], said: str | None
) -> None:
    settings = {"index": {"uuid": "u-1", "lifecycle": {"name": "hot-warm", **lifecycle}}}
    described = {"papers-000001": MAPPING["papers-000001"] | {"settings": settings}}
    stub.answers["GET", "/papers"] = [(200, described)]
    stub.answers["GET", "/_ilm/policy/hot-warm"] = [policy]
    with ElasticStore(Connection(stub.url), "papers") as store:
        if said is None:
            store.prepare(Layout())
            return
        with pytest.raises(InvalidData, match=said):
            store.prepare(Layout())
    assert not [one for one in stub.seen if one.method == "PUT"]
    ((ok, problem),) = found(stub, "life cycle", "papers")
    assert not ok and "POST papers-000001/_ilm/remove" in problem
