"""What figures and passages give when their settings are chosen on other articles than those they are measured on.

    python benchmarks/context24_nested.py PLOS_FOLDER [--passages]

Two ways to keep apart: 20 random halves of the articles, settings chosen on one half and measured on the other; and
each article with the settings that are best on all others, which gives every claim one score and so an interval (95 %,
bootstrap over articles). `--passages` does the same for the marked passages beside this file.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from context24 import METRICS, intervals
from learned_expressions import learn
from numpy.typing import NDArray

from ccheck.articles import Article
from ccheck.articles.figures import FigureRanker
from ccheck.articles.passages import Expressions, PassageRanker, listed, packaged
from ccheck.core.grounding_stages import ElementRun, FiguresStage, PassagesStage
from ccheck.core.recipe import load_recipe
from ccheck.core.runtime import Runtime
from ccheck.core.settings import resolve
from ccheck.ingest import full_texts
from ccheck.lab.measure.context24 import ROUGE, GoldClaim, figure_scores, passage_scores, read_gold
from ccheck.pipeline.grounding import open_figures

HALVES = 20
PARTS = (
    ("caption", "place", "sentences"),
    ("caption", "cells", "place", "sentences"),
    ("caption", "cells", "sentences"),
    ("caption", "cells", "place"),
)
WEIGHTS = (0.0, 0.15, 0.3, 0.5, 1.0)
PACKAGED = "captions x2, neighbours 1, caption cells place sentences, dense 0.3"
Values = NDArray[np.float64]


def by_halves(values: Mapping[str, Values], articles: Sequence[str], names: Sequence[str]) -> None:
    """Choose on one half by the first metric, measure on the other."""
    generator, every = np.random.default_rng(0), sorted(set(articles))
    got: list[Values] = []
    chosen: dict[str, int] = {}
    for _ in range(HALVES):
        half = set(generator.permutation(every)[: len(every) // 2].tolist())
        inside = np.array([one in half for one in articles])
        best = max(values, key=lambda name: values[name][inside][:, 0].mean())
        chosen[best] = chosen.get(best, 0) + 1
        got.append(values[best][~inside].mean(0))
    mean, low, high = np.mean(got, 0), np.min(got, 0), np.max(got, 0)
    said(f"chosen on halves ({HALVES} splits)", names, mean, low, high, "least and most of the splits")
    for name, times in sorted(chosen.items(), key=lambda item: -item[1])[:5]:
        print(f"    chosen {times} times: {name}")


def by_article(values: Mapping[str, Values], articles: Sequence[str], names: Sequence[str]) -> None:
    every = np.array(articles)
    got = np.zeros_like(next(iter(values.values())))
    for article in sorted(set(articles)):
        out = every == article
        best = max(values, key=lambda name: values[name][~out][:, 0].mean())
        got[out] = values[best][out]
    said("chosen on all other articles", names, got.mean(0), *intervals(got, articles), "95 %")


def said(what: str, names: Sequence[str], mean: Values, low: Values, high: Values, of: str) -> None:
    cells = "  ".join(f"{n} {m:.3f} ({a:.3f} to {b:.3f})" for n, m, a, b in zip(names, mean, low, high, strict=True))
    print(f"{what}: {cells}  [{of}]", flush=True)


def report(values: Mapping[str, Values], articles: Sequence[str], names: Sequence[str], own: str) -> None:
    print(f"{len(values)} settings, {len(articles)} claims of {len(set(articles))} articles")
    best = max(values, key=lambda name: values[name][:, 0].mean())
    said(
        f"best of all on these claims ({best})", names, values[best].mean(0), *intervals(values[best], articles), "95 %"
    )
    said(f"packaged ({own})", names, values[own].mean(0), *intervals(values[own], articles), "95 %")
    by_article(values, articles, names)
    by_halves(values, articles, names)


def figures(folder: Path) -> None:
    articles = [one for one in full_texts(folder / "articles.zip") if isinstance(one, Article)]
    gold = read_gold(folder / "claims.jsonl")
    runtime = Runtime(resolve({}).settings)

    def scores(run: ElementRun) -> list[dict[str, float]]:
        """For each claim its article's elements, in their order, with their scores divided by the best."""
        figures = FiguresStage(runs={"one": run}, merge="scores", why=0)
        ranker, _ = open_figures(articles, load_recipe("figures").model_copy(update={"figures": figures}), runtime)
        found = []
        for claim in gold:
            by_id = {one.element.id: max(one.score, 0.0) for one in ranker.rank(claim.claim, [claim.article])}
            most = max(by_id.values()) or 1.0
            found.append({one.id: by_id[one.id] / most for one in ranker.elements[claim.article]})
        return found

    elements = candidates(FigureRanker(articles, FiguresStage(runs={"one": ElementRun()})), gold)
    dense = scores(ElementRun(text=["caption"], retriever="dense"))
    values: dict[str, Values] = {}
    for captions, neighbours, parts in itertools.product((1, 2, 3), (0, 1, 2), PARTS):
        words = scores(ElementRun(text=list(parts), captions=captions, neighbours=neighbours))
        for weight in WEIGHTS:
            name = f"captions x{captions}, neighbours {neighbours}, {' '.join(parts)}, dense {weight:g}"
            rankings: dict[str, list[str]] = {}
            for claim, one, other in zip(gold, words, dense, strict=True):
                both = {key: score + weight * other[key] for key, score in one.items()}
                rankings[claim.id] = sorted(both, key=lambda key, both=both: -both[key])  # type: ignore[misc]
            measured = figure_scores(rankings, {one.id: one.elements for one in gold}, elements)
            values[name] = np.array([[measured[one.id][metric] for metric in METRICS] for one in gold])
    report(values, [one.article for one in gold], METRICS, PACKAGED)


def candidates(ranker: FigureRanker, gold: Sequence[GoldClaim]) -> dict[str, list[str]]:
    return {one.id: [element.id for element in ranker.elements[one.article]] for one in gold}


def passages(folder: Path) -> None:
    """Expressions are those that come with ccheck, none, or learned from the passages of all other articles."""
    gold = read_gold(Path(__file__).with_name("context24-passages.jsonl"))
    wanted = frozenset(one.article for one in gold)
    articles = {one.id: one for one in full_texts(folder / "articles.zip", wanted) if isinstance(one, Article)}
    others = {
        article: listed(learn([(one.article, text) for one in gold if one.article != article for text in one.passages]))
        for article in wanted
    }
    values: dict[str, Values] = {}
    kinds = ("none", "packaged", "learned elsewhere")
    for sentences, neighbours, kind in itertools.product((1, 2, 3, 5, 8), (0, 1), kinds):
        stage = PassagesStage(sentences=sentences, neighbours=neighbours)
        rows = []
        for claim in gold:
            held: dict[str, Expressions | None] = {"packaged": packaged(), "learned elsewhere": others[claim.article]}
            expressions = held.get(kind)
            ranker = PassageRanker([articles[claim.article]], stage, expressions=expressions)
            found = [one.text for one in ranker.find(claim.claim, [claim.article])]
            measured = passage_scores({claim.id: found}, {claim.id: claim.passages})
            rows.append([measured[name] for name in ROUGE])
        values[f"{sentences} sentences, neighbours {neighbours}, expressions {kind}"] = np.array(rows)
    report(values, [one.article for one in gold], ROUGE, "5 sentences, neighbours 1, expressions packaged")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--passages", action="store_true")
    asked = parser.parse_args()
    (passages if asked.passages else figures)(asked.folder)
