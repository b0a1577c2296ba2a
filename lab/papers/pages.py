"""The page on all recipes: their sources' tables beside what was measured, and every key. `ccheck recipes show` prints
the recipes themselves.

    python -m ccheck.lab.papers > recipes.md

The measured figures are lines of `ccheck evaluate --json` in `measured.jsonl`, each with an optional `note`.
"""

from __future__ import annotations

import inspect
import json
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from typing import Any, Literal, NamedTuple, get_args, get_origin

from pydantic import BaseModel

from ...core.grounding_stages import ChunkRun, ElementRun, FiguresStage, ImageRun, PassagesStage
from ...core.recipe import Recipe, load_recipe, recipe_names
from ...core.stages import (
    AdditionalStage,
    Analysis,
    Bm25,
    Dense,
    EnsembleStage,
    EvidenceStage,
    Fusion,
    LateStage,
    ListwiseStage,
    ModelStage,
    QuestionsStage,
    RewritingStage,
    Sparse,
    UnitsStage,
    VerdictStage,
)
from .published import row_command, row_recipe, tables_of

_HEAD = """# All recipes

Written by `python -m ccheck.lab.papers`.

Published figures are the source's own, on its own data; CLAIMS and QRELS stand for that data. What was measured here is
in the tables below the published ones. It is on other data, and other models stand in where the originals were not
available. It shows that the pipeline runs and what each stage contributes, not that it reproduces the published
figures.
Intervals are 95% bootstrap intervals over the claims.
"""
_PROMPTS = """## The papers' prompts

With `prompts = "paper"`, a language model is asked as the paper asks it, in ccheck's words. The replies are the
paper's: a label, a digit or a permutation, without reason, quotation or confidence. Three things differ on purpose.
Replies are JSON objects with that one value, because every reply is checked against a shape. Claims and abstracts are
quoted as JSON, and the model is told that they are data. If a reply can't be used, ccheck asks once more. If that fails
too, the result is an error, never a label.

| source | piece of the paper's prompt | ccheck's prompt | its words |
| --- | --- | --- | --- |"""
_STAGES: dict[str, type[BaseModel]] = {
    "[retrievers.bm25]": Bm25,
    "[retrievers.bm25.analysis]": Analysis,
    "[retrievers.dense]": Dense,
    "[retrievers.sparse]": Sparse,
    "[fusion]": Fusion,
    "[rewriting]": RewritingStage,
    "[ingest.additional]": AdditionalStage,
    "[rerankers.NAME]": ModelStage,
    "[rerankers.late]": LateStage,
    "[rerankers.ensemble]": EnsembleStage,
    "[rerankers.listwise]": ListwiseStage,
    "[questions]": QuestionsStage,
    "[ingest.units.NAME]": UnitsStage,
    "[figures]": FiguresStage,
    "[figures.runs.NAME], element-guided": ElementRun,
    "[figures.runs.NAME], chunk-guided": ChunkRun,
    "[figures.runs.NAME], image": ImageRun,
    "[passages]": PassagesStage,
    "[evidence]": EvidenceStage,
    "[verdict]": VerdictStage,
}


def page() -> str:
    """The whole page, in Markdown."""
    measured = read_measured()
    lines = [_HEAD]
    for name in recipe_names():
        recipe = load_recipe(name)
        lines += [f"## {name}", "", recipe.description, ""]
        lines += _source(recipe)
        lines += _published(recipe)
        lines += _runs([run for run in measured if run["recipe"].partition(":")[0] == name])
    lines += [_PROMPTS, *(f"| {one.source} | {one.piece} | `{one.prompt}` | {one.words} |" for one in pieces()), ""]
    lines += ["## Stages and their keys", ""]
    for title, stage in _STAGES.items():
        lines += _keys(title, stage)
    return "\n".join(lines).rstrip() + "\n"


def read_measured() -> list[dict[str, Any]]:
    """What was measured: objects that `ccheck evaluate --json` printed, some with a `note`."""
    text = (files(__package__ or "") / "measured.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


class Piece(NamedTuple):
    """A piece of a prompt in a paper, and words of the prompt (a file of the repository) that say the same."""

    source: str
    piece: str
    prompt: str
    words: str


def pieces() -> Iterator[Piece]:
    """Every piece, in the order of the papers."""
    text = (files(__package__ or "") / "prompts.toml").read_text(encoding="utf-8")
    for source in tomllib.loads(text)["source"]:
        for piece, words in source["pieces"]:
            yield Piece(source["name"], piece, source["prompt"], words)


def _keys(title: str, stage: type[BaseModel]) -> list[str]:
    """A stage's docstring and its keys with their defaults."""
    lines = [f"### {title}", "", inspect.cleandoc(stage.__doc__ or ""), ""]
    lines += ["| key | default | |", "| --- | --- | --- |"]
    for name, field in stage.model_fields.items():
        if name == "kind":
            continue
        default = "required" if field.is_required() else _default(field.get_default(call_default_factory=True))
        said = [part for part in (field.description, _choices(field.annotation)) if part]
        lines.append(f"| `{name}` | {default} | {'; '.join(said)} |")
    return [*lines, ""]


def _choices(annotation: Any) -> str:
    """The values that a key accepts, if they are listed."""
    values = [value for value in get_args(annotation) if value is not type(None)]
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{_value(value)}`" for value in values)
    return _choices(values[0]) if len(values) == 1 and get_origin(values[0]) is Literal else ""


def _default(value: Any) -> str:
    if isinstance(value, BaseModel):
        return "as below"
    return "–" if value in (None, "", {}, []) else f"`{_value(value)}`"


def _source(recipe: Recipe) -> list[str]:
    said = []
    if recipe.extends is not None:
        said.append(f"Based on [{recipe.extends}](#{recipe.extends}).")
    if recipe.source is not None:
        source = recipe.source
        where = f"{source.venue}, {source.url}" if source.url else source.venue
        said.append(f"{source.authors}: *{source.title}*. {where}.")
    return [*said, ""] if said else []


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_value(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return ", ".join(map(_value, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _published(recipe: Recipe) -> list[str]:
    """The source's tables."""
    lines: list[str] = []
    for number, table in tables_of(recipe.name).items():
        lines += [f"**Table {number}: {table.title}** ({table.on}, {table.split}).", ""]
        lines += [f"| row | runs | {' | '.join(table.metrics)} |", f"| --- | --- |{' --- |' * len(table.metrics)}"]
        for name, row in table.rows.items():
            reference = row_recipe(recipe, row)
            note = f" ({row.note})" if row.note else ""
            runs = reference or row_command(recipe, table, row)
            found = table.figures(name)
            cells = " | ".join(_figure(found[metric]) if metric in found else "–" for metric in table.metrics)
            lines.append(f"| {name}{note} | {f'`{runs}`' if runs else '–'} | {cells} |")
        if table.command != "none":
            metrics = " ".join(f"--metric {metric}" for metric in table.metrics)
            command = table.command.replace("{recipe}", "RECIPE").replace("{metrics}", metrics).rstrip()
            lines += ["", f"    {command}"]
        lines += [""]
    return lines


def _runs(runs: list[dict[str, Any]]) -> list[str]:
    if not runs:
        return []
    rows = ["| measured here | claims | figures | by stage | stand-ins |", "| --- | --- | --- | --- | --- |"]
    for run in runs:
        figures = ", ".join(
            f"{name} {_figure(value)}{_interval(run.get('intervals', {}).get(name))}"
            for name, value in run["metrics"].items()
        )
        swapped = "; ".join(f"{new} for {old}" for old, new in run.get("replaced", {}).items())
        ablation = f"`{run['recipe']}`: " if ":" in run["recipe"] else ""
        said = [ablation + run.get("note", ""), str(run["claims"]), figures, _shares(run), swapped or "–"]
        rows.append(f"| {' | '.join(said)} |")
    return [*rows, ""]


def _shares(run: dict[str, Any]) -> str:
    """The first metric for each stage, if there are several stages."""
    stages = run.get("stages", {})
    metric = next(iter(run["metrics"]))
    if len(stages) < 2:
        return "–"
    return f"{metric}: " + ", ".join(f"{name} {_figure(found[metric])}" for name, found in stages.items())


def _figure(value: float) -> str:
    """Three decimals of what lies between 0 and 1, three at most of what does not."""
    if abs(value) > 1:
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    return f"{value:.3f}".lstrip("0")


def _interval(interval: list[float] | None) -> str:
    return f" ({_figure(interval[0])} to {_figure(interval[1])})" if interval else ""
