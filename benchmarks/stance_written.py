"""Claims that were written for the packaged stance model, and the pairs that its reader learns from them.

`written_claims.jsonl` has eight claims about each of some abstracts: three that it supports, three that it refutes and
two that it leaves open; in everyday words (`own`), in nearly all of its words (`close`), in a form that looks like the
opposite (`turn`), as an expert would file it (`short`), about the world as a headline has it (`web`), and with a number
in everyday words (`number`). `written_test.jsonl` has six about each of others and of the demo's papers, as people make
them, written without knowledge of the former.
A language model wrote them, and the abstracts that are in these files; nobody has checked them all.
"""

from __future__ import annotations

import functools
import gzip
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from stance_data import BACKGROUND, OPEN, Pair, abstracts_of_trials, read_of

from ccheck.core.analysis import as_sentence, clean
from ccheck.demo import CORPUS
from ccheck.lab.measure.pairs import StanceRow
from ccheck.verdict.labels import STANCES

CLAIMS, TEST = (Path(__file__).with_name(f"written_{name}.jsonl") for name in ("claims", "test"))
LABELS = {"S": "SUPPORTS", "R": "REFUTES", "N": "NOT_ENOUGH_INFO"}
MADE_WEIGHT = 0.8
"""How much a pair counts whose claim was written for something else."""


def written_rows(folder: Path, file: Path) -> list[tuple[str, StanceRow]]:
    """The kind of each claim, and its row; `claim_id` is the document's. FOLDER has SciFact and the trials' abstracts,
    of which only the ids are in the file."""
    texts = _texts(folder)
    made = []
    for line in file.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        known = record["document"]
        title, text = (record["title"], record["text"]) if "text" in record else texts[known]
        for kind, claim in record["claims"]:
            made.append((kind, StanceRow(claim, text, LABELS[kind[0]], known, known, title)))
    return made


@functools.cache
def _texts(folder: Path) -> dict[str, tuple[str, str]]:
    """Title and text of each abstract that is named by its id."""
    with gzip.open(folder / "scifact/corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        made = {f"scifact:{one['_id']}": (one["title"], one["text"]) for one in map(json.loads, lines)}
    for one in abstracts_of_trials(folder):
        said = [clean(part["text"]).strip() for part in one["sections"] if part["role"] != "registration"]
        made[f"trial:{one['article']}"] = one["title"], " ".join(said)
    for one in map(json.loads, CORPUS.read_text(encoding="utf-8").splitlines()):
        made[f"demo:{one['_id']}"] = one["title"], one["text"]
    return made


def is_held(document: str) -> bool:
    """All invented abstracts of the letter o, which are on health; of each other letter sixteen, which are of two or
    three subjects; of abstracts that are named by an id one in twelve."""
    if ":" not in document:
        return document[0] == "o" or 10 <= int(document[1:]) <= 25
    return random.Random(f"{document[0]}:{document.partition(':')[2]}").random() < 0.08


def written_pairs(folder: Path, rows: Sequence[tuple[str, StanceRow]]) -> list[Pair]:
    """What a reader learns: the claims with what is read of their abstracts, some of them with what is read of a like
    abstract or of what a trial asked and did, which leave them open.

    The easier a claim's label is told from the claim alone, the less it counts.
    """
    labels = np.array([STANCES.index(row.label) for _, row in rows])
    claims, documents = [row.claim for _, row in rows], [row.doc_id for _, row in rows]
    guess = make_pipeline(TfidfVectorizer(ngram_range=(1, 2), min_df=2), LogisticRegression(C=2))
    chances = cross_val_predict(guess, claims, labels, groups=documents, cv=GroupKFold(5), method="predict_proba")
    weights = np.clip(1.5 * (1 - chances[np.arange(len(labels)), labels]), 0.25, 1.2)
    made = [
        Pair(as_sentence(row.claim), read_of(row, row.text), int(label), float(weight))
        for (_, row), label, weight in zip(rows, labels, weights, strict=True)
    ]
    sided = [row for (_, row), label in zip(rows, labels, strict=True) if label != OPEN]
    made += _with_others(random.Random(4).sample(sided, len(rows) // 6), {row.doc_id: row for _, row in rows})
    asked = _asked(folder)
    some = [row for row in sided if row.doc_id in asked]
    return made + [
        Pair(as_sentence(row.claim), read_of(row, asked[row.doc_id]), OPEN, MADE_WEIGHT)
        for row in random.Random(5).sample(some, min(len(rows) // 14, len(some)))
    ]


def _with_others(rows: Sequence[StanceRow], documents: Mapping[str, StanceRow]) -> list[Pair]:
    """Claims with one of the three abstracts that are likest to them, but for their own."""
    vectorizer = TfidfVectorizer(sublinear_tf=True, stop_words="english", min_df=2)
    names = sorted(documents)
    texts = vectorizer.fit_transform([f"{documents[name].title} {documents[name].text}" for name in names])
    near = (vectorizer.transform([row.claim for row in rows]) @ texts.T).toarray()
    made = []
    for row, scores in zip(rows, near, strict=True):
        order = [names[place] for place in np.argsort(-scores)[:6] if scores[place] > 0 and names[place] != row.doc_id]
        if order:
            other = documents[random.Random(row.claim).choice(order[:3])]
            made.append(Pair(as_sentence(row.claim), read_of(row, other.text), OPEN, MADE_WEIGHT))
    return made


def _asked(folder: Path) -> dict[str, str]:
    """What trials asked and did."""
    said = {
        f"trial:{one['article']}": " ".join(
            clean(part["text"]).strip() for part in one["sections"] if part["role"] in BACKGROUND
        )
        for one in abstracts_of_trials(folder)
    }
    return {name: text for name, text in said.items() if text}
