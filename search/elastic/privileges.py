"""What a key or user may do with a store, and what to grant it: compared with the roles in es_mappings/roles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ... import es_mappings
from ...errors import CcheckError
from .client import Client

ROLES: Final = {
    "reader": "search",
    "enricher": "ingest or enrich",
    "administrator": "create, migrate or delete indices",
}
"""The roles by the names of their files, with what they are for."""
STORE: Final = "papers"
"""The store that the files name."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """Whether a role's work is allowed, and which privileges it lacks, by index or the cluster."""

    role: str
    lacks: Mapping[str, tuple[str, ...]]

    @property
    def said(self) -> str:
        """In words, with what to grant."""
        doing = ROLES[self.role]
        if not self.lacks:
            return f"may {doing}"
        lacking = "; ".join(f"{', '.join(names)} on {where}" for where, names in self.lacks.items())
        return f"may not {doing}: grant {lacking} (es_mappings/roles/{self.role}.json)"


def allowed(client: Client, index: str) -> list[Allowed] | None:
    """What the key or user may do with this store; None where the server has no security, or does not say."""
    wanted = {role: _for(es_mappings.read(f"roles/{role}"), index) for role in ROLES}
    body = {
        "cluster": sorted({one for role in wanted.values() for one in role["cluster"]}),
        "index": [
            {"names": entry["names"], "privileges": entry["privileges"]}
            for role in wanted.values()
            for entry in role["indices"]
        ],
    }
    try:
        answer = client.request("POST", "/_security/user/_has_privileges", body, patient=False)
        return [Allowed(role, dict(_lacks(one, answer))) for role, one in wanted.items()]
    except (CcheckError, KeyError, TypeError, AttributeError):
        return None


def _for(role: Mapping[str, Any], index: str) -> dict[str, Any]:
    """The role with this store's names in the place of papers."""
    entries = [
        {**entry, "names": [index + name.removeprefix(STORE) for name in entry["names"]]} for entry in role["indices"]
    ]
    return {**role, "indices": entries}


def _lacks(role: Mapping[str, Any], answer: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, ...]]]:
    if missing := tuple(name for name in role["cluster"] if not answer["cluster"][name]):
        yield "the cluster", missing
    for entry in role["indices"]:
        by_names = {
            name: tuple(one for one in entry["privileges"] if not answer["index"][name][one]) for name in entry["names"]
        }
        for missing in dict.fromkeys(filter(None, by_names.values())):
            yield " and ".join(name for name, lacking in by_names.items() if lacking == missing), missing
