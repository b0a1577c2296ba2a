"""The findings of `ccheck doctor` about a server, and about what a key or user may do there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from typing import Any, Final

from ... import es_mappings
from ...core.errors import CcheckError, ServerError
from .client import Client
from .companion import PREFIX, may_have_one
from .connection import Connection
from .errors import Denied
from .mappings import OURS
from .ownership import policy_problem

ENRICHING: Final = "make a companion"
WORK: Final = (
    ("reader", False, "search"),
    ("reader", True, "search a companion"),
    ("enricher", False, "write to the store"),
    ("enricher", True, ENRICHING),
    ("administrator", False, "create, migrate or delete indices"),
    ("recorder", False, "keep the record of checks"),
)
"""The purposes that a key can have: the name of the role's file, whether it is about a companion, and in words."""
NATIVE_LICENCES = ("trial", "enterprise")
OLDEST = (8, 19)

Finding = tuple[str, bool, str]
"""The part that was looked at, whether it is well, and what was found."""


def diagnose(connection: Connection, index: str | None = None) -> Iterator[Finding]:
    """The server's version, licence and health, and what the key may do with an index, with its life cycle policy.

    A failure is a finding; nothing is raised.
    """
    try:
        with closing(Client(connection)) as client:
            try:
                yield _version(client.request("GET", "/", patient=False), connection)
            except Denied:  # a key that may only search is fine
                yield "elasticsearch", True, f"{connection.url}: this key or user can't see its version"
            for part, path, read in (("licence", "/_license", _licence), ("cluster", "/_cluster/health", _health)):
                try:
                    yield part, *read(client.request("GET", path, patient=False))
                except Denied:
                    yield part, True, "unknown: this key or user lacks the cluster privilege monitor"
                except (CcheckError, KeyError) as error:
                    yield part, not isinstance(error, ServerError), f"unknown ({error})"
            if index is not None:
                yield from _of_index(client, index)
    except CcheckError as error:
        yield "elasticsearch", False, str(error)


def _of_index(client: Client, index: str) -> Iterator[Finding]:
    described: dict[str, Any] = {}
    with suppress(CcheckError):  # the store's own check says that it is not there
        described = client.on_index("GET", index, patient=False)
    yield _privileges(client, index, described)
    for concrete, found in described.items():
        if problem := policy_problem(client, concrete, found):
            yield "life cycle", False, problem


def _privileges(client: Client, index: str, described: dict[str, Any]) -> Finding:
    """A key that can search is fine. The detail says what else it can't do, and what to grant."""
    theirs = any(OURS not in one.get("mappings", {}).get("_meta", {}) for one in described.values())
    companions = theirs and may_have_one(index)
    wanted = [(role, work, _for(role, index, its)) for role, its, work in WORK if companions or not its]
    behind = {"names": [*described], "privileges": ["read"]}
    for _, work, needed in wanted:
        if work == ENRICHING:  # it reads the index behind an alias
            needed["indices"].append(behind)
    body = {
        "cluster": sorted({one for _, _, role in wanted for one in role["cluster"]}),
        "index": [entry for _, _, role in wanted for entry in role["indices"]] + [behind] * bool(described),
    }
    try:
        answer = client.request("POST", "/_security/user/_has_privileges", body, patient=False)
        lacking = [list(_lacks(needed, answer)) for _, _, needed in wanted]
        fusing = ", ".join(_lacks({"cluster": [], "indices": [behind]}, answer))
    except (CcheckError, KeyError, TypeError, AttributeError):
        return "privileges", True, "unknown: the server has no security, or does not say"
    said = [
        f"can't {work}: grant {'; '.join(lacks)} (es_mappings/roles/{role}.json)" if lacks else f"can {work}"
        for (role, work, _), lacks in zip(wanted, lacking, strict=True)
    ]
    if fusing and not lacking[0]:
        grant = fusing if theirs else f"read on {index}-*"
        said.append(f"ccheck joins rankings itself: for the server's rrf, grant {grant}")
    return "privileges", not lacking[0], "; ".join(said)


def _version(answer: dict[str, Any], connection: Connection) -> Finding:
    version = answer["version"]
    number, flavour = str(version["number"]), version.get("build_flavor", "default")
    found = f"{connection.url}: Elasticsearch {number}" + (f" ({flavour})" if flavour != "default" else "")
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


def _for(role: str, index: str, companions: bool) -> dict[str, Any]:
    """Returns a role's privileges on this store, or on its companion."""
    found = es_mappings.role(role, index)
    return found | {"indices": [one for one in found["indices"] if companions == one["names"][0].startswith(PREFIX)]}


def _lacks(role: Mapping[str, Any], answer: Mapping[str, Any]) -> Iterator[str]:
    """Yields the privileges that are lacking, in words, on the cluster and on the indices."""
    if missing := [name for name in role["cluster"] if not answer["cluster"][name]]:
        yield f"{', '.join(missing)} on the cluster"
    for entry in role["indices"]:
        lacking: dict[str, list[str]] = {}
        for name in entry["names"]:
            if missing := [one for one in entry["privileges"] if not answer["index"][name][one]]:
                lacking.setdefault(", ".join(missing), []).append(name)
        yield from (f"{privileges} on {' and '.join(names)}" for privileges, names in lacking.items())
