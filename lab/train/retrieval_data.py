"""The data that retrieval models learn from: claims, documents, judgements and negatives, with claims held back to
measure on.

Two groups of claims are measured on. No document of the first is in training, neither as relevant nor as a negative.
This group chooses the best epoch. The second is held back claim by claim, as in most evaluations, and its documents may
have been trained on. Its figures are higher if a model remembers.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from ...core.errors import InvalidData, misfits
from ...core.types import Claim, Document
from ...ingest import Record
from ...ingest.rows import take_all
from ...pipeline.claims import read_claims
from ..measure.datasets import read_corpus, read_qrels
from ..measure.types import Qrels
from .options import RetrievalOptions, TrainingOptions
from .split import split_by_claim, split_by_document

UNSEEN = "by document"
"""The claims whose documents were not trained on."""
SEEN = "by claim"
"""The claims that were held back without regard to their documents."""


@dataclass(frozen=True, slots=True)
class RetrievalData:
    """`train` claims to learn from; `groups` of claims to measure on, by name, `UNSEEN` first if there is one.

    `hidden` are the documents that training must not see. `messages` say what was left out.
    """

    documents: Mapping[str, Document]
    qrels: Qrels
    train: tuple[Claim, ...]
    groups: Mapping[str, tuple[Claim, ...]]
    hidden: frozenset[str] = frozenset()
    messages: tuple[str, ...] = ()

    @property
    def chosen_by(self) -> tuple[Claim, ...]:
        """The claims that choose the best epoch; none if nothing is measured."""
        return next(iter(self.groups.values()), ())

    @property
    def visible(self) -> list[str]:
        """The ids of the documents that training may see, sorted."""
        return sorted(self.documents.keys() - self.hidden)

    def relevant(self, claim: Claim) -> list[str]:
        """The ids of the claim's relevant documents that the corpus has."""
        grades = self.qrels.get(str(claim.id), {})
        return [id_ for id_, grade in grades.items() if grade > 0 and id_ in self.documents]

    def judged_not(self, claim: Claim) -> list[str]:
        """The ids of documents that were judged not to be relevant to the claim."""
        grades = self.qrels.get(str(claim.id), {})
        return [id_ for id_, grade in grades.items() if grade <= 0 and id_ in self.documents]

    def digest(self) -> str:
        """Identifies the data, so that a training goes on with what it began with."""
        made = hashlib.sha256()
        for claim in self.train:
            made.update(json.dumps(["train", claim.id, claim.text]).encode())
        for name, claims in self.groups.items():
            made.update(json.dumps([name, [[claim.id, claim.text] for claim in claims]]).encode())
        for id_ in sorted(self.documents):
            document = self.documents[id_]
            made.update(json.dumps([id_, document.title, document.text, id_ in self.hidden]).encode())
        made.update(json.dumps({key: dict(sorted(value.items())) for key, value in self.qrels.items()}).encode())
        return made.hexdigest()


def retrieval_data(
    documents: Iterable[Document],
    claims: Sequence[Claim],
    qrels: Qrels,
    options: TrainingOptions | None = None,
    dev: tuple[Sequence[Claim], Qrels] | None = None,
) -> RetrievalData:
    """Put together what to train on and what to measure on; `dev` are claims to measure on, with their judgements.

    With a `dev_share` of 0, training uses all claims and nothing is measured. Otherwise, without `dev`, a `dev_share`
    of the claims is held out by document, and half that share of the others by claim (with `split = "claim"`, all of
    them by claim). Given claims form one group or two: those without a document in training, and all (with
    `split = "claim"`, only the latter).

    Raises InvalidData if no relevant document is in the corpus or too few claims are left.
    """
    options = options or TrainingOptions()
    share, seed = options.dev_share, options.seed
    by_id = {document.id: document for document in documents}
    messages: list[str] = []
    judged = _with_documents(claims, qrels, by_id, "claims", messages)
    if dev is not None:
        merged = {**qrels, **dev[1]}
        given = _with_documents(dev[0], merged, by_id, "claims to measure on", messages)
        whole = RetrievalData(by_id, merged, tuple(judged), {}, messages=tuple(messages))
        return _given(whole, given, apart=options.split == "document")
    if not share:
        messages.append(f"{len(judged)} claims to train on, and none to measure on")
        return RetrievalData(by_id, qrels, tuple(judged), {}, messages=tuple(messages))
    if options.split == "claim":
        one = split_by_claim(judged, share, seed)
        return RetrievalData(
            by_id, qrels, one.train_claims, {SEEN: one.dev_claims}, messages=(*messages, one.describe())
        )
    outer = split_by_document(judged, qrels, share, seed)
    inner = split_by_claim(outer.train_claims, share / 2, seed)
    messages.append(
        f"{outer.describe()}; {len(inner.dev_claims)} of the training claims are held back as well, by claim"
    )
    groups = {UNSEEN: outer.dev_claims, SEEN: inner.dev_claims}
    return RetrievalData(by_id, qrels, inner.train_claims, groups, outer.dev_documents, tuple(messages))


def _given(data: RetrievalData, dev: Sequence[Claim], *, apart: bool) -> RetrievalData:
    """With the claims `dev` to measure on. `apart`: those whose documents are not in training form a separate group,
    the first."""
    messages, qrels = list(data.messages), data.qrels
    ids = {claim.id for claim in dev}
    kept = [claim for claim in data.train if claim.id not in ids]
    if len(kept) < len(data.train):
        messages.append(f"{len(data.train) - len(kept)} claims are not trained on, because they are measured on")
    if not kept:
        raise InvalidData("no claims are left to train on: all of them are measured on")
    trained = {id_ for claim in kept for id_ in qrels[str(claim.id)]}
    unseen = tuple(claim for claim in dev if trained.isdisjoint(qrels[str(claim.id)]))
    hidden = frozenset(id_ for claim in dev for id_ in qrels[str(claim.id)]) - trained
    messages.append(
        f"{len(kept)} claims to train on, {len(dev)} to measure on. {len(unseen)} of these are about new documents only"
    )
    groups = {UNSEEN: unseen} if unseen and apart else {}
    if not apart or len(unseen) < len(dev):
        groups[SEEN] = tuple(dev)
    return replace(data, train=tuple(kept), groups=groups, hidden=hidden, messages=tuple(messages))


def _with_documents(
    claims: Sequence[Claim], qrels: Qrels, documents: Mapping[str, Document], what: str, messages: list[str]
) -> list[Claim]:
    """The claims that have a relevant document in the corpus."""
    found = [
        claim
        for claim in claims
        if any(grade > 0 and id_ in documents for id_, grade in qrels.get(str(claim.id), {}).items())
    ]
    if not found:
        none = f"none of the {len(claims)} {what} has a relevant document in the corpus"
        raise InvalidData(f"{none}. Check that the ids of corpus, claims and judgements match")
    if len(found) < len(claims):
        messages.append(f"{len(claims) - len(found)} of {len(claims)} {what} have no relevant document in the corpus")
    return found


@dataclass(frozen=True, slots=True)
class MinedNegatives:
    """The negatives of a claim and one of its relevant documents: ids, the hard ones best first."""

    hard: tuple[str, ...] = ()
    random: tuple[str, ...] = ()


class _Negative(BaseModel):
    model_config = ConfigDict(coerce_numbers_to_str=True)

    id: str
    score: float | None = None
    kind: Literal["hard", "random"] = "hard"


class _MinedRow(BaseModel):
    model_config = ConfigDict(coerce_numbers_to_str=True)

    claim_id: str
    positive_id: str | None = None
    negatives: list[_Negative]


def read_negatives(path: Path, documents: Mapping[str, Document]) -> dict[str, dict[str, MinedNegatives]]:
    """Reads what `ccheck mine` wrote: JSON Lines of `claim_id`, `positive_id` and `negatives`. Returns the negatives by
    claim, then by relevant document.

    A negative without a `kind` is a hard one; a row without `positive_id` is for all relevant documents of its claim,
    and found under "". Raises NotFound, or InvalidData with the line's number for an invalid row and for a document
    that the corpus lacks.
    """
    found: dict[str, dict[str, MinedNegatives]] = {}

    def take(record: Record, number: int) -> None:
        try:
            row = _MinedRow.model_validate(record.data)
        except ValidationError as error:
            raise InvalidData(f"not a row of ccheck mine ({misfits(error, 'the row')[0]})") from error
        if unknown := [one.id for one in row.negatives if one.id not in documents]:
            raise InvalidData(f"the corpus has no document {unknown[0]!r}. Mine negatives from this corpus")
        ordered = sorted(row.negatives, key=lambda one: -(one.score or 0.0))
        positive = row.positive_id or ""
        before = found.setdefault(row.claim_id, {}).get(positive, MinedNegatives())
        hard = [one.id for one in ordered if one.kind == "hard"]
        others = [one.id for one in row.negatives if one.kind == "random"]
        found[row.claim_id][positive] = MinedNegatives(
            tuple(dict.fromkeys([*before.hard, *hard])), tuple(dict.fromkeys([*before.random, *others]))
        )

    take_all(path, frozenset(), take)
    if not found:
        raise InvalidData(f"{path} contains no negatives")
    return found


def read_retrieval_data(
    corpus: str,
    claims: str,
    qrels: str,
    options: RetrievalOptions,
    *,
    dev_claims: str | None = None,
    dev_qrels: str | None = None,
) -> RetrievalData:
    """Reads the data to train and measure a retrieval model on. Its messages say what was left out.

    Raises NotFound, UsageError, MissingExtra (Parquet), or InvalidData.
    """
    documents, rejected = read_corpus(corpus, titles=options.titles)
    judged = read_qrels(qrels)
    dev = (read_claims(dev_claims), read_qrels(dev_qrels) if dev_qrels else judged) if dev_claims else None
    data = retrieval_data(documents.values(), read_claims(claims), judged, options, dev)
    left_out = f"{len(rejected):,} records of the corpus were left out. The first: {rejected[0]}" if rejected else ""
    return replace(data, messages=(left_out, *data.messages)) if left_out else data


# -- drawing negatives

_NOTHING = MinedNegatives()


@dataclass(frozen=True, slots=True)
class Drawn:
    """A claim, the id of a relevant document, and ids of negatives: the `hard` ones, then the `random` ones."""

    claim: Claim
    positive: str
    hard: tuple[str, ...]
    random: tuple[str, ...]

    @property
    def negatives(self) -> tuple[str, ...]:
        return (*self.hard, *self.random)


@dataclass(frozen=True, slots=True)
class Drawing:
    """How negatives are drawn: `hard` and `random` ones for each relevant document, as `RerankerOptions` has it.

    `hard_choice`: the first ones of the ranking, or any of its first `keep`. `negatives_from = "judged"`: only
    documents that were judged not to be relevant to some claim.
    """

    hard: int
    random: int
    hard_choice: Literal["top", "random"] = "top"
    keep: int | None = None
    negatives_from: Literal["corpus", "judged"] = "corpus"
    seed: int = 0


def draw_negatives(
    data: RetrievalData,
    claims: Sequence[Claim],
    how: Drawing,
    ranked: Mapping[str, Sequence[str]] | None = None,
    mined: Mapping[str, Mapping[str, MinedNegatives]] | None = None,
) -> list[Drawn]:
    """A row for each claim and relevant document; never with one that is relevant to the claim or hidden from training.

    `ranked` are the claims' rankings, best first. With `hard_choice = "top"`, and without a ranking, those that were
    judged not to be relevant to the claim come first, wherever they rank. With `negatives_from = "judged"`, another
    relevant document of a claim gets others of those that were judged for it (they take turns).

    With `mined`, what `read_negatives` read, a row's hard negatives are those mined for it and no others, and so are
    its random ones as far as they go.

    A row has fewer negatives than asked for if there are no more. Raises InvalidData if no row has any.
    """
    visible = set(data.visible)
    not_relevant = {id_ for claim in data.train for id_ in data.judged_not(claim)} & visible
    everything = sorted(not_relevant) if how.negatives_from == "judged" else data.visible
    rows = []
    for claim in claims:
        relevant = data.relevant(claim)
        kept_out = set(relevant)
        judged = [id_ for id_ in data.judged_not(claim) if id_ in visible]
        ranking = (ranked or {}).get(str(claim.id), ())
        order = list(ranking) if ranking and how.hard_choice == "random" else list(dict.fromkeys([*judged, *ranking]))
        if how.negatives_from == "judged":
            # What the claim's own labels say, in the ranking's order if there is one.
            order = list(ranking) or judged
            order = [id_ for id_ in order if id_ in not_relevant]
        found = [id_ for id_ in order if id_ in visible and id_ not in kept_out][: how.keep]
        for turn, positive in enumerate(relevant):
            # By the row's own words, so that one row more changes no other.
            draw = random.Random(f"{how.seed}:{claim.id}:{positive}")  # noqa: S311 - a sample, not a secret
            pool, given = found, _NOTHING
            if mined is not None:
                rows_of_claim = mined.get(str(claim.id), {})
                given = rows_of_claim.get(positive) or rows_of_claim.get("", _NOTHING)
                pool = [id_ for id_ in given.hard if id_ in visible and id_ not in kept_out]
            elif how.negatives_from == "judged" and not ranked and found:
                start = turn * how.hard % len(found)
                pool = [*found[start:], *found[:start]]
            chosen = draw.sample(pool, min(how.hard, len(pool))) if how.hard_choice == "random" else pool[: how.hard]
            taken = kept_out | set(chosen)
            others = [id_ for id_ in given.random if id_ in visible and id_ not in taken][: how.random]
            taken |= set(others)
            for _ in range(20 * how.random):
                if len(others) == how.random or not everything:
                    break
                id_ = draw.choice(everything)
                if id_ not in taken:
                    taken.add(id_)
                    others.append(id_)
            rows.append(Drawn(claim, positive, tuple(chosen), tuple(others)))
    if not any(row.negatives for row in rows) and how.hard + how.random:
        if how.negatives_from == "judged":
            add = "Add such judgements (a grade of 0, NOT_ENOUGH_INFO), or set negatives_from = 'corpus'"
            raise InvalidData(f"no document was judged not to be relevant to a claim to train on. {add}")
        raise InvalidData("the corpus is too small to train on: there are no documents that could serve as negatives")
    return rows


def once_per_claim(rows: Iterable[Drawn]) -> list[Drawn]:
    """The rows, in which only a claim's first one has negatives."""
    first: dict[str, Drawn] = {}
    return [
        row if first.setdefault(str(row.claim.id), row) is row else replace(row, hard=(), random=()) for row in rows
    ]


def describe(data: RetrievalData, rows: Iterable[Drawn]) -> str:
    """How many negatives of each kind the rows have."""
    counts: Counter[str] = Counter()
    for row in rows:
        judged = set(data.judged_not(row.claim))
        counts["hard"] += len(row.hard)
        counts["random"] += len(row.random)
        counts["judged"] += len(judged.intersection(row.negatives))
    return (
        f"{counts['hard']:,} hard and {counts['random']:,} random negatives; {counts['judged']:,} of them were judged "
        "not relevant to their claim"
    )
