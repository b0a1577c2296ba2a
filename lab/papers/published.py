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
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Any, Literal

from pydantic import Field, model_validator

from ...core.recipe import Recipe
from ...core.stages import Stage

EVALUATE = "ccheck evaluate {recipe} --claims CLAIMS --qrels QRELS {metrics}"
"""The command of a row, unless its table or the row itself has another. CLAIMS and QRELS are files of the split."""


class Row(Stage):
    """A row of a published table: what was run, and its figures in the order of the table's metrics.

    Without `ablation`, `recipe` and `command` it is the recipe itself.
    """

    published: tuple[float | Literal["-"], ...] = Field(
        default=(), description="the figures, in the order of the table's metrics; - if the source has none"
    )
    ablation: str | None = Field(default=None, description="the ablation, or several joined with +")
    recipe: str | None = Field(
        default=None, description="another recipe, or another recipe's ablation as NAME:ABLATION"
    )
    command: str | None = Field(
        default=None, description="the command, if it differs from the table's; none: nothing can run it"
    )
    note: str = ""

    @model_validator(mode="after")
    def _one_system(self) -> Row:
        if sum(one is not None for one in (self.ablation, self.recipe, self.command)) > 1:
            raise ValueError("a row has one of ablation, recipe and command")
        return self


class Table(Stage):
    """A table of the source, by its number there: `2`, or `1-test` where one table has figures of several splits."""

    title: str
    on: str = Field(description="the data")
    split: str = Field(description="the part of the data: train, development or test")
    metrics: tuple[str, ...] = Field(min_length=1, description="the columns, named as ccheck evaluate names them")
    command: str = Field(
        default=EVALUATE,
        description="the command of each row: {recipe} stands for the recipe, {metrics} for --metric with each metric; "
        "or none",
    )
    rows: dict[str, Row] = Field(min_length=1)

    @model_validator(mode="after")
    def _whole_rows(self) -> Table:
        for name, row in self.rows.items():
            if row.published and len(row.published) != len(self.metrics):
                raise ValueError(
                    f"the row {name!r} has {len(row.published)} figures for {len(self.metrics)} metrics. "
                    'Write "-" for one that was not published'
                )
        return self

    def command_for(self, recipe: str) -> str:
        """The command that measures a recipe as this table does."""
        metrics = " ".join(f"--metric {metric}" for metric in self.metrics)
        return self.command.replace("{recipe}", recipe).replace("{metrics}", metrics).rstrip()

    def figures(self, row: str) -> dict[str, float]:
        """The published figures of a row by metric."""
        pairs = zip(self.metrics, self.rows[row].published, strict=False)
        return {metric: value for metric, value in pairs if value != "-"}


@dataclass(frozen=True, slots=True)
class Published:
    """A row of a table that is about the recipe as it is run, with its figures by metric."""

    table: str
    row: str
    on: str
    split: str
    metrics: Mapping[str, float]
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@functools.cache
def tables_of(name: str) -> Mapping[str, Table]:
    """The tables of a packaged recipe's source by their numbers; none if it has no such source."""
    file = files(__package__ or "") / "published" / f"{name}.toml"
    if not file.is_file():
        return {}
    return {
        number: Table.model_validate(table) for number, table in tomllib.loads(file.read_text(encoding="utf-8")).items()
    }


def published(recipe: Recipe) -> list[Published]:
    """The rows of the source's tables that are about this recipe, or about the ablation of it that was loaded."""
    return [
        Published(number, name, table.on, table.split, figures, row.note)
        for number, table in tables_of(recipe.name.partition(":")[0]).items()
        for name, row in table.rows.items()
        if row.recipe is None and row.command is None and row.ablation == recipe.ablation
        if (figures := table.figures(name))
    ]
