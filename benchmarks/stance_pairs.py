"""The pairs that the packaged stance model's reader learns from. `packaged_stance.py` calls it.

First come `base_pairs`: FEVER's pairs and variants of them, and pairs made from abstracts of trials that none of the
other data sets has. Then come `judged_pairs` of the data sets. Everything is drawn with fixed seeds.
"""

from __future__ import annotations

import random
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from stance_data import (
    BACKGROUND,
    FEVER_HELD,
    NOT_SUPPORTED,
    OPEN,
    REFUTES,
    SUPPORTS,
    Pair,
    Part,
    abstracts_of_trials,
    climate_rows,
    evidence_of,
    fever_rows,
    questions_of_trials,
)
from stance_findings import findings, variants
from stance_swaps import Swaps
from stance_trials import DOWN, SAME, UP, claim_that, claims, other_outcomes

from ccheck.articles.xml import parse_article
from ccheck.core.analysis import clean, sentence_spans, terms
from ccheck.core.types import Document
from ccheck.lab.measure.pairs import StanceRow
from ccheck.verdict.labels import STANCES
from ccheck.verdict.packaged_model import sentences_of

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
OPPOSITES = {
    "increase": "decrease",
    "increases": "decreases",
    "increased": "decreased",
    "increasing": "decreasing",
    "higher": "lower",
    "high": "low",
    "more": "less",
    "many": "few",
    "greater": "smaller",
    "stronger": "weaker",
    "promotes": "inhibits",
    "promote": "inhibit",
    "activates": "inhibits",
    "activation": "inhibition",
    "enhances": "impairs",
    "enhance": "impair",
    "enhanced": "impaired",
    "improves": "worsens",
    "improved": "worsened",
    "induces": "prevents",
    "induced": "prevented",
    "causes": "prevents",
    "upregulated": "downregulated",
    "upregulation": "downregulation",
    "positive": "negative",
    "gain": "loss",
    "rise": "fall",
    "rises": "falls",
    "rising": "falling",
    "warming": "cooling",
    "warmer": "colder",
    "melting": "growing",
    "essential": "dispensable",
    "sufficient": "insufficient",
    "effective": "ineffective",
    "susceptible": "resistant",
    "beneficial": "harmful",
    "before": "after",
}
BOTH_WAYS = {second: first for first, second in OPPOSITES.items()} | OPPOSITES
"""Each word with its opposite."""
DENIED = 3000
_FACTORS = (0.1, 0.3, 0.5, 2.0, 3.0, 10.0)


# -- first: FEVER, and abstracts of trials


def base_pairs(folder: Path, swaps: Swaps) -> list[Pair]:
    draw = random.Random(1)
    rows = fever_rows(folder)[FEVER_HELD:]
    own = [Pair(row.claim, _short(row.claim, row.text), STANCES.index(row.label)) for row in rows]
    made = own + _denied(rows, draw) + _open(rows[3500:], rows, draw)
    abstracts = outside(folder)
    pool = [(clean(one["title"]).strip(), [said for _, said in sentences_by_role(one)]) for one in abstracts]
    concluded, aims = [], []
    for one in abstracts:
        by_role: dict[str, list[str]] = {}
        for role, said in sentences_by_role(one):
            by_role.setdefault(role, []).append(said)
        for said in by_role.get("conclusion", [])[:2]:
            text = _LEAD.sub("", said)
            text = text[:1].upper() + text[1:]
            if not 6 <= len(text.split()) <= 34 or not _VERB.search(text):
                continue
            concluded.append((text, said, by_role.get("results", [])))
            # What a paper asked says nothing of what it found.
            front = by_role.get("objective", []) + by_role.get("background", [])[-2:] + by_role.get("methods", [])[:2]
            if front:
                aims.append(Pair(text, _nearest(text, front, 2), OPEN))
    made += [*_of_abstracts(pool, draw), *aims, *_of_findings(pool, random.Random(5))]
    for pair in [pair for pair in own if pair.label == SUPPORTS]:
        if exchanged := swaps.of(pair.claim, pair.evidence, draw):
            made += [pair, *exchanged]
    for text, said, results in concluded:
        evidence = (f"{_nearest(text, results, 1)} " if results and draw.random() < 0.6 else "") + said
        made += [Pair(text, evidence, SUPPORTS), *swaps.of(text, evidence, draw)]
        false = contradicted(text, draw)
        made += [Pair(false, evidence, REFUTES)] if false and false != text else []
    draw.shuffle(made)
    seen, more = {pair[:2] for pair in made}, []
    for seed in (21, 22):
        more += [*_of_abstracts(pool, random.Random(seed)), *_of_findings(pool, random.Random(seed))]
    made += [pair for pair in dict.fromkeys(more) if pair[:2] not in seen]
    random.Random(3).shuffle(made)
    return made


def outside(folder: Path) -> list[dict[str, Any]]:
    """Abstracts of trials about which nobody is asked here."""
    asked = {question["article"] for question in questions_of_trials(folder)}
    return [one for one in abstracts_of_trials(folder) if one["article"] not in asked]


def texts_of_words(folder: Path) -> list[str]:
    """The texts whose words can be exchanged for each other."""
    said = [said for one in outside(folder) for _, said in sentences_by_role(one)]
    return [row.text for row in fever_rows(folder)[FEVER_HELD : FEVER_HELD + 6000]] + said


def sentences_by_role(abstract: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for section in abstract["sections"]:
        text = clean(section["text"]).strip()
        if section["role"] != "registration":
            yield from ((section["role"], text[start:end]) for start, end in sentence_spans(text))


def _denied(rows: Sequence[StanceRow], draw: random.Random) -> list[Pair]:
    """Refuted claims made of supported ones, and as many the other way round by a `not`: no word decides alone."""
    made: list[Pair] = []
    counts = [0, 0]
    for row in draw.sample(rows, len(rows)):
        label = STANCES.index(row.label)
        if counts[label] >= DENIED:
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


# -- then: judged pairs


def judged_pairs(
    folder: Path, parts: Mapping[str, Part], swaps: Swaps, first: Sequence[Pair], held: Set[str] = frozenset()
) -> list[Pair]:
    """From some pairs of each data set that is there, with variants of them, and some of the first pairs, so that these
    are not forgotten; `held` are trials that are not learned from."""
    draw = random.Random(17)
    made: list[Pair] = []
    if "SciFact" in parts:
        made += _of_scifact(parts["SciFact"], swaps, draw)
    if "Climate-FEVER" in parts:
        judged = parts["Climate-FEVER"].pairs()
        others = climate_rows(folder)[1]
        judged += [Pair(clean(row.claim), clean(row.text), STANCES.index(row.label)) for row in others]
        made += _sampled(judged, (1500, 1000, 1500), draw)
        for pair in [pair for pair in parts["Climate-FEVER"].pairs() if pair.label == SUPPORTS]:
            made += swaps.of(pair.claim, pair.evidence, draw)[:2]
            false = _reversed(pair.claim, SUPPORTS, draw)
            made += [Pair(false, pair.evidence, REFUTES)] if false and false != pair.claim else []
    if "findings of trials" in parts:
        questions = [question for question in questions_of_trials(folder) if question["article"] not in held]
        made += _of_trials(folder, questions, draw)
    if "CliniFact" in parts:
        made += parts["CliniFact"].pairs()
    if "PubMedQA" in parts:
        made += parts["PubMedQA"].pairs()
        made += draw.sample(parts["PubMedQA, no conclusion"].pairs(), 300)
    made += draw.sample(first, 3000)
    draw.shuffle(made)
    return made


def _sampled(pairs: Sequence[Pair], most: tuple[int, int, int], draw: random.Random) -> list[Pair]:
    """Of each label so many."""
    made: list[Pair] = []
    for label, count in enumerate(most):
        some = [pair for pair in pairs if pair.label == label]
        made += draw.sample(some, min(count, len(some)))
    return made


def _of_scifact(part: Part, swaps: Swaps, draw: random.Random) -> list[Pair]:
    made: list[Pair] = []
    for row, pair in zip(part.rows, part.pairs(), strict=True):
        made.append(pair)
        if pair.label == OPEN:
            continue
        sentences = sentences_of(Document(row.doc_id, row.title, row.text))
        deciding = " ".join(sentences[place] for place in sorted(row.sentences) if place < len(sentences))
        said = deciding or pair.evidence
        if said != pair.evidence:
            made.append(Pair(pair.claim, said, pair.label))
        if pair.label == SUPPORTS and draw.random() < 0.4:
            made += swaps.of(pair.claim, said, draw)[:2]
        other = _reversed(pair.claim, pair.label, draw) if draw.random() < 0.5 else None
        if other and other != pair.claim:
            made.append(Pair(other, said, 1 - pair.label))
        rest = [sentence for place, sentence in enumerate(sentences) if place not in row.sentences]
        if rest and draw.random() < 0.25:
            made.append(Pair(pair.claim, _nearest(pair.claim, rest[: max(2, len(rest) // 2)], 2), OPEN))
    return made


def _of_trials(folder: Path, questions: Sequence[dict[str, Any]], draw: random.Random) -> list[Pair]:
    """Claims with what the trial found, with what it says of another outcome, and with what it asked and did."""
    found = [
        Pair(text, evidence_of(question), SUPPORTS if supported else REFUTES)
        for question in questions
        for text, supported in claims(question, draw)
    ]
    made = draw.sample(found, min(3500, len(found)))
    others = other_outcomes(questions, draw)
    made += [Pair(text, said, OPEN) for text, said in draw.sample(others, min(700, len(others)))]
    abstracts = {one["article"]: one for one in abstracts_of_trials(folder)}
    asked = []
    for question in questions:
        if question["article"] not in abstracts:
            continue
        front = [said for role, said in sentences_by_role(abstracts[question["article"]]) if role in BACKGROUND]
        if front:
            text = claim_that(question, draw.choice((UP, DOWN, SAME)), draw)
            asked.append(Pair(text, _nearest(text, front, 2), OPEN))
    return made + draw.sample(asked, min(700, len(asked)))


def unlabelled_pairs(folder: Path, swaps: Swaps) -> list[Pair]:
    """Pairs that nobody judged, for a student to learn a teacher's answers on: sentences of trials' abstracts that no
    data set has and of open-access articles, each as a claim as it is or changed, with sentences of its own text or of
    a like one. Their labels mean nothing."""
    draw = random.Random(11)
    texts = [[said for _, said in sentences_by_role(one)] for one in outside(folder)]
    with zipfile.ZipFile(folder / "plos/articles.zip") as articles:
        for name in sorted(articles.namelist()):
            text = clean(parse_article(articles.read(name), name).text)
            sentences = [text[start:end] for start, end in sentence_spans(text)]
            texts += [sentences[start : start + 12] for start in range(0, len(sentences), 12)]
    texts = [some for some in texts if len(some) >= 4]
    vectorizer = TfidfVectorizer(sublinear_tf=True, stop_words="english", min_df=2)
    vectors = vectorizer.fit_transform([" ".join(some) for some in texts])
    near = vectors @ vectors.T
    made: list[Pair] = []
    for number, some in enumerate(texts):
        row = near[[number]].tocoo()
        like = [place for place in row.col[np.argsort(-row.data, kind="stable")][:9] if place != number]
        for place in draw.sample(range(len(some)), min(7, len(some))):
            claim = _LEAD.sub("", some[place])
            claim = claim[:1].upper() + claim[1:]
            if not 6 <= len(claim.split()) <= 34 or not _VERB.search(claim):
                continue
            rest = some[:place] + some[place + 1 :]
            own = " ".join(some[max(0, place - 1) : place + 1])
            pairs = [(claim, _nearest(claim, rest, 3)), (claim, own), (contradicted(claim, draw) or claim, own)]
            pairs.append((contradicted(claim, draw) or claim, _nearest(claim, rest, 3)))
            if like:
                pairs.append((claim, _nearest(claim, texts[draw.choice(like)], draw.choice((1, 2, 3)))))
            pairs += [(pair.claim, pair.evidence) for pair in swaps.of(claim, own, draw)[:2]]
            made += [Pair(text, said, NOT_SUPPORTED) for text, said in draw.sample(pairs, min(4, len(pairs)))]
    return list(dict.fromkeys(made))


# -- claims made false


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


def _reversed(claim: str, label: int, draw: random.Random) -> str | None:
    """The claim with an opposite word, or without its denial; a refuted one with a denial; else another number too."""
    made = _opposite(claim, draw)
    if made:
        return made
    denial = _DENIAL.search(claim)
    if denial:
        return claim[: denial.start()] + claim[denial.end() :]
    return contradicted(claim, draw) if label == SUPPORTS else _with_not(claim)
