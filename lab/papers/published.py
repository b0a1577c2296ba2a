"""The tables that a packaged recipe's source published, in `published/RECIPE.toml`:

    [6]
    title = "Retrieval by stage"
    on = "ClimateCheck 2025, 394,269 abstracts"
    split = "test"
    metrics = ["ClimateCheck-R@2", "ClimateCheck-R@5"]

    [6.rows]
    "BM25 + Dense" = {ablation = "no-sparse", published = [0.1115, 0.2204]}

A figure is found by its table, row and metric; `split` names the part of the data that it was measured on.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

from ...core.recipe import Recipe

EVALUATE = "ccheck evaluate {recipe} --claims CLAIMS --qrels QRELS {metrics}"
"""The command of a row, unless its table or the row itself has another. CLAIMS and QRELS are files of the split."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a published table: what was run, and its figures, - where the source has none.

    What was run: the recipe with an `ablation` (or several joined with +), another `recipe` (or its ablation as
    NAME:ABLATION), or another `command` than the table's (`none`: nothing can run it). Without these it is the recipe.
    """

    published: Sequence[float | Literal["-"]] = ()
    ablation: str | None = None
    recipe: str | None = None
    command: str | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the source, by its number there: `2`, or `1-test` where one table has figures of several splits.

    `on` are the data, and `split` the part of them (train, development or test). `metrics` are the columns, as ccheck
    evaluate names them. In the `command` of its rows, or `none`, {recipe} stands for the recipe, {metrics} for --metric
    with each metric.
    """

    title: str
    on: str
    split: str
    metrics: Sequence[str]
    rows: Mapping[str, Row]
    command: str = EVALUATE

    def command_for(self, recipe: str) -> str:
        """The command that measures a recipe as this table does."""
        metrics = " ".join(f"--metric {metric}" for metric in self.metrics)
        return self.command.replace("{recipe}", recipe).replace("{metrics}", metrics).rstrip()

    def figures(self, row: str) -> dict[str, float]:
        """The published figures of a row by metric."""
        pairs = zip(self.metrics, self.rows[row].published, strict=False)
        return {metric: value for metric, value in pairs if value != "-"}


@functools.cache
def tables_of(name: str) -> Mapping[str, Table]:
    """The tables of a packaged recipe's source by their numbers; none if it has no such source."""
    file = files(__package__ or "") / "published" / f"{name}.toml"
    if not file.is_file():
        return {}
    tables = tomllib.loads(file.read_text(encoding="utf-8"))
    return {
        number: Table(**table | {"rows": {name: Row(**row) for name, row in table["rows"].items()}})
        for number, table in tables.items()
    }


def published(recipe: Recipe) -> list[dict[str, Any]]:
    """The rows of the source's tables that are about this recipe, or about the ablation of it that was loaded.

    Each with its `table`, `row` and `note`, what its figures are `on` and of which `split`, and these by metric
    (`metrics`): as `ccheck evaluate --json` prints it.
    """
    return [
        {"table": number, "row": name, "on": table.on, "split": table.split, "metrics": figures, "note": row.note}
        for number, table in tables_of(recipe.name.partition(":")[0]).items()
        for name, row in table.rows.items()
        if row.recipe is None and row.command is None and row.ablation == recipe.ablation
        if (figures := table.figures(name))
    ]
