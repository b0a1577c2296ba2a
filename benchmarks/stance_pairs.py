"""Pairs of claim and evidence that the packaged stance model's adapter learns from: the second half of
`benchmarks/packaged_stance.py`'s data.

Before any judged claim, the adapter reads `first_pairs`: FEVER's pairs and variants of them, and pairs made from
abstracts of trials. Then come `judged_pairs` of SciFact and Climate-FEVER. Everything is drawn with fixed seeds.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from stance_findings import findings, variants

from ccheck.core.analysis import clean, sentence_spans, terms
from ccheck.core.types import Document
from ccheck.ingest.rows import read_records
from ccheck.lab.measure.rows import StanceRow, read_rows
from ccheck.verdict.features import BOTH_WAYS, sentences_of
from ccheck.verdict.labels import STANCES

SUPPORTS, REFUTES, OPEN = range(len(STANCES))
_AUXILIARY = re.compile(r"\b(?:is|are|was|were|has|have|had|did|can|could|will)\b(?! not\b)")
_DENIAL = re.compile(r"\b(?:do|does|did) not |\bnot |\bnever ")
_WORD = re.compile(r"[A-Za-z]+")
_LEAD = re.compile(
    r"^(?:(?:in conclusion|in summary|taken together|together|thus|therefore|hence|overall|collectively|conclusions?:?"
    r"|interpretation:?|in addition|moreover|furthermore|finally|here),?\s+)*(?:we (?:show|find|found|demonstrate"
    r"|report|conclude|propose|suggest)(?:ed)? (?:here )?that|(?:these|our|the|this|those)\s(?:\w+\s){0,3}?(?:results?"
    r"|findings?|data|stud(?:y|ies)|observations?|work|analys[ie]s|experiments?)\s(?:\w+\s)?(?:suggest|indicate|show"
    r"|demonstrate|reveal|establish|identify|support|provide evidence|confirm|imply)s?\s(?:that)?)\s*,?\s*",
    re.IGNORECASE,
)
"""What stands before a conclusion: `Taken together, these results suggest that`."""
_VERB = re.compile(
    r"\b(?:is|are|was|were|has|have|can|could|may|does|do|did|not|regulates?|controls?|mediates?|requires?|causes?"
    r"|increas\w+|decreas\w+|reduc\w+|inhibits?|promotes?|induces?|prevents?|protects?|predicts?|suppress\w*|activates?"
    r"|improves?|enhances?|impairs?|drives?|contributes?|reveals?|links?|limits?|blocks?|leads?|plays?)\b",
    re.IGNORECASE,
)


_ANY_AUXILIARY = re.compile(r"\b(?:is|are|was|were|can|could|may|will|does|do|did|has|have|had|should)\b(?! not\b)")
_NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.]*\w)")
_FACTORS = (0.1, 0.3, 0.5, 2.0, 3.0, 10.0)


class Pair(NamedTuple):
    """A claim, what is read of its evidence, the label's place in STANCES, and how much the pair counts."""

    claim: str
    evidence: str
    label: int
    weight: float = 1.0


class FirstPairs(NamedTuple):
    fever: list[Pair]
    abstracts: list[Pair]
    findings: list[Pair]
    held: list[Pair]
    """Pairs of FEVER that are not learned from."""
    counts: dict[str, int]
    """How many of the pairs of FEVER are its own, reversed and open."""


def first_pairs(folder: Path) -> FirstPairs:
    draw = random.Random(1)
    rows = list(read_rows(folder / "fever/pairs.jsonl.gz").rows)
    random.Random(0).shuffle(rows)
    held, rows = rows[:400], rows[400:]
    made = [Pair(row.claim, _short(row.claim, row.text), STANCES.index(row.label)) for row in rows]
    reversed_, open_ = _denied(rows, draw), _open(rows[6000:8600], rows, draw)
    counts = {"fever_own": len(made), "fever_reversed": len(reversed_), "fever_made_open": len(open_)}
    made += reversed_ + open_
    pool = _pool(folder)
    abstracts = _of_abstracts(pool, draw)
    kept = [Pair(row.claim, _short(row.claim, row.text), STANCES.index(row.label)) for row in held]
    return FirstPairs(made, abstracts, _of_findings(pool, random.Random(5)), kept, counts)


def contradicted(text: str, draw: random.Random) -> str | None:
    """The statement made false: a word turned into its opposite, a denial put in or taken out, or another number.

    None if the text offers nothing of that kind.
    """
    turned = [match for match in _WORD.finditer(text) if match.group().lower() in BOTH_WAYS]
    auxiliaries = list(_ANY_AUXILIARY.finditer(text))
    denials = list(_DENIAL.finditer(text))
    numbers = list(_NUMBER.finditer(text))
    ways = [found for found in (turned, auxiliaries, denials, numbers) if found]
    if not ways:
        return None
    way = draw.choice(ways)
    match = draw.choice(way)
    word = match.group()
    if way is turned:
        new = BOTH_WAYS[word.lower()]
        new = new.capitalize() if word[0].isupper() else new
    elif way is auxiliaries:
        new = f"{word} not"
    elif way is denials:
        new = ""
    else:
        new = _other_number(word, draw)
    return f"{text[: match.start()]}{new}{text[match.end() :]}"


def _other_number(word: str, draw: random.Random) -> str:
    places = len(word.partition(".")[2])
    new = f"{float(word) * draw.choice(_FACTORS):.{places}f}"
    return new if new != word else f"{float(word) + 7:.{places}f}"


def _nearest(claim: str, sentences: Sequence[str], most: int) -> str:
    """The sentences that share most words with the claim, for their length, in their order."""
    wanted = set(terms(claim))

    def score(place: int) -> tuple[float, int]:
        given = set(terms(sentences[place]))
        return -len(wanted & given) / (8 + len(given)), place

    return " ".join(sentences[place] for place in sorted(sorted(range(len(sentences)), key=score)[:most]))


def _short(claim: str, text: str) -> str:
    if len(text.split()) <= 45:
        return text
    return _nearest(claim, [text[start:end] for start, end in sentence_spans(text)], 2)


def _denied(rows: Sequence[StanceRow], draw: random.Random) -> list[Pair]:
    """700 refuted claims made of supported ones, and 700 the other way round by a `not`: no word decides alone."""
    made: list[Pair] = []
    counts = [0, 0]
    for row in draw.sample(rows, 6000):
        label = STANCES.index(row.label)
        if counts[label] >= 700:
            continue
        claim = _with_not(row.claim) if label == REFUTES else contradicted(row.claim, draw)
        if claim and claim != row.claim:
            counts[label] += 1
            made.append(Pair(claim, _short(row.claim, row.text), 1 - label))
    return made


def _with_not(claim: str) -> str | None:
    found = _AUXILIARY.search(claim)
    return f"{claim[: found.end()]} not{claim[found.end() :]}" if found else None


def _open(asked: Sequence[StanceRow], rows: Sequence[StanceRow], draw: random.Random) -> list[Pair]:
    """Claims with the evidence of others, which shares words with them but not their names."""
    found = nearest_others(asked, rows)
    return [Pair(row.claim, _short(row.claim, draw.choice(others).text), OPEN) for row, others in found]


def nearest_others(
    asked: Sequence[StanceRow], rows: Sequence[StanceRow]
) -> Iterator[tuple[StanceRow, list[StanceRow]]]:
    """For each row asked, up to eight others whose evidence shares words with its claim, but not its names. A row
    without any is left out."""
    vectorizer = TfidfVectorizer(sublinear_tf=True, stop_words="english")
    texts = vectorizer.fit_transform([row.text for row in rows])
    near = vectorizer.transform([row.claim for row in asked]) @ texts.T
    for number, row in enumerate(asked):
        found = near[[number]].tocoo()
        order = found.col[np.lexsort((found.col, -found.data))][:40]
        names = {*re.findall(r"[A-Z][\w'-]+|\d+", row.claim[1:]), row.claim.split()[0]}
        others = [
            rows[place]
            for place in order
            if rows[place].text[:60] not in row.text
            and row.text[:60] not in rows[place].text
            and sum(name in rows[place].text for name in names) <= 0.6 * len(names)
        ]
        if others:
            yield row, others[:8]


def _pool(folder: Path) -> list[tuple[str, list[str]]]:
    """Titles and sentences of abstracts to make claims from. SciFact's are left out: which of them its other claims
    cite is not known here."""
    made = []
    for record in read_records(folder / "clinical/abstract-roles.jsonl", frozenset()):
        texts = [clean(section["text"]).strip() for section in record.data["sections"]]
        sentences = [text[start:end] for text in texts for start, end in sentence_spans(text)]
        made.append((clean(record.data["title"]).strip(), sentences))
    return made


def _of_findings(abstracts: Sequence[tuple[str, list[str]]], draw: random.Random) -> list[Pair]:
    """Claims about what one thing does to another. Half of them have the sentence before in their evidence."""
    made: list[Pair] = []
    for _, sentences in abstracts:
        found = list(findings(sentences))
        places = {place for place, _ in found}
        for place, finding in found:
            for claim, said, supports in variants(finding, draw):
                if place and place - 1 not in places and draw.random() < 0.5:
                    said = f"{sentences[place - 1]} {said}"
                made.append(Pair(claim, said, SUPPORTS if supports else REFUTES))
    draw.shuffle(made)
    return made


def _of_abstracts(abstracts: Sequence[tuple[str, list[str]]], draw: random.Random) -> list[Pair]:
    """Titles and conclusions of abstracts, with the three nearest other sentences of the
    same abstract (SUPPORTS; REFUTES with one word reversed) or of a similar one (open)."""
    records = list(abstracts)
    draw.shuffle(records)
    sentences = [some for _, some in records]
    vectorizer = TfidfVectorizer(sublinear_tf=True, stop_words="english", min_df=2)
    vectors = vectorizer.fit_transform([" ".join(some) for some in sentences])
    made: list[Pair] = []
    for number, (title, some) in enumerate(records):
        if len(some) < 4:
            continue
        for claim, rest in _conclusions(title, some)[:2]:
            kind = draw.choice("SRRN" if contradicted(claim, draw) else "SSN")
            if kind == "S":
                made.append(Pair(claim, _nearest(claim, rest, 3), SUPPORTS))
            elif kind == "R":
                false = _opposite(claim, draw, 0.75) or contradicted(claim, draw)
                if false and false != claim:
                    made.append(Pair(false, _nearest(claim, rest, 3), REFUTES))
            else:
                found = (vectorizer.transform([claim]) @ vectors.T).tocoo()
                order = [place for place in found.col[np.lexsort((found.col, -found.data))][:12] if place != number]
                if order:
                    other = sentences[draw.choice(order[:8])]
                    false = contradicted(claim, draw) if draw.random() < 0.4 else None
                    made.append(Pair(false or claim, _nearest(claim, other, 3), OPEN))
    draw.shuffle(made)
    return made


def _conclusions(title: str, sentences: Sequence[str]) -> list[tuple[str, list[str]]]:
    """What an abstract claims, each with the sentences that do not say it outright."""
    found: list[tuple[str, list[str]]] = []
    if _VERB.search(title) and 5 <= len(title.split()) <= 28:
        found.append((title.rstrip(".") + ".", list(sentences)))
    for place in (len(sentences) - 1, len(sentences) - 2):
        claim = _LEAD.sub("", sentences[place])
        if claim != sentences[place] or place == len(sentences) - 1:
            claim = claim[:1].upper() + claim[1:]
            if 7 <= len(claim.split()) <= 32 and _VERB.search(claim):
                found.append((claim, [*sentences[:place], *sentences[place + 1 :]]))
    return found


def _opposite(claim: str, draw: random.Random, share: float = 1.0) -> str | None:
    """The claim with a word turned into its opposite, where it has such a word; `share` is how often this is tried."""
    words = [found for found in _WORD.finditer(claim) if found.group().lower() in BOTH_WAYS]
    if not words or (share < 1 and draw.random() >= share):
        return None
    found = draw.choice(words)
    other = BOTH_WAYS[found.group().lower()]
    return claim[: found.start()] + (other.capitalize() if found.group()[0].isupper() else other) + claim[found.end() :]


class Judged(NamedTuple):
    """A judged pair of a data set: what is read of the document, and the text of its deciding sentences, if named."""

    claim: str
    evidence: str
    label: int
    deciding: str = ""


def judged_rows(rows: Sequence[StanceRow], near: Sequence[Sequence[str]]) -> list[Judged]:
    """`near` are the sentences that the model will read of each row's document."""
    made = []
    for row, some in zip(rows, near, strict=True):
        sentences = sentences_of(Document(row.doc_id, row.title, row.text))
        deciding = " ".join(sentences[place] for place in sorted(row.sentences) if place < len(sentences))
        made.append(Judged(clean(row.claim), " ".join(some), STANCES.index(row.label), deciding))
    return made


def judged_pairs(scifact: Sequence[Judged], climate: Sequence[Judged], first: FirstPairs, seed: int = 17) -> list[Pair]:
    """What is learned from some of the judged pairs. Rare labels count more. Reversed claims are added, and some of the
    first pairs, so that they are not forgotten."""
    draw = random.Random(seed)
    made: list[Pair] = []
    for rows, abstracts in ((scifact, True), (climate, False)):
        labels = np.array([row.label for row in rows], np.int64)
        frequent = np.maximum(1, np.bincount(labels, minlength=len(STANCES)))
        counts = (len(rows) / len(STANCES) / frequent) ** 0.5
        for row in rows:
            made.append(Pair(row.claim, row.evidence, row.label, counts[row.label]))
            if row.label == OPEN:
                continue
            if abstracts and row.deciding and row.deciding != row.evidence:
                made.append(Pair(row.claim, row.deciding, row.label, 0.7 * counts[row.label]))
            if not abstracts and row.label == SUPPORTS and draw.random() >= 0.3:
                continue
            claim = _reversed(row.claim, row.label, draw)
            if claim and claim != row.claim:
                weight = 0.5 * counts[1 - row.label] if abstracts else 0.4
                made.append(Pair(claim, row.deciding or row.evidence, 1 - row.label, weight))
    again = draw.sample(first.fever, 500) + draw.sample(first.abstracts[:4500], 250) + draw.sample(first.findings, 600)
    return made + [pair._replace(weight=0.5) for pair in again]


def _reversed(claim: str, label: int, draw: random.Random) -> str | None:
    """The claim with an opposite word, or without its denial; a refuted one with a denial; else another number too."""
    made = _opposite(claim, draw)
    if made:
        return made
    denial = _DENIAL.search(claim)
    if denial:
        return claim[: denial.start()] + claim[denial.end() :]
    return contradicted(claim, draw) if label == SUPPORTS else _with_not(claim)
