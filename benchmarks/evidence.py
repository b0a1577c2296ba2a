"""What finds the sentences of SciFact's rationales, and what a trial found: words, embeddings, tokens, roles?

    python benchmarks/evidence.py FOLDER [--model NAME]

FOLDER contains `clinical/` (see `roles.py`) and `scifact/` with `corpus.jsonl.gz` and `verdicts.jsonl` (claim,
abstract, label, 0-based numbers of the rationale's sentences). The corpus joins the sentences of an abstract with
spaces, so the numbers come from an unknown sentence splitter. The script counts pairs in which two splitters (ccheck's,
and one at full stop, space and capital) find the same number of sentences. Next to them it prints the figures over all
pairs with ccheck's splitter. A hash of their number divides the claims into two halves: the settings are chosen on the
first half and tested on the second.

hit@k: ccheck's own function chooses a sentence of the rationale among its k. recall@k: the share of the rationale's
sentences that it chooses.

found first: the share of claims about trials whose first sentence is in a section of the abstract that the authors call
results or conclusion; the headings are taken out. The claims are made from questions with their answers, and their
articles are not among those that the packaged model of roles learned from.

Below the table are the paired differences to words alone, with 95% bootstrap intervals over the claims.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click
import common
import numpy as np
from roles import Abstract, trials

from ccheck.core.analysis import clean, sentence_spans
from ccheck.core.runtime import Runtime
from ccheck.core.types import Document
from ccheck.encode.dense import DEFAULT_MODEL, load_embedder
from ccheck.rerank.open import open_matcher
from ccheck.verdict import evidence
from ccheck.verdict.evidence import Match, choose_sentences

Cases = list[tuple[str, list[Document]]]
SHARES = (0.2, 0.4, 0.8, 1.0)
ROLES = (1.0, 0.6, 0.3)
"""Values of `NOT_FOUND` beside ccheck's own; with 1, roles don't count."""
SAID = {
    "increased": "{intervention} increases {outcome} compared with {comparator}.",
    "decreased": "{intervention} reduces {outcome} compared with {comparator}.",
    "no difference": "{intervention} does not change {outcome} compared with {comparator}.",
}
OTHERS = 9
"""Other abstracts beside the one that counts: the rarity of a word is measured over all of a claim's documents."""

# The same documents are read again for each setting.
evidence.sentence_spans = functools.lru_cache(None)(sentence_spans)  # type: ignore[assignment]


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.option("--model", default=DEFAULT_MODEL, show_default=True, help="Embedding model, a folder or a name.")
def main(folder: Path, model: str) -> None:
    corpus = common.documents(folder / "scifact" / "corpus.jsonl.gz")
    rows = list(common.rows(folder / "scifact" / "verdicts.jsonl"))
    pairs = [row for row in rows if row["sentences"]]
    embedder = load_embedder(model, Runtime())
    rng = np.random.default_rng(0)
    ids = list(corpus)
    cases = []
    for pair in pairs:
        others = [corpus[ids[number]] for number in rng.integers(0, len(ids), OTHERS)]
        cases.append((pair["claim"], [corpus[pair["doc_id"]], *others]))
    spans = [sentence_spans(documents[0].text) for _, documents in cases]
    sure = np.array([len(cut) == _sentences(case[1][0].text) for cut, case in zip(spans, cases, strict=True)])
    first = np.array([hashlib.sha256(pair["claim_id"].encode()).digest()[0] % 2 == 0 for pair in pairs])
    embed = _embedding_of(
        {clean(claim) for claim, _ in cases}
        | {clean(d[0].text[start:end]) for (_, d), cut in zip(cases, spans, strict=True) for start, end in cut},
        embedder.encode_documents,
        embedder.spec.dimensions,
    )
    print(f"{len(pairs)} pairs, {sure.sum()} of them with certain numbers; {model}; random choice beside")
    print(f"{'share of the tokens':<24}{'first half':^27}{'second half':^27}{'all pairs, numbers uncertain':^29}")
    print(f"{'':<24}" + f"{'hit@1  hit@3  recall@3':^27}" * 3)

    def show(name: str, figures: np.ndarray) -> None:
        cells = [figures[sure & first].mean(0), figures[sure & ~first].mean(0), figures.mean(0)]
        print(f"{name:<24}" + "".join(f"{'  '.join(f'{value:.3f}' for value in cell):^27}" for cell in cells))

    gold = [
        {cut[number][0] for number in pair["sentences"] if number < len(cut)}
        for pair, cut in zip(pairs, spans, strict=True)
    ]
    matcher = open_matcher(Runtime())
    once = functools.cache(lambda claim, sentences: matcher(claim, sentences))

    def match(claim: str, sentences: Sequence[str]) -> Sequence[float]:
        return once(claim, tuple(sentences))

    def nearness(claim: str, sentences: Sequence[str]) -> Sequence[float]:
        vectors = embed([claim, *sentences])
        return np.clip(vectors[1:] @ vectors[0], 0, 1).tolist()

    claims = np.array([pair["claim_id"] for pair in pairs])
    words = _measured(cases, gold, None)
    show("words", words)
    with _with("MATCH_SHARE", 1.0):
        show("embedding", _measured(cases, gold, nearness))
    now = _measured(cases, gold, match)
    show(f"mix, as ccheck has it: {evidence.MATCH_SHARE}", now)
    abstracts = {one.article: one for one in trials(folder)}
    questions = [
        row for row in common.rows(folder / "clinical" / "evidence-inference.jsonl") if row["article"] in abstracts
    ]
    asked = [(SAID[row["label"]].format(**row), abstracts[row["article"]]) for row in questions]
    for value in (evidence.NOT_FOUND, *ROLES):
        with _with("NOT_FOUND", value):
            figures = _measured(cases, gold, match)
            show(f"what is not found counts {value}", figures)
            said = [_difference((figures - now)[sure, column], claims[sure]) for column in range(3)]
            print(f"    over ccheck's own: hit@1 {said[0]}, hit@3 {said[1]}, recall@3 {said[2]}")
            print(f"    found first, of {len(asked):,} claims about trials: {_found_first(asked, match)}")
    apart = {evidence.MATCH_SHARE: now}
    for share in SHARES:
        with _with("MATCH_SHARE", share):
            apart[share] = _measured(cases, gold, match)
            show(f"mix {share}", apart[share])
    show("at random", np.array([_chance(len(cut), right) for cut, right in zip(spans, gold, strict=True)]))
    for share, figures in sorted(apart.items()):
        said = [_difference((figures - words)[sure, column], claims[sure]) for column in range(3)]
        print(f"mix {share} over words, certain pairs: hit@1 {said[0]}, hit@3 {said[1]}, recall@3 {said[2]}")
    some = cases[:: len(cases) // 20]
    for name in ("words", "mix"):
        for count in (1, 3):
            fresh = open_matcher(Runtime()) if name == "mix" else None  # which has read nothing yet
            started, used = time.perf_counter(), time.process_time()
            choose_sentences(some, count, fresh)
            wall, cpu = time.perf_counter() - started, time.process_time() - used
            print(
                f"{name}, {1 + OTHERS} documents a claim, {count} chosen: {1000 * wall / len(some):.0f} ms a claim, "
                f"{1000 * cpu / len(some):.0f} ms of CPU time"
            )


@contextlib.contextmanager
def _with(name: str, value: float) -> Iterator[None]:
    """ccheck's own function, with another number."""
    own = getattr(evidence, name)
    setattr(evidence, name, value)
    try:
        yield
    finally:
        setattr(evidence, name, own)


def _found_first(asked: Sequence[tuple[str, Abstract]], match: Match) -> str:
    """The share of claims whose own abstract has a result or conclusion first; of each half of the articles."""
    texts = random.Random(0)
    others = list({one.article: Document(one.article, "", one.text) for _, one in asked}.values())
    cases = [(claim, [Document(one.article, "", one.text), *texts.sample(others, OTHERS)]) for claim, one in asked]
    right = []
    for (first, *_), (_, one) in zip(choose_sentences(cases, 1, match), asked, strict=True):
        parts = zip(one.spans, one.roles, strict=True)
        role = next((role for (start, end), role in parts if first and start <= first[0].start < end), "")
        right.append(role in ("result", "conclusion"))
    half = np.array([hashlib.sha256(one.article.encode()).digest()[0] % 2 == 0 for _, one in asked])
    return f"{np.mean(np.array(right)[half]):.3f} of one half, {np.mean(np.array(right)[~half]):.3f} of the other"


def _embedding_of(
    texts: set[str], encode: Callable[[Sequence[str]], np.ndarray], dimensions: int
) -> Callable[[Sequence[str]], np.ndarray]:
    """The embedding of these texts, made once; of the others nought: what they score is not looked at."""
    known = sorted(texts)
    rows = dict(zip(known, encode(known), strict=True))
    nought = np.zeros(dimensions, np.float32)
    return lambda asked: np.array([rows.get(text, nought) for text in asked])


def _measured(cases: Cases, gold: Sequence[set[int]], match: Match | None) -> np.ndarray:
    """hit@1 where one sentence is asked for, hit@3 and recall@3 where three are, of each pair."""
    one, three = (
        [{sentence.start for sentence in chosen[0]} for chosen in choose_sentences(cases, count, match)]
        for count in (1, 3)
    )
    return _figures(one, three, gold)


def _figures(one: Sequence[set[int]], three: Sequence[set[int]], gold: Sequence[set[int]]) -> np.ndarray:
    """hit@1, hit@3 and recall@3 of each pair, from where the chosen sentences start."""
    return np.array(
        [
            (bool(first & right), bool(best & right), len(best & right) / max(1, len(right)))
            for first, best, right in zip(one, three, gold, strict=True)
        ],
        float,
    )


def _difference(values: np.ndarray, claims: np.ndarray, rounds: int = 10_000) -> str:
    """The mean of paired differences, with its 95% bootstrap interval over the claims."""
    _, place = np.unique(claims, return_inverse=True)
    sums, sizes = np.bincount(place, values), np.bincount(place)
    drawn = np.random.default_rng(0).integers(len(sums), size=(rounds, len(sums)))
    low, high = np.percentile(sums[drawn].sum(1) / sizes[drawn].sum(1), [2.5, 97.5])
    return f"{values.mean():+.3f} [{low:+.3f}, {high:+.3f}]"


def _sentences(text: str) -> int:
    """How many sentences there are by another splitter."""
    return 1 + len(re.findall(r"(?<=[.?!]) (?=[A-Z])", text.strip()))


def _chance(sentences: int, gold: set[int]) -> tuple[float, float, float]:
    """What choosing at random gives."""
    miss = 1.0
    for drawn in range(min(3, sentences)):
        miss *= max(0, sentences - len(gold) - drawn) / (sentences - drawn)
    return len(gold) / sentences, 1 - miss, min(3, sentences) / sentences


if __name__ == "__main__":
    main()
