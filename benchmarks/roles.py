"""Make and measure the model that tells what each sentence of a paper does (`verdict/roles.py`).

    python benchmarks/roles.py FOLDER [--write]

FOLDER has `clinical/abstract-roles.jsonl` and `clinical/evidence-inference.jsonl` (trials, and questions about them),
and `scifact/`. The authors' own headings say the roles, in the trials' abstracts and in SciFact's structured ones; they
are taken out of the text. Measured, each with the other data set alone to learn from: the share of sentences whose role
is their heading's, with background and aim as one, and conclusion and outlook. Articles that the questions are about
are left out of what the model learns from.
"""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
import common
import numpy as np
from scipy.sparse import csr_matrix

from ccheck.core.analysis import sentence_spans
from ccheck.verdict import roles
from ccheck.verdict.roles import BUCKETS, FILE, ROLES, RoleModel, feature_rows, roles_in

HEADINGS = {"background": "background", "objective": "aim", "methods": "method", "results": "result"}
GROUPS = {"background": 0, "aim": 0, "method": 1, "result": 2, "conclusion": 3, "outlook": 3}
REGULAR = 0.03
"""scikit-learn's C; of .01, .03, .1, .3 the best with either data set left out."""


STEPS = 0.8
"""How much the order of roles counts beside the words of a sentence."""
SHORT = (4, 8)
"""How many of an abstract's sentences stand in a copy from which the model learns, too: abstracts without headings are
shorter."""


class Abstract(NamedTuple):
    article: str
    text: str
    spans: list[tuple[int, int]]
    roles: list[str]


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.option("--write", is_flag=True, help="Write the model that is packaged.")
def main(folder: Path, *, write: bool) -> None:
    asked = {row["article"] for row in common.rows(folder / "clinical" / "evidence-inference.jsonl")}
    sets = {"trials": list(trials(folder)), "SciFact": list(scifact(folder))}
    learned = {name: [one for one in some if one.article not in asked] for name, some in sets.items()}
    for name, some in sets.items():
        others = [one for other in sets if other != name for one in learned[other]]
        model, chance = fit(others), random.Random(1)
        measure(f"{name}, learned from the other", some, model)
        short = [shortened(one, chance, 4, 7) for one in some]
        measure(f"{name}, learned from the other, of four to seven of their sentences", short, model)
    half = {name: [one for one in some if _half(one.article)] for name, some in learned.items()}
    model = fit([one for some in half.values() for one in some])
    for name, some in sets.items():
        measure(f"{name}, other articles", [one for one in some if not _half(one.article)], model)
    model = fit([one for some in learned.values() for one in some])
    measure("trials that are asked about", [one for one in sets["trials"] if one.article in asked], model)
    if write:
        from safetensors.numpy import save_file

        scale = np.abs(model.weights).max() / 127
        table = np.round(model.weights / scale).astype(np.int8)
        save_file({"weights": table, "scale": np.array([scale], np.float32), "steps": model.steps}, FILE)
        FILE.chmod(0o644)
        print(f"{FILE.name}: {FILE.stat().st_size:,} bytes")


def trials(folder: Path) -> Iterator[Abstract]:
    for row in common.rows(folder / "clinical" / "abstract-roles.jsonl"):
        parts = [
            (HEADINGS.get(one["role"], "conclusion"), one["text"])
            for one in row["sections"]
            if one["role"] != "registration" and one["text"].strip()
        ]
        yield abstract(row["article"], parts)


def scifact(folder: Path) -> Iterator[Abstract]:
    """SciFact's abstracts that have sections, by the headings in them."""
    for row in common.rows(folder / "scifact" / "corpus.jsonl.gz"):
        spans = sentence_spans(row["text"])
        _, bodies = roles._allowed(row["text"], spans)
        headings = [roles._HEADING.match(row["text"][start:end]) for start, end in spans]
        sections = [roles._section(found["loud"]) if found and found["loud"] else frozenset() for found in headings]
        if sum(map(bool, sections)) < 3:
            continue
        current: frozenset[Any] | None = None
        parts: list[tuple[str, str]] = []
        for section, body in zip(sections, bodies, strict=True):
            current = section or current
            groups = {GROUPS[role]: role for role in reversed(ROLES) if role in (current or ())}
            if len(groups) != 1:
                parts = []
                break
            parts.append((next(iter(groups.values())), body))
        if parts:
            yield abstract(row["_id"], parts)


def abstract(article: str, parts: Sequence[tuple[str, str]]) -> Abstract:
    """An abstract without headings, from the role and the text of each section."""
    text, spans, found = "", [], []
    for role, part in parts:
        start = len(text)
        spans += [(start + a, start + b) for a, b in sentence_spans(part)]
        found += [role] * (len(spans) - len(found))
        text += part + " "
    return Abstract(article, text, spans, found)


def shortened(one: Abstract, chance: random.Random, least: int, most: int) -> Abstract:
    """Some of its sentences, in order."""
    kept = sorted(chance.sample(range(len(one.spans)), min(len(one.spans), chance.randint(least, most))))
    text, spans = "", []
    for place in kept:
        sentence = slice(*one.spans[place])
        spans.append((len(text), len(text) + sentence.stop - sentence.start))
        text += one.text[sentence] + " "
    return Abstract(one.article, text, spans, [one.roles[place] for place in kept])


def fit(abstracts: Sequence[Abstract]) -> RoleModel:
    """The model: each sentence counts twice, in its place and without one, and those of a shortened copy."""
    from sklearn.linear_model import LogisticRegression

    rows, labels = [], []
    steps = np.ones((len(ROLES) + 1, len(ROLES)))
    chance = random.Random(3)
    for one in [*abstracts, *(shortened(one, chance, *SHORT) for one in abstracts)]:
        bodies = [one.text[a:b] for a, b in one.spans]
        own = [ROLES.index(_labelled(body, role)) for body, role in zip(bodies, one.roles, strict=True)]
        alone = [row for body in bodies for row in feature_rows([body])]
        rows += [*feature_rows(bodies), *alone]
        labels += [*own, *own]
        for before, after in itertools.pairwise([-1, *own]):
            steps[before + 1, after] += 1
    made = LogisticRegression(C=REGULAR, max_iter=300, fit_intercept=False)
    made.fit(matrix(rows), labels)
    weights = np.zeros((BUCKETS, len(ROLES)), np.float32)
    weights[:, made.classes_] = made.coef_.T
    share = np.bincount(labels, minlength=len(ROLES)) / len(labels)
    # The classifier knows how frequent a role is: the steps add what the one before it tells.
    odds = np.log(steps / steps.sum(1, keepdims=True)) - np.log(share)
    return RoleModel(weights, (STEPS * odds).astype(np.float32))


def _labelled(sentence: str, role: str) -> Any:
    phrase = roles._by_phrase(sentence)
    return role if not phrase or role in phrase else min(phrase, key=ROLES.index)


def matrix(rows: Sequence[Sequence[int]]) -> csr_matrix:
    ends = np.cumsum([0, *map(len, rows)])
    columns = np.concatenate([np.array(row) for row in rows])
    return csr_matrix((np.ones(len(columns)), columns, ends), shape=(len(rows), BUCKETS))


def measure(said: str, abstracts: Sequence[Abstract], model: RoleModel) -> None:
    true = [GROUPS[role] for one in abstracts for role in one.roles]
    told = [roles_in(one.text, one.spans, model).roles for one in abstracts]
    given = [-1 if role is None else GROUPS[role] for some in told for role in some]
    gold, guess = np.array(true), np.array(given)
    found = np.isin(guess, (2, 3))
    right = np.isin(gold, (2, 3))
    names = enumerate(("background or aim", "method", "result", "conclusion"))
    by = "  ".join(f"{name} {(guess[gold == group] == group).mean():.3f}" for group, name in names)
    print(
        f"{said}: {len(abstracts):,} abstracts, {len(gold):,} sentences: right {(gold == guess).mean():.3f} ({by}); "
        f"said to be found: precision {right[found].mean():.3f}, recall {found[right].mean():.3f}",
        flush=True,
    )


def _half(article: str) -> bool:
    return hashlib.sha256(article.encode()).digest()[0] < 128


if __name__ == "__main__":
    main()
