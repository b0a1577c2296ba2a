"""`ccheck evaluate --articles`: recipes that look inside articles, by Context24's measures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...core.adjust import Changes, resolved
from ...core.errors import Incomplete
from ..common import counted, inform, print_json, replacements, stdout
from ..progress import runtime
from .evaluate_pairs import cost_of
from .tables import figure, print_table, seconds, table

if TYPE_CHECKING:
    from ...articles import Article
    from ...core.settings import Settings
    from .evaluate import Evaluate


def evaluate_articles(asked: Evaluate, names: Sequence[str], settings: Settings) -> None:
    """Print the measures of the recipes with these names. Raises Incomplete if claims failed."""
    from ...lab.measure.context24 import measure, read_gold
    from ...lab.measure.session import load_recipes
    from ...lab.papers.published import published
    from ...llm.budget import price_of

    if asked.claims is None:
        raise click.MissingParameter(param_type="option", param_hint="'--claims'")
    gold = read_gold(asked.claims)
    articles, images = _read(asked.articles or "")
    rows: dict[str, dict[str, Any]] = {}
    failed: list[str] = []
    try:
        for name, recipe in load_recipes(names, replacements(asked.replace)).items():
            recipe = resolved(settings, Changes(llm=asked.llm), recipe)
            with runtime(settings) as opened:
                found = measure(recipe, gold, articles, opened, images, asked.bertscore)
            row = {"recipe": name, **found.to_dict(), "cost": cost_of(found.usage, price_of(settings))}
            row |= {"published": [one.to_dict() for one in published(recipe)], "replaced": dict(recipe.replace)}
            rows[name] = row
            if asked.as_json:
                print_json(row)
            if found.errors:
                claim, error = next(iter(found.errors.items()))
                failed.append(f"{name}: {counted(len(found.errors), 'claim')} failed. Claim {claim}: {error}")
    finally:  # what is done is shown, also where a recipe can't be opened
        if rows and not asked.as_json:
            _show(rows)
    if failed:
        raise Incomplete("; ".join(failed))


def _read(path: str) -> tuple[list[Article], list[str]]:
    """The articles, and the folder where their images are looked for."""
    from ...ingest import Reject, full_texts

    found: list[Article] = []
    for one in full_texts(path):
        if isinstance(one, Reject):
            inform(f"skipped {one.file}: {one.reason}")
        else:
            found.append(one)
    place = Path(path)
    return found, [] if place.suffix.lower() == ".zip" else [str(place if place.is_dir() else place.parent)]


def _show(rows: dict[str, dict[str, Any]]) -> None:
    names = list(dict.fromkeys(metric for row in rows.values() for metric in row["metrics"]))
    made = table("recipe", *names, "claims", "per claim")
    for recipe, row in rows.items():
        cells = [figure(row["metrics"][name]) if name in row["metrics"] else "" for name in names]
        made.add_row(recipe, *cells, f"{row['claims']:,}", seconds(row["seconds_per_claim"]["total"]))
        for one in row["published"]:
            cells = [f"{one['metrics'][name]:.4g}" if name in one["metrics"] else "" for name in names]
            made.add_row(f"  published: table {one['table']}, {one['row']}", *cells, style="dim")
    print_table(stdout(), made)
