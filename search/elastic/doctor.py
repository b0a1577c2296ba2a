"""What `ccheck doctor` says of a server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from ...errors import CcheckError
from .client import Client
from .connection import Connection
from .errors import Denied
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
            yield "elasticsearch", True, f"{connection.name}: this key or user may not ask for its version"
        except CcheckError as error:
            yield "elasticsearch", False, str(error)
            return
        for part, path, read in (("licence", "/_license", _licence), ("cluster", "/_cluster/health", _health)):
            try:
                yield part, *read(client.request("GET", path, patient=False))
            except (CcheckError, KeyError) as error:
                # A key that may only search is fine.
                yield part, True, f"not known ({error}); the first search tries the server's rrf"
        if index is not None:
            yield _privileges(client, index)
            yield from _policy(client, index)
    finally:
        client.close()


def _privileges(client: Client, index: str) -> Finding:
    """Whoever may search is well; what else the key may not do is said, with what to grant."""
    found = allowed(client, index)
    if found is None:
        return "privileges", True, "not known: the server has no security, or does not say"
    readers = next(one for one in found if one.role == "reader")
    return "privileges", not readers.lacks, "; ".join(one.said for one in found)


def _policy(client: Client, index: str) -> Iterator[Finding]:
    try:
        described = client.request("GET", f"/{quote(index, safe='')}", index=index, patient=False)
        for concrete, found in described.items():
            if problem := policy_problem(client, concrete, found):
                yield "life cycle", False, problem
    except (CcheckError, AttributeError):
        return  # what is wrong with the store, its own check says


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
    status = answer["status"]
    return status != "red", f"{answer['cluster_name']} is {status}, {answer['number_of_data_nodes']} data nodes"
