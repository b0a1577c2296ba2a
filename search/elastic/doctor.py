"""The findings of `ccheck doctor` about a server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...core.errors import CcheckError
from .client import Client
from .companion import may_have_one
from .connection import Connection
from .errors import Denied
from .mappings import OURS
from .ownership import policy_problem
from .privileges import allowed

NATIVE_LICENCES = ("trial", "enterprise")
OLDEST = (8, 19)

Finding = tuple[str, bool, str]
"""The part that was looked at, whether it is well, and what was found."""


def diagnose(connection: Connection, index: str | None = None) -> Iterator[Finding]:
    """The server's version, licence and health, and what the key may do with an index, with its life cycle policy.

    A failure is a finding; nothing is raised.
    """
    try:
        client = Client(connection)
    except CcheckError as error:
        yield "elasticsearch", False, str(error)
        return
    try:
        try:
            yield _version(client.request("GET", "/", patient=False), connection)
        except Denied:
            yield "elasticsearch", True, f"{connection.name}: this key or user lacks the privilege to see its version"
        except CcheckError as error:
            yield "elasticsearch", False, str(error)
            return
        for part, path, read, then in (
            ("licence", "/_license", _licence, ". The first search tries the server's rrf"),
            ("cluster", "/_cluster/health", _health, ""),
        ):
            try:
                yield part, *read(client.request("GET", path, patient=False))
            except Denied:  # a key that may only search is fine
                yield part, True, f"unknown: this key or user lacks the cluster privilege monitor{then}"
            except (CcheckError, KeyError) as error:
                yield part, True, f"unknown ({error}){then}"
        if index is not None:
            described = _described(client, index)
            yield _privileges(client, index, described)
            for concrete, found in described.items():
                if problem := policy_problem(client, concrete, found):
                    yield "life cycle", False, problem
    finally:
        client.close()


def _described(client: Client, index: str) -> dict[str, Any]:
    """Every index behind the name; none if that is not available, which the store's own check says."""
    try:
        return client.on_index("GET", index, "", patient=False)
    except CcheckError:
        return {}


def _privileges(client: Client, index: str, described: dict[str, Any]) -> Finding:
    """A key that can search is fine. The detail says what else it can't do, and what to grant."""
    theirs = any(OURS not in one.get("mappings", {}).get("_meta", {}) for one in described.values())
    found = allowed(client, index, companions=theirs and may_have_one(index))
    if found is None:
        return "privileges", True, "unknown: the server has no security, or does not say"
    return "privileges", not found[0].lacks, "; ".join(one.said for one in found)


def _version(answer: dict[str, Any], connection: Connection) -> Finding:
    version = answer["version"]
    number, flavour = str(version["number"]), version.get("build_flavor", "default")
    found = f"{connection.name}: Elasticsearch {number}" + (f" ({flavour})" if flavour != "default" else "")
    major, minor = (int(part) for part in number.split(".")[:2])
    if (major, minor) < OLDEST:
        return "elasticsearch", False, f"{found}; ccheck needs {OLDEST[0]}.{OLDEST[1]} or later"
    return "elasticsearch", True, found


def _licence(answer: dict[str, Any]) -> tuple[bool, str]:
    licence = answer["license"]
    if licence["type"] in NATIVE_LICENCES and licence["status"] == "active":
        return True, f"{licence['type']}: the server can join rankings with its own rrf"
    return True, f"{licence['type']}, {licence['status']}: ccheck joins the rankings itself, with the same result"


def _health(answer: dict[str, Any]) -> tuple[bool, str]:
    status, nodes = answer["status"], answer["number_of_data_nodes"]
    return status != "red", f"{answer['cluster_name']} is {status}, {nodes} data node{'s' * (nodes != 1)}"
