"""The measures of Context24 (SDP at ACL 2024), equal to the task's own scripts on the same input.

Task 1 is nDCG with partial credit: 1 for a gold element, .5 for one whose id is a part of a gold id or has one in it
(FIG 1 and FIG 1D). The ideal ranking is that of the paper's own elements. Task 2 takes for each predicted passage the
best F over the gold passages; a claim's score is the mean over its predictions, and the result the mean over gold
claims. BERTScore depends on its model: figures made with another one are not comparable.

    from ccheck.lab.measure.context24 import measure, read_gold

    measure(load_recipe("context24-passages"), read_gold("task2-train-dev.json"), articles, runtime)
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...articles import Article
from ...core.errors import CcheckError, InvalidData, require
from ...core.recipe import Recipe, models_used
from ...core.runtime import Runtime
from ...core.types import Usage
from ...ingest.rows import take_all
from ...llm.model import open_llm
from ...pipeline.claims import first_of, text_of
from ...pipeline.grounding import open_figures, open_passages, passages_stage

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
    return take_all(path, frozenset(), lambda record, _: _gold(record.data))


def _gold(row: Mapping[str, Any]) -> GoldClaim:
    identifier = first_of(row, _IDS)[1]
    if identifier is None:
        raise InvalidData("claim_id is missing")
    listed: dict[tuple[str, ...], list[Any]] = {
        names: next((row[name] for name in names if isinstance(row.get(name), list)), [])
        for names in (_ELEMENTS, _PASSAGES)
    }
    passages = tuple(str(one.get("text", "")) if isinstance(one, dict) else str(one) for one in listed[_PASSAGES])
    article = str(first_of(row, ("article", "citekey"))[1] or "")
    return GoldClaim(str(identifier), text_of(row.get("claim")), article, tuple(map(str, listed[_ELEMENTS])), passages)


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


@dataclass(frozen=True, slots=True)
class Measured:
    """A recipe's figures over the gold claims that it answered. `seconds` is wall-clock time; `errors` by claim."""

    metrics: Mapping[str, float]
    claims: int
    seconds: float
    usage: Usage
    errors: Mapping[str, str]

    def to_dict(self) -> dict[str, Any]:
        """A part of a line of `ccheck evaluate --articles --json`."""
        return {
            "metrics": dict(self.metrics),
            "claims": self.claims,
            "seconds_per_claim": {"total": self.seconds / self.claims},
            "usage": self.usage.to_dict(),
            "errors": [{"claim": claim, "error": error} for claim, error in self.errors.items()],
        }


def marked(recipe: Recipe, gold: Sequence[GoldClaim]) -> tuple[bool, dict[str, GoldClaim]]:
    """Whether a recipe's `[figures]` are measured, not its `[passages]`, and the claims with such gold.

    Raises InvalidData if there are none, and UsageError for a recipe with neither table.
    """
    inside = recipe.figures is not None and any(one.elements for one in gold)
    if not inside:
        passages_stage(recipe)
    found = {one.id: one for one in gold if (one.elements if inside else one.passages)}
    if not found:
        raise InvalidData(f"the recipe {recipe.name} can't be measured: no claim has {' or '.join(_PASSAGES)}")
    return inside, found


def measure(
    recipe: Recipe,
    gold: Sequence[GoldClaim],
    articles: Sequence[Article],
    runtime: Runtime,
    images: Sequence[str | Path] = (),
    bert: str | None = None,
) -> Measured:
    """A resolved recipe's `[figures]`, or its `[passages]`, on the gold claims of these articles.

    Gold elements are ids of the article or the task's (FIG 1). `bert`: the model of BERTScore. Raises what `marked`
    and opening the models raise, and InvalidData if no claim could be answered.
    """
    runtime = runtime.asking(recipe.language_model)
    inside, asked = marked(recipe, gold)
    started = time.perf_counter()
    find: Callable[[str, Sequence[str]], Sequence[Any]]
    if inside:
        find = open_figures(articles, recipe, runtime, images)[0].rank
    else:
        find = open_passages(articles, recipe, runtime).find
    found: dict[str, Sequence[Any]] = {}
    errors: dict[str, str] = {}
    for claim, one in asked.items():
        try:
            found[claim] = find(one.claim, [one.article])
        except CcheckError as error:
            errors[claim] = str(error)
    if not found:
        raise InvalidData(f"no claim could be measured: {next(iter(errors.values()))}")
    seconds = time.perf_counter() - started
    named = [name for name, kind in models_used(recipe).items() if kind == "language model"]
    usage = sum((open_llm(runtime, name).usage for name in named), Usage())
    if not inside:
        texts = {claim: [passage.text for passage in one] for claim, one in found.items()}
        wanted = {claim: asked[claim].passages for claim in found}
        return Measured(passage_scores(texts, wanted, bert), len(found), seconds, usage, errors)
    rankings: dict[str, list[str]] = {}
    for claim, ranking in found.items():
        own = {one.element.id for one in ranking} & set(asked[claim].elements)
        rankings[claim] = [one.element.id if own else one.element.task_id for one in ranking]
    scores = figure_scores(rankings, {claim: one.elements for claim, one in asked.items()}, rankings)
    names = next(iter(scores.values()))
    means = {name: sum(one[name] for one in scores.values()) / len(scores) for name in names}
    return Measured(means, len(scores), seconds, usage, errors)


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
