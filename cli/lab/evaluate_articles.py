"""`ccheck evaluate --articles`: recipes that look inside articles, by Context24's measures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...core.adjust import Changes, resolved
from ..common import counted, inform, replacements
from ..progress import runtime
from .tables import about, print_figures, print_rows

if TYPE_CHECKING:
    from ...articles import Article
    from ...core.settings import Settings
    from .evaluate import Evaluate


def evaluate_articles(asked: Evaluate, names: Sequence[str], settings: Settings) -> None:
    """Print the measures of the recipes with these names. Raises Incomplete if claims failed."""
    from ...lab.measure.context24 import measure, read_gold
    from ...lab.measure.session import load_recipes

    if asked.claims is None:
        raise click.MissingParameter(param_type="option", param_hint="'--claims'")
    gold = read_gold(asked.claims)
    articles, images = _read(asked.articles or "")

    def measured() -> Iterator[tuple[str, dict[str, Any], list[str]]]:
        for name, recipe in load_recipes(names, replacements(asked.replace)).items():
            recipe = resolved(settings, Changes(llm=asked.llm), recipe)
            with runtime(settings) as opened:
                found = measure(recipe, gold, articles, opened, images, asked.bertscore)
            failed = [
                f"{counted(len(found.errors), 'claim')} failed. Claim {claim}: {error}"
                for claim, error in list(found.errors.items())[:1]
            ]
            yield name, found.to_dict() | about(recipe, found.usage, settings), failed

    print_rows(
        measured(),
        asked.as_json,
        lambda rows: print_figures(rows, list(dict.fromkeys(one for row in rows.values() for one in row["metrics"]))),
    )


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
