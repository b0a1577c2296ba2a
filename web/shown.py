"""What a page shows of a recorded check: the texts of its documents, and those that pass the page's filters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..core.answers import result_of
from ..core.errors import CcheckError, Incomplete
from ..core.types import Claim, Document, Evidence, Result
from ..ingest.documents import FILE_HASH
from ..service import Check, Service
from ..service.pairs import is_as_shown
from .page import plainly, told

MOST_VALUES, LONGEST_VALUE = 20, 80
CITED = frozenset(
    {"title", "doi", "url", "year", "authors", "author", "first_author", "abstract", "id", "pmid", FILE_HASH}
)
"""Fields that say which paper it is, and not of what kind."""


def readable(check: Check) -> Result:
    """The result of a check that is not running, as it was recorded: its documents have no texts."""
    if check.result is not None:
        return result_of(told(check.result))
    recipe, store = (str(check.settings.get(name, "")) for name in ("recipe", "store"))
    return Result(
        Claim(check.claim), (), None, recipe, store, error=Incomplete(plainly(check.error or "it was not done"))
    )


def with_texts(result: Result, service: Service) -> Result:
    """A recorded result with the texts of its documents, as far as the store still has them as they were."""
    try:
        found = service.documents([one.document.id for one in result.evidence])
    except CcheckError:
        return result  # its sentences are shown alone
    return replace(result, evidence=tuple(_with_text(one, found.get(one.document.id)) for one in result.evidence))


def _with_text(evidence: Evidence, document: Document | None) -> Evidence:
    if document is None or not is_as_shown(evidence, document):
        return evidence
    return replace(evidence, hit=replace(evidence.hit, document=replace(evidence.document, text=document.text)))


def choices(documents: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[tuple[str, int]]]]:
    """Metadata to filter by: each field of which the documents have several short values, with their counts."""
    values: dict[str, Counter[str]] = {}
    for one in documents:
        for name, value in one["evidence"].document.metadata.items():
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, str | bool) and len(str(each)) <= LONGEST_VALUE and name.lower() not in CITED:
                    values.setdefault(name, Counter())[str(each)] += 1
    return [(name, found.most_common()) for name, found in sorted(values.items()) if 1 < len(found) <= MOST_VALUES]


def filtered(documents: Sequence[Mapping[str, Any]], query: Mapping[str, str]) -> list[Mapping[str, Any]]:
    """The documents that pass a page's parameters: `stance`, years `from` and `to`, `field` as `NAME=VALUE`."""
    name, equals, wanted = query["field"].partition("=")

    def passes(one: Mapping[str, Any]) -> bool:
        evidence = one["evidence"]
        label = evidence.stance.label if evidence.stance is not None else None
        if query["stance"] and (label or "NONE") != query["stance"]:
            return False
        year = one["year"][:4]
        if query["from"].isdecimal() and not (year.isdecimal() and int(year) >= int(query["from"][:9])):
            return False
        if query["to"].isdecimal() and not (year.isdecimal() and int(year) <= int(query["to"][:9])):
            return False
        value = evidence.document.metadata.get(name)
        return not equals or wanted in map(str, value if isinstance(value, list) else [value])

    return [one for one in documents if passes(one)]
