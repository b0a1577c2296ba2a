"""The measures of Context24 (SDP at ACL 2024), equal to the task's own scripts on the same input.

Task 1 is nDCG with partial credit: 1 for a gold element, .5 for one whose id is a part of a gold id or has one in it
(FIG 1 and FIG 1D). The ideal ranking is that of the paper's own elements. Task 2 takes for each predicted passage the
best F over the gold passages; a claim's score is the mean over its predictions, and the result the mean over gold
claims. BERTScore depends on its model: figures made with another one are not comparable.

    python -m ccheck.lab.measure.context24 GOLD ANSWERS
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core.errors import InvalidData, require
from ...core.files import read_text
from ...ingest.rows import take_all

ROUGE = ("rouge1", "rouge2", "rougeL")
_IDS, _ELEMENTS, _PASSAGES = ("claim_id", "id"), ("element_ids", "findings", "elements"), ("passages", "context")


@dataclass(frozen=True, slots=True)
class GoldClaim:
    """A claim with its gold elements or passages, and the article that it is about."""

    id: str
    claim: str
    article: str
    elements: tuple[str, ...] = ()
    passages: tuple[str, ...] = ()


def read_gold(path: str | Path) -> list[GoldClaim]:
    """The task's JSON files (`task1-train-dev.json`, `task2-train-dev.json`) or JSON Lines with the same fields.

    Elements are in `element_ids`, `findings` or `elements`, passages in `passages` or `context`: texts, or objects with
    a `text`. Raises NotFound or InvalidData.
    """
    found: list[GoldClaim] = []
    take_all(path, frozenset(), lambda record, _: found.append(_gold(record.data)))
    return found


def _gold(row: Mapping[str, Any]) -> GoldClaim:
    identifier = next((row[name] for name in _IDS if row.get(name) is not None), None)
    if identifier is None:
        raise InvalidData("claim_id is missing")
    listed: dict[tuple[str, ...], list[Any]] = {
        names: next((row[name] for name in names if isinstance(row.get(name), list)), [])
        for names in (_ELEMENTS, _PASSAGES)
    }
    passages = tuple(str(one.get("text", "")) if isinstance(one, dict) else str(one) for one in listed[_PASSAGES])
    article = str(row.get("article") or row.get("citekey") or "")
    return GoldClaim(
        str(identifier), str(row.get("claim") or ""), article, tuple(map(str, listed[_ELEMENTS])), passages
    )


def gain(element: str, gold: Collection[str]) -> float:
    """1 for a gold element, .5 for a part or whole of one, else 0."""
    if element in gold:
        return 1.0
    return 0.5 if any(element in one or one in element for one in gold) else 0.0


def ndcg(ranking: Sequence[str], gold: Collection[str], elements: Collection[str], k: int) -> float:
    """nDCG@k of element ids, best first. `elements` are all of the paper's; `gold` has at least one."""
    dcg = sum(gain(one, gold) / math.log2(place + 1) for place, one in enumerate(ranking[:k], 1))
    ideal = sorted([1.0] * len(set(gold)) + [gain(one, gold) for one in set(elements) - set(gold)], reverse=True)
    return dcg / sum(value / math.log2(place + 1) for place, value in enumerate(ideal[:k], 1))


def figure_scores(
    rankings: Mapping[str, Sequence[str]], gold: Mapping[str, Collection[str]], elements: Mapping[str, Collection[str]]
) -> dict[str, dict[str, float]]:
    """nDCG@5, nDCG@10 and hit@1 by claim, of the claims that have gold elements."""
    return {
        claim: {
            "nDCG@5": ndcg(ranking, gold[claim], elements[claim], 5),
            "nDCG@10": ndcg(ranking, gold[claim], elements[claim], 10),
            "hit@1": float(bool(ranking) and ranking[0] in gold[claim]),
        }
        for claim, ranking in rankings.items()
        if gold.get(claim)
    }


def passage_scores(
    predicted: Mapping[str, Sequence[str]], gold: Mapping[str, Sequence[str]], bert: str | None = None
) -> dict[str, float]:
    """ROUGE-1, -2 and -L, and with the name or folder of a `bert` model BERTScore, over the gold claims.

    A claim without predictions counts 0. Raises MissingExtra without rouge-score or bert-score.
    """
    require("ROUGE", "evaluation", "rouge_score")
    from rouge_score.rouge_scorer import RougeScorer

    scorer = RougeScorer(list(ROUGE), use_stemmer=True)
    totals = dict.fromkeys(ROUGE, 0.0)
    for claim, wanted in gold.items():
        given = predicted.get(claim, ())
        if not given or not wanted:
            continue
        # The same text twice is one prediction in the numerator, as in the task's script.
        for passage in dict.fromkeys(given):
            scores = [scorer.score(one, passage) for one in wanted]
            for name in ROUGE:
                totals[name] += max(one[name].fmeasure for one in scores) / len(given)
    if bert is not None:
        totals["bertscore"] = _bert(predicted, gold, bert)
    return {name: total / len(gold) for name, total in totals.items()} if gold else totals


def measure_answers(gold: str | Path, answers: str | Path) -> tuple[dict[str, float], int]:
    """The means of what `ccheck figures` or `ccheck passages` answered to a file of claims, and of how many claims.

    Gold elements are ids of the article or the task's (FIG 1). Raises NotFound, MissingExtra, or InvalidData if no
    answered claim has gold.
    """
    marked = {one.id: one for one in read_gold(gold)}
    given = [json.loads(line) for line in read_text(answers, "the answers").splitlines() if line.strip()]
    found = {one["claim_id"]: one for one in given if one.get("claim_id") in marked}
    if any("passages" in one for one in found.values()):
        wanted = {claim: marked[claim].passages for claim in found if marked[claim].passages}
        texts = {claim: [passage["text"] for passage in one["passages"]] for claim, one in found.items()}
        return passage_scores(texts, wanted), len(wanted)
    rankings = {}
    for claim, one in found.items():
        own = {element["id"] for element in one["elements"]} & set(marked[claim].elements)
        rankings[claim] = [element["id" if own else "task_id"] for element in one["elements"]]
    scores = figure_scores(rankings, {claim: one.elements for claim, one in marked.items()}, rankings)
    if not scores:
        raise InvalidData(f"{gold} has gold elements for none of these claims")
    names = next(iter(scores.values()))
    return {name: sum(one[name] for one in scores.values()) / len(scores) for name in names}, len(scores)


def _bert(predicted: Mapping[str, Sequence[str]], gold: Mapping[str, Sequence[str]], model: str) -> float:
    require("BERTScore", "bertscore", "bert_score")
    from bert_score import BERTScorer
    from bert_score.utils import model2layers
    from transformers import AutoConfig

    # The library knows the best layer of some models by name; of any other, such as a folder, the last one is taken.
    layers = model2layers.get(model) or AutoConfig.from_pretrained(model).num_hidden_layers
    scorer = BERTScorer(model_type=model, num_layers=layers, lang="en")
    total = 0.0
    for claim, wanted in gold.items():
        given = predicted.get(claim, ())
        if not given or not wanted:
            continue
        pairs = [(passage, one) for passage in given for one in wanted]
        _, _, values = scorer.score([one for one, _ in pairs], [one for _, one in pairs])
        best: dict[str, float] = {}
        for (passage, _), value in zip(pairs, values.tolist(), strict=True):
            best[passage] = max(value, best.get(passage, value))
        total += sum(best.values()) / len(given)
    return total


if __name__ == "__main__":
    measured, claims = measure_answers(sys.argv[1], sys.argv[2])
    sys.stdout.write(json.dumps(measured | {"claims": claims}) + "\n")
