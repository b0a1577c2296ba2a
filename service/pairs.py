"""Corrections as labelled pairs, and whether the store still has what a check showed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from more_itertools import chunked

from ..core.answers import result_of
from ..core.citation import stands_in
from ..core.types import Document, Evidence
from .record import NO_STANCES, UNLABELLED, Record
from .types import Check, Correction, Wanted, standing

PAGE = 500
"""How many checks are read at a time."""


def is_as_shown(evidence: Evidence, document: Document) -> bool:
    """Whether a document has the title and the sentences that a check showed of it."""
    same = document.title == evidence.document.title
    return same and all(stands_in(document, one) for one in evidence.sentences)


def labelled_pairs(
    record: Record, get: Callable[[Sequence[str]], Mapping[str, Document]], notify: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """Corrections as labelled pairs, as `ccheck evaluate --pairs` and `ccheck train stance` read them.

    There is one for each claim and document that people gave a label, if the document is still as they saw it. The last
    correction that stands counts, whichever check of the claim it is of. "not relevant" is
    NOT_ENOUGH_INFO. At the end `notify` is told what was left out and why, and how often people disagree.
    """
    page = Wanted(limit=PAGE, corrected=True)
    said: dict[tuple[str, str], list[Correction]] = defaultdict(list)
    shown: dict[Correction, Evidence | None] = {}
    left_out, disputed = Counter[str](), 0
    while some := record.list(page):
        for check in some:
            answered = () if check.result is None else result_of(check.result).evidence
            evidence = {one.document.id: one for one in answered}
            for one in check.corrections:
                if one.doc_id is not None and (one.label not in NO_STANCES or one.what in UNLABELLED):
                    said[check.claim, one.doc_id].append(one)
                    shown[one] = None if _remade(check, one) else evidence.get(one.doc_id)
                elif one.doc_id is None and one.what != "withdrawn":
                    left_out["correction is of a verdict, and not of a paper"] += 1
        page = replace(page, before=some[-1].created, after=some[-1].id)
    held = ((pair, standing(sorted(found, key=lambda one: one.created))) for pair, found in said.items())
    for pairs in chunked((one for one in held if one[1]), PAGE):
        documents = get(list({doc_id for (_, doc_id), _ in pairs}))
        for (claim, doc_id), corrections in pairs:
            document, seen = documents.get(doc_id), shown[corrections[-1]]
            if document is None:
                left_out["document is gone"] += 1
            elif seen is None:
                left_out["check was made again since"] += 1
            elif not is_as_shown(seen, document):
                left_out["document has changed since the check"] += 1
            else:
                about = {"doc_id": doc_id, "title": document.title, "text": document.text}
                yield {"claim": claim, **about, "label": _label(corrections[-1])}
                disputed += len(set({one.user: _label(one) for one in corrections}.values())) > 1
    if left_out:
        notify("left out: " + ", ".join(f"{number:,} whose {why}" for why, number in left_out.items()))
    if disputed:
        notify(f"labelled differently by different people: {disputed:,}. The last label counts")


def _remade(check: Check, correction: Correction) -> bool:
    """Whether the check may show another text than the corrected one did, of a store whose state nobody knows."""
    return check.settings.get("generation") is None and correction.created < check.created


def _label(correction: Correction) -> str | None:
    return "NOT_ENOUGH_INFO" if correction.what == "not relevant" else correction.label
