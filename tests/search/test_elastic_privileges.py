"""What doctor says of privileges and life cycle policies. A stub answers as a server with security and ILM does.

The test node has neither: what is tested is what ccheck asks and how it reads documented answers.
"""

from __future__ import annotations

from typing import Any

import pytest
from elastic_stub import MAPPING, Stub

from ccheck.core.errors import InvalidData
from ccheck.core.layout import Layout
from ccheck.search.elastic import Connection, ElasticStore, diagnose

ASKS = ("POST", "/_security/user/_has_privileges")
POLICY = {"hot": {"actions": {"rollover": {"max_age": "30d"}}}, "delete": {"actions": {"delete": {}}}}


def found(stub: Stub, part: str, index: str = "articles") -> list[tuple[bool, str]]:
    stub.answers.setdefault(("GET", "/"), [(200, {"version": {"number": "9.5.3"}})])
    return [(ok, said) for name, ok, said in diagnose(Connection(stub.url), index) if name == part]


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
