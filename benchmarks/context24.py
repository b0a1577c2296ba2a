"""Which figure or table of an article a claim is about: every way of ranking them, on claims whose element is known.

    python benchmarks/context24.py PLOS_FOLDER [--only NAME ...] [--claims FILE]

PLOS_FOLDER has `articles.zip` and `claims.jsonl`. Prints nDCG@5, nDCG@10 and hit@1 with 95 % bootstrap intervals over
articles (the claims of one article are not independent), and seconds a claim. The ways are the ablations of the recipe
context24-figures that need no model but the packaged one. `--claims` takes other claims: those of
`context24-paraphrases.jsonl` beside this file say the same in other words. `--times` measures articles of growing
length instead.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ccheck.articles import Article
from ccheck.articles.builder import ArticleBuilder, Line
from ccheck.articles.figures import FigureRanker
from ccheck.articles.types import Element
from ccheck.core.recipe import load_recipe
from ccheck.core.runtime import Runtime
from ccheck.core.settings import resolve
from ccheck.ingest import full_texts
from ccheck.lab.measure.context24 import figure_scores, read_gold
from ccheck.pipeline.grounding import figures_stage, open_figures, open_passages

WAYS = [
    *("figures:captions", "figures:captions-dense"),
    *("context24-figures:bm25-100", "context24-figures:bm25-100-captions", "context24-figures:bm25-semantic"),
    *("context24-figures:chunks-sentence", "context24-figures:chunks-paragraph", "context24-figures:chunks-128"),
    *("context24-figures:chunks-256", "context24-figures:chunks-512", "context24-figures:chunks-1024"),
    *("context24-figures:chunks-512-first", "context24-figures:hierarchical"),
    *("context24-figures:hierarchical-captions", "figures:no-dense", "figures"),
]
METRICS = ("nDCG@5", "nDCG@10", "hit@1")


def intervals(values: np.ndarray, articles: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """2.5 and 97.5 percentiles of the means over 2,000 resamples of the articles."""
    groups = [values[[one == article for one in articles]] for article in sorted(set(articles))]
    generator = np.random.default_rng(0)
    sums, counts = np.array([one.sum(0) for one in groups]), np.array([len(one) for one in groups])
    picks = generator.integers(0, len(groups), (2000, len(groups)))
    means = sums[picks].sum(1) / counts[picks].sum(1)[:, None]
    return np.percentile(means, 2.5, axis=0), np.percentile(means, 97.5, axis=0)


def measure(folder: Path, claims: Path, only: Sequence[str]) -> None:
    articles = [one for one in full_texts(folder / "articles.zip") if isinstance(one, Article)]
    gold = read_gold(claims)
    runtime = Runtime(resolve({}).settings)
    captions: np.ndarray | None = None
    print(f"{len(gold)} claims, {len(articles)} articles")
    for name in only if only else ["random", *WAYS]:
        started = time.perf_counter()
        if name == "random":
            ranker = FigureRanker(articles, figures_stage(load_recipe("figures:captions")))
            shuffle = random.Random(0)
            ranked = {one.id: ranker.elements[one.article] for one in gold}
            rankings = {key: [e.id for e in shuffle.sample(some, len(some))] for key, some in ranked.items()}
        else:
            ranker, _ = open_figures(articles, load_recipe(name), runtime)
            rankings = {one.id: [e.element.id for e in ranker.rank(one.claim, [one.article])] for one in gold}
        seconds = time.perf_counter() - started
        elements = {one.id: [e.id for e in ranker.elements[one.article]] for one in gold}
        scores = figure_scores(rankings, {one.id: one.elements for one in gold}, elements)
        values = np.array([[scores[one.id][metric] for metric in METRICS] for one in gold])
        low, high = intervals(values, [one.article for one in gold])
        means = values.mean(0)
        said = "  ".join(
            f"{m} {v:.3f} ({a:.3f} to {b:.3f})" for m, v, a, b in zip(METRICS, means, low, high, strict=True)
        )
        print(f"{name:39} {said}  {seconds / len(gold):.3f} s", flush=True)
        captions = values if name == "figures:captions" else captions
        if name == "figures" and captions is not None:
            low, high = intervals(values - captions, [one.article for one in gold])
            better = (values - captions).mean(0)
            said = "  ".join(
                f"{m} {v:+.3f} ({a:+.3f} to {b:+.3f})" for m, v, a, b in zip(METRICS, better, low, high, strict=True)
            )
            print(f"{'better than captions':22} {said}")


def made(paragraphs: int, figures: int, seed: int = 0) -> Article:
    """An article of words drawn at random; a page has about 10 paragraphs."""
    draw = random.Random(seed)
    words = [f"word{n}" for n in range(5000)]
    builder = ArticleBuilder()
    for number in range(paragraphs):
        sentences = [" ".join(draw.choices(words, k=20)).capitalize() + "." for _ in range(5)]
        if figures and number % max(1, paragraphs // figures) == 0:
            sentences[2] = f"{sentences[2][:-1]} (Fig. {number // max(1, paragraphs // figures) + 1})."
        builder.paragraph(Line.of(" ".join(sentences)))
    for number in range(1, figures + 1):
        caption = " ".join(draw.choices(words, k=60))
        builder.element(Element(f"f{number}", "figure", f"Figure {number}", caption), floating=True)
    return builder.article(f"made-{seed}", "Made")


def times() -> None:
    """Seconds for figures and passages of one claim, the first of its article, without cached embeddings."""
    settings = resolve({"cache_bytes": 0}).settings
    ways = [load_recipe("figures:no-dense"), load_recipe("figures")]
    claim = "word1 word2 word3 word4 word5 word6"
    for pages, figures in ((10, 10), (30, 30), (100, 100), (300, 100), (10, 0)):
        article, runtime, row = made(10 * pages, figures), Runtime(settings), []
        for way in ways:
            started = time.perf_counter()
            open_figures([article], way, runtime)[0].rank(claim, [article.id])
            row.append(time.perf_counter() - started)
        started = time.perf_counter()
        open_passages([article], load_recipe("passages"), runtime).find(claim, [article.id])
        row.append(time.perf_counter() - started)
        said = f"figures, words alone {row[0]:.2f} s, the recipe {row[1]:.2f} s, passages {row[2]:.2f} s"
        print(f"{pages:4} pages, {figures:3} figures, {len(article.text):,} characters: {said}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--claims", type=Path)
    parser.add_argument("--times", action="store_true")
    asked = parser.parse_args()
    if asked.times:
        times()
    else:
        measure(asked.folder, asked.claims or asked.folder / "claims.jsonl", asked.only)
    print(json.dumps({"numpy": np.__version__}))
