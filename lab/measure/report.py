"""The report of an evaluation: one HTML page with tables and plots that needs nothing else. See `core/page.py`."""

from __future__ import annotations

import base64
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ... import __version__
from ...core.files import writing
from ...core.page import environment
from ...core.text import figure, seconds, shortened
from ..papers.published import published
from . import plots
from .compare import compare
from .evaluate import Evaluation, as_run
from .metrics import measure, only
from .trace import DocumentTrace, gains, trace_documents
from .types import Classified, Qrels

if TYPE_CHECKING:
    import jinja2

    from ...core.types import Usage

TOP = 10
"""Among how many first documents a relevant one is wanted, where the metrics do not say."""
MAX_CHANGES = 25
"""How many single claims the page shows as wins, and how many as losses."""
MAX_WAYS = 400
"""How many documents' ways the page has of a recipe."""
CLAIM_CHARS = 200


@dataclass(frozen=True, slots=True)
class Table:
    """Figures as text, what they are, and an image of them."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    svg: str = ""

    @property
    def url(self) -> str:
        """The image; empty if there is none."""
        return f"data:image/svg+xml;base64,{base64.b64encode(self.svg.encode()).decode()}" if self.svg else ""


def write_report(
    path: str | Path, evaluations: Mapping[str, Evaluation], qrels: Qrels, texts: Mapping[str, str], top: int = TOP
) -> None:
    """Write the page of evaluations by what they are called; `texts` are the claims by their ids.

    Raises UsageError if the file can't be written, MissingExtra without matplotlib.
    """
    with writing(path, "the report") as page:
        page.writelines(_environment().get_template("report.html").generate(_page(evaluations, qrels, texts, top)))


@functools.cache
def _environment() -> jinja2.Environment:
    return environment(__package__ or "", "report.css", figure=figure, duration=seconds, tokens=_tokens)


def _tokens(one: Evaluation, usage: Usage) -> float:
    """Tokens per claim, read and written."""
    share = one.per_claim(usage)
    return share["prompt_tokens"] + share["completion_tokens"]


def _page(evaluations: Mapping[str, Evaluation], qrels: Qrels, texts: Mapping[str, str], top: int) -> dict[str, Any]:
    first = next(iter(evaluations.values()))
    metrics = list(first.measured.mean)
    short = {claim: shortened(text, CLAIM_CHARS) for claim, text in texts.items()}
    return {
        "metrics": metrics,
        "evaluations": evaluations,
        "published": {name: list(_published(one, metrics)) for name, one in evaluations.items()},
        "recalls": _recalls({name: ({"": one.run}, only(qrels, one.run)) for name, one in evaluations.items()}),
        "against": _against(evaluations, qrels, metrics),
        "recipes": [_recipe(name, one, qrels, top) for name, one in evaluations.items()],
        "texts": short,
        "top": top,
        "version": __version__,
        "date": datetime.now(UTC),
    }


def _published(one: Evaluation, metrics: Sequence[str]) -> Iterator[dict[str, Any]]:
    for row in published(one.recipe):
        cells = [row.metrics.get(metric) for metric in metrics]
        rest = {name: value for name, value in row.metrics.items() if name not in metrics}
        said = "; ".join(filter(None, (row.label, row.note)))
        yield {"on": f"{row.on}, {row.split}", "cells": cells, "rest": rest, "note": said}


# -- plots


def _recalls(runs: Mapping[str, tuple[Mapping[str, Any], Qrels]]) -> Table:
    """Recall by depth of runs by name, each with its judgements; several of one name are told apart by their own."""
    curves: dict[str, dict[int, float]] = {}
    for name, (several, qrels) in runs.items():
        for stage, run in several.items():
            longest = max((len(ranking) for ranking in run.values()), default=0)
            cuts = plots.depths(max(1, longest))
            found = measure(run, qrels, [f"R@{cut}" for cut in cuts], resamples=2).mean
            curves[" ".join(filter(None, (name, stage)))] = {cut: found[f"R@{cut}"] for cut in cuts}
    columns = sorted({cut for curve in curves.values() for cut in curve})
    rows = [[name, *(f"{curve[cut]:.4f}" if cut in curve else "" for cut in columns)] for name, curve in curves.items()]
    return Table("Recall by depth", ["", *(f"R@{cut}" for cut in columns)], rows, plots.recall_by_depth(curves))


def _stages(one: Evaluation, traced: Sequence[DocumentTrace]) -> Table:
    moved = gains(one, traced)
    rows = []
    for name, measured in one.stages_measured.items():
        retriever = name in one.recipe.retrievers
        gain = moved[name]
        means = [figure(value, measured.intervals.get(key)) for key, value in measured.mean.items()]
        shifts = ["", ""] if retriever else [f"+{gain.won:,}", f"−{gain.lost:,}"]
        rows.append([name, *means, f"{gain.there:,}", *shifts])
    columns = ["stage", *one.measured.mean, "relevant among the first", "moved in", "moved out"]
    return Table("Metrics after each stage", columns, rows)


def _labels(kind: str, classified: Classified) -> dict[str, Any]:
    names = [label.replace("_", " ").lower() for label in classified.labels]
    counts = [[name, *(f"{count:,}" for count in row)] for name, row in zip(names, classified.confusion, strict=True)]
    caption = f"{kind.capitalize()}: true labels (rows) and predicted ones (columns)"
    tables = [Table(caption, ["true", *names], counts)]
    if classified.reliability is not None:
        bins = [one for one in classified.reliability.bins if one.count]
        rows = [
            [f"{one.low:.1f}–{one.high:.1f}", f"{one.count:,}", f"{one.confidence:.3f}", f"{one.accuracy:.3f}"]
            for one in bins
        ]
        columns = ["confidence", "labels", "mean confidence", "share right"]
        caption = f"{kind.capitalize()}: the share that is right, by confidence"
        tables.append(Table(caption, columns, rows, plots.reliability(classified.reliability)))
    return {"kind": kind, "classified": classified, "tables": tables}


# -- differences and ways


def _against(evaluations: Mapping[str, Evaluation], qrels: Qrels, metrics: Sequence[str]) -> dict[str, Any] | None:
    """The second recipe against the first, by claim."""
    if len(evaluations) < 2:
        return None
    (base, one), (name, other) = list(evaluations.items())[:2]
    both = [claim for claim in one.run if claim in other.run]
    judged = only(qrels, both)
    runs = {base: {claim: one.run[claim] for claim in both}, name: {claim: other.run[claim] for claim in both}}
    compared = compare(runs, judged, metrics, changes=len(both))
    first = compared.differences[0]
    moved = [change for change in first.changes if change.difference]
    return {
        "base": base,
        "name": name,
        "differences": compared.differences,
        "metric": first.metric,
        "wins": sorted((one for one in moved if one.difference > 0), key=lambda one: -one.difference)[:MAX_CHANGES],
        "losses": sorted((one for one in moved if one.difference < 0), key=lambda one: one.difference)[:MAX_CHANGES],
    }


def _recipe(name: str, one: Evaluation, qrels: Qrels, top: int) -> dict[str, Any]:
    traced = trace_documents(one, qrels, top)
    # Documents that end among the first and were never lost on the way are left out.
    telling = [way for way in traced if way.won or way.lost or not way.in_top]
    judged = only(qrels, one.run)
    runs = {stage: as_run(rankings, 10_000) for stage, rankings in one.stages.items()}
    tables = [_stages(one, traced), _recalls({"": (runs, judged)})] if len(one.stages) > 1 else []
    labelled = [
        _labels(kind, classified)
        for kind, classified in (("stances", one.stances), ("verdicts", one.verdicts))
        if classified is not None
    ]
    return {
        "name": name,
        "evaluation": one,
        "tables": tables,
        "labels": labelled,
        "stages": list(one.stages),
        "ways": sorted(telling, key=lambda way: (not way.lost, way.found, not way.won))[:MAX_WAYS],
        "telling": len(telling),
        "relevant": len(traced),
        "in_top": sum(way.in_top for way in traced),
        "never": sum(not way.found for way in traced),
    }
