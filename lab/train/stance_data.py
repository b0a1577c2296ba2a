"""The data of a stance training: labelled pairs to learn from, to choose the best epoch by, and to measure on."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...core.types import Claim
from ..measure.rows import StanceRow, StanceRows, read_rows
from .options import StanceOptions
from .retrieval_data import SEEN, UNSEEN
from .split import Split, split_by_claim, split_by_document

GIVEN = "those to choose by"
CHOOSE_SHARE = 0.1
CHOOSE_AT_LEAST = 150
CHOOSE_AT_MOST = 0.25
"""The share of the remaining pairs that chooses the best epoch: a tenth, or more of few pairs, since the F1 of 50 pairs
has a 95% interval of about .3."""


@dataclass(frozen=True, slots=True)
class StanceData:
    """Pairs to learn from, to choose the best epoch by (`dev`), and groups to measure on."""

    train: tuple[StanceRow, ...]
    dev: tuple[StanceRow, ...]
    groups: Mapping[str, tuple[StanceRow, ...]]
    messages: tuple[str, ...] = ()


def join_files(files: Sequence[StanceRows]) -> list[StanceRow]:
    """The rows of several files; ids of different files are different ones."""
    if len(files) == 1:
        return list(files[0].rows)
    return [
        replace(row, claim_id=f"{number}:{row.claim_id}", doc_id=f"{number}:{row.doc_id}")
        for number, file in enumerate(files, 1)
        for row in file.rows
    ]


def split_rows(
    rows: Sequence[StanceRow], kind: str, dev_share: float, seed: int
) -> tuple[list[StanceRow], list[StanceRow], Split]:
    """Rows to learn from and to measure on, of different claims and, by `document`, of different documents.

    Raises as `split_by_document`.
    """
    claims: dict[str, Claim] = {}
    qrels: dict[str, dict[str, float]] = {}
    for row in rows:
        claims.setdefault(row.claim_id, Claim(row.claim, row.claim_id))
        qrels.setdefault(row.claim_id, {})[row.doc_id] = 1.0
    of = list(claims.values())
    by_document = kind == "document"
    split = split_by_document(of, qrels, dev_share, seed) if by_document else split_by_claim(of, dev_share, seed)
    train, dev = ({claim.id for claim in part} for part in (split.train_claims, split.dev_claims))
    return [row for row in rows if row.claim_id in train], [row for row in rows if row.claim_id in dev], split


def without_leaks(rows: Sequence[StanceRow], dev: Sequence[StanceRow]) -> list[StanceRow]:
    """The rows whose claim and document are not among those of `dev`."""
    claims = {" ".join(row.claim.casefold().split()) for row in dev}
    documents = {row.doc_id for row in dev} | {row.text for row in dev}
    return [
        row
        for row in rows
        if " ".join(row.claim.casefold().split()) not in claims
        and row.doc_id not in documents
        and row.text not in documents
    ]


def stratified(rows: Sequence[StanceRow], share: float, seed: int) -> tuple[list[StanceRow], list[StanceRow]]:
    """The rows without, and with, a share of the pairs of each label, at least one; in their order."""
    places: dict[str, list[int]] = {}
    for place, row in enumerate(rows):
        places.setdefault(row.label, []).append(place)
    draw = random.Random(seed)  # noqa: S311 - a split, not a secret
    held = {
        place
        for label in sorted(places)
        for place in draw.sample(places[label], max(1, round(share * len(places[label]))))
    }
    return [row for i, row in enumerate(rows) if i not in held], [row for i, row in enumerate(rows) if i in held]


def stance_data(
    rows: Sequence[StanceRow],
    options: StanceOptions,
    dev: Sequence[StanceRow] = (),
    test: Sequence[StanceRow] = (),
) -> StanceData:
    """The pairs to train on, to choose the best epoch on (`dev`) and to measure on (`test`).

    Without `test`, `dev` is measured on; without both, a test group is split off. A split by document adds a second
    group, by claim alone, which tells learning from remembering. Without `dev`, it is split off the rest; after a
    split by pair, it is the test group.

    Raises InvalidData if too little is left.
    """
    messages: list[str] = []
    left = list(rows)
    groups: dict[str, tuple[StanceRow, ...]] = {}
    held = [*dev, *test]
    if held:
        kept = without_leaks(left, held)
        if len(kept) < len(left):
            messages.append(
                f"{len(left) - len(kept):,} pairs are not trained on, because their claim or document is measured on"
            )
        left = kept
    if test:
        groups[UNSEEN] = tuple(test)
    elif dev:
        groups[GIVEN] = tuple(dev)
    elif options.split == "pair":
        left, dev = stratified(left, options.dev_share, options.seed)
        groups[GIVEN] = tuple(dev)
        messages.append(
            f"{len(left):,} pairs to train on, {len(dev):,} to choose the best epoch on, drawn label by label. Their "
            "claims and documents may be in training"
        )
    else:
        left, unseen, split = split_rows(left, options.split, options.dev_share, options.seed)
        groups[UNSEEN if options.split == "document" else SEEN] = tuple(unseen)
        messages.append(split.describe())
        if options.split == "document":
            left, seen, _ = split_rows(left, "claim", options.dev_share / 2, options.seed)
            groups[SEEN] = tuple(seen)
            messages.append(f"{len(seen):,} more pairs are measured on, by claim. Their documents may be in training")
    if not dev and options.split == "pair":
        left, dev = stratified(left, options.dev_share, options.seed)
    if not dev:
        share = min(CHOOSE_AT_MOST, max(CHOOSE_SHARE, CHOOSE_AT_LEAST / max(1, len(left))))
        left, chosen, split = split_rows(left, options.split, share, options.seed + 1)
        dev = chosen
    return StanceData(tuple(left), tuple(dev), groups, tuple(messages))


def read_stance_data(
    train: Sequence[str],
    options: StanceOptions,
    *,
    dev: str | None = None,
    test: str | None = None,
    corpus: str | None = None,
    notify: Callable[[str], None] = lambda message: None,
) -> StanceData:
    """Reads the data to train and measure a stance model on. `notify` is told what each file of `train` holds.

    Raises NotFound, MissingExtra (Parquet), or InvalidData.
    """
    files = [read_rows(file, corpus) for file in train]
    for file, rows in zip(train, files, strict=True):
        notify(f"{file}: {rows.describe()}")
    return stance_data(
        join_files(files),
        options,
        read_rows(dev, corpus).rows if dev else (),
        read_rows(test, corpus).rows if test else (),
    )
