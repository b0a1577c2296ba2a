"""Compares the rights of a key or user on a store with the roles in es_mappings/roles, and says what to grant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ... import es_mappings
from ...core.errors import CcheckError
from .client import Client
from .companion import PREFIX

WORK: Final = (
    ("reader", False, "search"),
    ("reader", True, "search a companion"),
    ("enricher", False, "write to the store"),
    ("enricher", True, "make a companion"),
    ("administrator", False, "create, migrate or delete indices"),
)
"""The purposes that a key can have: the name of the role's file, whether it is about a companion, and in words."""
STORE: Final = "papers"
"""The store that the files name."""


@dataclass(frozen=True, slots=True)
class Allowed:
    """Whether a role's work is allowed, and which privileges it lacks, by index or the cluster."""

    role: str
    work: str
    lacks: Mapping[str, tuple[str, ...]]

    @property
    def said(self) -> str:
        """In words, with what to grant."""
        if not self.lacks:
            return f"can {self.work}"
        lacking = "; ".join(f"{', '.join(names)} on {where}" for where, names in self.lacks.items())
        return f"can't {self.work}: grant {lacking} (es_mappings/roles/{self.role}.json)"


def allowed(client: Client, index: str, companions: bool = False) -> list[Allowed] | None:
    """Returns what the key or user may do with this store, and with its companion if `companions`. Searching is first.

    None if the server has no security, or does not say.
    """
    wanted = [(role, work, _for(role, index, its)) for role, its, work in WORK if companions or not its]
    body = {
        "cluster": sorted({one for _, _, role in wanted for one in role["cluster"]}),
        "index": [
            {"names": entry["names"], "privileges": entry["privileges"]}
            for _, _, role in wanted
            for entry in role["indices"]
        ],
    }
    try:
        answer = client.request("POST", "/_security/user/_has_privileges", body, patient=False)
        return [Allowed(role, work, dict(_lacks(needed, answer))) for role, work, needed in wanted]
    except (CcheckError, KeyError, TypeError, AttributeError):
        return None


def _for(role: str, index: str, companions: bool) -> dict[str, Any]:
    """Returns a role's privileges on this store, or on its companion, with this store's names in place of papers."""
    found = es_mappings.read(f"roles/{role}")
    entries = [
        {**entry, "names": [name.replace(STORE, index, 1) for name in entry["names"]]}
        for entry in found["indices"]
        if companions == entry["names"][0].startswith(PREFIX)
    ]
    return {"cluster": found["cluster"], "indices": entries}


def _lacks(role: Mapping[str, Any], answer: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, ...]]]:
    if missing := tuple(name for name in role["cluster"] if not answer["cluster"][name]):
        yield "the cluster", missing
    for entry in role["indices"]:
        by_names = {
            name: tuple(one for one in entry["privileges"] if not answer["index"][name][one]) for name in entry["names"]
        }
        for missing in dict.fromkeys(filter(None, by_names.values())):
            yield " and ".join(name for name, lacking in by_names.items() if lacking == missing), missing
