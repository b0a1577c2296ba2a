"""The page on all recipes: what each one runs, its source's tables beside what was measured, and every key.

    python -m ccheck.lab.papers > recipes.md

The measured figures are lines of `ccheck evaluate --json` in `measured.jsonl`, each with an optional `note`.
"""

from __future__ import annotations

import inspect
import json
import tomllib
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin

from ...core.ablations import Ablation
from ...core.grounding_stages import ChunkRun, ElementRun, FiguresStage, ImageRun, PassagesStage
from ...core.kinds import Terms, Vectors, Weights
from ...core.recipe import Recipe, load_recipe, models_used, recipe_names
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
    Stage,
    UnitsStage,
    VerdictStage,
)
from ...pipeline.ingest import needs_of
from .published import Table, row_command, row_recipe, tables_of

LONGEST_CHANGES = 300
"""Characters of an ablation's changes in the table of a recipe's ablations."""
_HEAD = """# All recipes

Written by `python -m ccheck.lab.papers`.

Published figures are the source's own, on its own data; CLAIMS and QRELS stand for that data. What was measured here is
in the rows below the published ones. It is on other data, and other models stand in where the originals were not
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
_STAGES: dict[str, type[Stage]] = {
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
        lines += _stages(recipe)
        lines += _models(recipe)
        lines += _decisions(recipe)
        lines += _ablations(recipe)
        lines += _published(recipe, measured)
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


def _keys(title: str, stage: type[Stage]) -> list[str]:
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
    if isinstance(value, Stage):
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


def _stages(recipe: Recipe) -> list[str]:
    rows = ["| stage | settings |", "| --- | --- |"]
    for name, retriever in recipe.retrievers.items():
        rows.append(f"| {name} | {retriever.kind}: {_settings(retriever)} |")
    if len(recipe.retrievers) > 1:
        rows.append(f"| fusion | {_settings(recipe.fusion, always=('method', 'k'))} |")
    for name, reranker in recipe.rerankers.items():
        rows.append(f"| {name} | reranker, {reranker.kind}: {_settings(reranker)} |")
    rewritten = any(retriever.query != "claim" for retriever in recipe.retrievers.values())
    if rewritten:
        rows.append(f"| rewriting | {_settings(recipe.rewriting) or 'as usual'} |")
    if recipe.questions is not None:
        rows.append(f"| questions | {_settings(recipe.questions, always=('count', 'queries', 'passages'))} |")
    if recipe.ingest.additional is not None:
        additional = _settings(recipe.ingest.additional, always=("summary", "posts"))
        rows.append(f"| at ingest | additional texts: {additional} |")
    if recipe.figures is not None:
        rows.append(f"| figures | {_settings(recipe.figures, always=('merge',), without=('runs',))} |")
        for name, run in recipe.figures.runs.items():
            rows.append(f"| figures, run {name} | {run.kind}: {_settings(run, always=('retriever', 'weight'))} |")
    if recipe.passages is not None:
        rows.append(f"| passages | {_settings(recipe.passages, always=('sentences', 'neighbours', 'expressions'))} |")
    rows.append(f"| verdict | {_settings(recipe.verdict, always=('method',))} |")
    return [*rows, ""]


def _settings(stage: Stage, always: tuple[str, ...] = ("depth",), without: tuple[str, ...] = ()) -> str:
    """The settings of a stage that differ from the defaults, and those in `always`; none in `without`."""
    said = stage.model_dump(mode="json", exclude_defaults=True) | {
        key: getattr(stage, key) for key in always if key in type(stage).model_fields
    }
    for key in ("examples", "calibration"):
        if said.get(key):
            said[key] = Path(said[key]).name
    return ", ".join(f"{key} = {_value(value)}" for key, value in said.items() if key not in ("kind", *without))


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_value(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return ", ".join(map(_value, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _models(recipe: Recipe) -> list[str]:
    """The recipe's models, and those that its ablations need fine-tuned."""
    used = models_used(recipe)
    lines = [f"- {kind}: {name}{_made(recipe, name)}" for name, kind in used.items()]
    lines += [f"- of an ablation: {name}{_made(recipe, name)}" for name in recipe.fine_tuned if name not in used]
    needs = needs_of(recipe)
    own = [
        *(f"vectors of {kind.model}" for kind in needs if isinstance(kind, Vectors) and kind.model is not None),
        *(f"sparse vectors of {kind.model}" for kind in needs if isinstance(kind, Weights)),
        *("terms of the analysis above" for kind in needs if isinstance(kind, Terms)),
        *(["additional texts"] if recipe.ingest.additional else []),
    ]
    head = ["Models:", ""] if lines else []
    provided = [f"In the store: {'; '.join(own)}: `ccheck ingest FILE --recipe {recipe.name}`.", ""] if own else []
    return [*head, *lines, *([""] if lines else []), *provided]


def _made(recipe: Recipe, model: str) -> str:
    made = recipe.fine_tuned.get(model)
    return f", which is {made.base} after `{made.train}`" if made is not None else ""


def _decisions(recipe: Recipe) -> list[str]:
    if not recipe.decisions:
        return []
    return [
        "Where this differs from its source, or decides what the source leaves open:",
        "",
        *(f"- {one}" for one in recipe.decisions),
        "",
    ]


def _ablations(recipe: Recipe) -> list[str]:
    if not recipe.ablations:
        return []
    rows = ["| ablation | | changes |", "| --- | --- | --- |"]
    for name, ablation in recipe.ablations.items():
        loaded = load_recipe(f"{recipe.name}:{name}")
        own = " Needs a separate ingest." if _needs_more(loaded, recipe) else ""
        rows.append(f"| `{name}` | {ablation.description}.{own} | {_shortened(_changes_of(ablation))} |")
    return [*rows, ""]


def _changes_of(ablation: Ablation) -> str:
    """The changes of an ablation, as dotted keys: `retrievers.sparse = false`."""
    return ", ".join(f"{key} = {_as_toml(value)}" for key, value in _dotted(ablation.changes))


def _dotted(tables: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tables.items():
        if isinstance(value, dict) and value:
            yield from _dotted(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


def _as_toml(value: Any) -> str:
    if isinstance(value, str) and Path(value).is_absolute():
        value = Path(value).name  # a file beside the recipe
    return json.dumps(value, ensure_ascii=False) if not isinstance(value, bool) else str(value).lower()


def _shortened(changes: str) -> str:
    """Shortens a long list of changes, which are all in the recipe's file."""
    kept = changes[: changes.rindex(", ", 0, LONGEST_CHANGES)] if len(changes) > LONGEST_CHANGES else changes
    return f"`{kept}`" + (", and more of this kind" if kept != changes else "")


def _needs_more(recipe: Recipe, known: Recipe) -> bool:
    """Whether a store that was made for a recipe lacks something, or has texts that the other must not find."""
    new = {kind for kind in needs_of(recipe) if isinstance(kind, Vectors | Weights | Terms)} - needs_of(known).keys()
    return bool(new) or recipe.ingest.additional != known.ingest.additional


def _published(recipe: Recipe, measured: list[dict[str, Any]]) -> list[str]:
    """The source's tables, with what was measured below what was published."""
    lines: list[str] = []
    for number, table in tables_of(recipe.name).items():
        lines += [f"**Table {number}: {table.title}** ({table.on}, {table.split}).", ""]
        lines += [f"| row | runs | {' | '.join(table.metrics)} |", f"| --- | --- |{' --- |' * len(table.metrics)}"]
        for name, row in table.rows.items():
            reference = row_recipe(recipe, row)
            note = f" ({row.note})" if row.note else ""
            runs = reference or row_command(recipe, table, row)
            cells = _cells(table, table.figures(name), {})
            lines.append(f"| {name}{note} | {f'`{runs}`' if runs else '–'} | {cells} |")
            for one in measured:
                if one["recipe"] == reference and set(table.metrics) & one["metrics"].keys():
                    cells = _cells(table, one["metrics"], one.get("intervals", {}))
                    lines.append(f"| measured here: {_measured_on(one)} | | {cells} |")
        if table.command != "none":
            metrics = " ".join(f"--metric {metric}" for metric in table.metrics)
            command = table.command.replace("{recipe}", "RECIPE").replace("{metrics}", metrics).rstrip()
            lines += ["", f"    {command}"]
        lines += [""]
    return lines


def _measured_on(one: Mapping[str, Any]) -> str:
    """The conditions of a measurement: its note, its number of claims, and which models stood in for others."""
    swapped = [f"{new} for {old}" for old, new in one.get("replaced", {}).items()]
    claims = [f"{one['claims']:,} claims"] if isinstance(one.get("claims"), int) else []
    return "; ".join([*filter(None, [str(one.get("note", ""))]), *claims, *swapped])


def _cells(table: Table, figures: Mapping[str, float], intervals: Mapping[str, list[float]]) -> str:
    return " | ".join(
        f"{_figure(figures[metric])}{_interval(intervals.get(metric))}" if metric in figures else "–"
        for metric in table.metrics
    )


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
