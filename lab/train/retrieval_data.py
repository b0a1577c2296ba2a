"""The data that retrieval models learn from: claims, documents and judgements, with claims held back to measure on.

Two groups of claims are measured on. No document of the first is in training, neither as relevant nor as a negative.
This group chooses the best epoch. The second is held back claim by claim, as in most evaluations, and its documents may
have been trained on. Its figures are higher if a model remembers.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ...core.analysis import clean, sentence_spans
from ...core.errors import InvalidData, NotFound
from ...core.types import Claim, Document, Result
from .split import split_by_claim, split_by_document

Qrels = Mapping[str, Mapping[str, int]]
UNSEEN = "by document"
"""The claims whose documents were not trained on."""
SEEN = "by claim"
"""The claims that were held back without regard to their documents."""


class Checks(Protocol):
    """The methods of a `Checker` that a training uses."""

    def check_many(self, claims: Iterable[Claim], *, k: int) -> Iterator[Result]: ...


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
    *,
    dev_claims: Sequence[Claim] | None = None,
    dev_qrels: Qrels | None = None,
    split: str = "document",
    dev_share: float = 0.2,
    seed: int = 0,
) -> RetrievalData:
    """Put together what to train on and what to measure on.

    With a `dev_share` of 0, training uses all claims and nothing is measured. Otherwise, without `dev_claims`, a
    `dev_share` of the claims is held out by document, and half as many of the others by claim (with `split = "claim"`,
    all of them by claim). Given `dev_claims` form one group or two: those without a document in training, and all (with
    `split = "claim"`, only the latter).

    Raises InvalidData if no relevant document is in the corpus or too few claims are left.
    """
    by_id = {document.id: document for document in documents}
    messages: list[str] = []
    judged = _with_documents(claims, qrels, by_id, "claims", messages)
    if dev_claims is not None:
        merged = {**qrels, **(dev_qrels if dev_qrels is not None else qrels)}
        dev = _with_documents(dev_claims, merged, by_id, "claims to measure on", messages)
        return _given(by_id, merged, judged, dev, messages, apart=split == "document")
    if not dev_share:
        messages.append(f"{len(judged)} claims to train on, and none to measure on")
        return RetrievalData(by_id, qrels, tuple(judged), {}, messages=tuple(messages))
    if split == "claim":
        one = split_by_claim(judged, qrels, dev_share, seed)
        return RetrievalData(
            by_id, qrels, one.train_claims, {SEEN: one.dev_claims}, messages=(*messages, one.describe())
        )
    outer = split_by_document(judged, qrels, dev_share, seed)
    inner = split_by_claim(outer.train_claims, qrels, dev_share / 2, seed)
    messages.append(
        f"{outer.describe()}; {len(inner.dev_claims)} of the training claims are held back as well, by claim"
    )
    groups = {UNSEEN: outer.dev_claims, SEEN: inner.dev_claims}
    return RetrievalData(by_id, qrels, inner.train_claims, groups, outer.dev_documents, tuple(messages))


def _given(
    documents: Mapping[str, Document],
    qrels: Qrels,
    train: Sequence[Claim],
    dev: Sequence[Claim],
    messages: list[str],
    *,
    apart: bool,
) -> RetrievalData:
    """`apart`: claims whose documents are not in training form a separate group, the first."""
    ids = {claim.id for claim in dev}
    kept = [claim for claim in train if claim.id not in ids]
    if len(kept) < len(train):
        messages.append(f"{len(train) - len(kept)} claims are not trained on, because they are measured on")
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
    return RetrievalData(documents, qrels, tuple(kept), groups, hidden, tuple(messages))


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
        raise InvalidData(
            f"none of the {len(claims)} {what} has a relevant document in the corpus. Check that the ids of corpus, "
            "claims and judgements match"
        )
    if len(found) < len(claims):
        messages.append(f"{len(claims) - len(found)} of {len(claims)} {what} have no relevant document in the corpus")
    return found


@dataclass(frozen=True, slots=True)
class MinedNegatives:
    """The negatives of a claim and one of its relevant documents: ids, the hard ones best first."""

    hard: tuple[str, ...] = ()
    random: tuple[str, ...] = ()


def read_negatives(path: Path, documents: Mapping[str, Document]) -> dict[str, dict[str, MinedNegatives]]:
    """Reads what `ccheck mine` wrote: JSON Lines of `claim_id`, `positive_id` and `negatives`. Returns the negatives by
    claim, then by relevant document.

    A negative without a `kind` is a hard one; a row without `positive_id` is for all relevant documents of its claim,
    and found under "". Raises NotFound, or InvalidData with the line's number for an invalid row and for a document
    that the corpus lacks.
    """
    found: dict[str, dict[str, MinedNegatives]] = {}
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError as error:
        raise NotFound(f"{path} does not exist") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidData(f"can't read the negatives {path}: {error}") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row: Any = json.loads(line)
            claim, positive = str(row["claim_id"]), str(row.get("positive_id") or "")
            scored = [(str(one["id"]), float(one.get("score") or 0.0), _kind(one)) for one in row["negatives"]]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidData(
                f"{path}, line {number}: not a row of ccheck mine ({type(error).__name__}: {error})"
            ) from error
        unknown = next((id_ for id_, _, _ in scored if id_ not in documents), None)
        if unknown is not None:
            raise InvalidData(
                f"{path}, line {number}: the corpus has no document {unknown!r}. Mine negatives from this corpus"
            )
        before = found.setdefault(claim, {}).get(positive, MinedNegatives())
        hard = [id_ for id_, _, kind in sorted(scored, key=lambda one: -one[1]) if kind == "hard"]
        others = [id_ for id_, _, kind in scored if kind == "random"]
        found[claim][positive] = MinedNegatives(
            tuple(dict.fromkeys([*before.hard, *hard])), tuple(dict.fromkeys([*before.random, *others]))
        )
    if not found:
        raise InvalidData(f"{path} contains no negatives")
    return found


def _kind(negative: Any) -> str:
    kind = negative.get("kind", "hard")
    if kind not in ("hard", "random"):
        raise ValueError(f"the kind of a negative is hard or random, not {kind!r}")
    return str(kind)


_SENTENCE_CHARS = (40, 300)
"""Shorter ones say too little. Longer ones are not really sentences."""
_TEXT_CHARS = 200


def weak_pairs(data: RetrievalData, count: int, seed: int) -> list[tuple[Claim, Document]]:
    """Pairs that need no labels: a title with its text, and a sentence of a text with what is left (Lee et al., 2019).

    Of the documents that training may see, each at most once in each way, in an order drawn by the seed. The claims
    have ids that no other claim has; the document is without the title or sentence, and keeps its id.

    Raises InvalidData if there are none.
    """
    draw = random.Random(seed)  # noqa: S311 - a sample, not a secret
    ways = [(id_, way) for id_ in data.visible for way in ("title", "sentence")]
    draw.shuffle(ways)
    made: list[tuple[Claim, Document]] = []
    for id_, way in ways:
        if len(made) == count:
            break
        document = data.documents[id_]
        pair = _by_title(document) if way == "title" else _by_sentence(document, draw)
        if pair is not None:
            made.append((Claim(pair[0], f"weak:{way}:{id_}"), pair[1]))
    if not made:
        raise InvalidData(
            "weak pairs need a corpus with titles or with texts of at least three sentences, and this one has neither"
        )
    return made


def _by_title(document: Document) -> tuple[str, Document] | None:
    title = clean(document.title).rstrip(".")
    if len(title) < _SENTENCE_CHARS[0] or len(document.text) < _TEXT_CHARS:
        return None
    return title, Document(document.id, "", document.text)


def _by_sentence(document: Document, draw: random.Random) -> tuple[str, Document] | None:
    spans = [
        (start, end)
        for start, end in sentence_spans(document.text)
        if _SENTENCE_CHARS[0] <= end - start <= _SENTENCE_CHARS[1]
    ]
    if len(spans) < 3:
        return None
    start, end = draw.choice(spans)
    rest = f"{document.text[:start].rstrip()} {document.text[end:].lstrip()}".strip()
    return document.text[start:end].strip(), Document(document.id, document.title, rest)
