"""Generate docs/recipes.md from the recipes and the figures measured with them.

    python -m ccheck.cli.recipe_pages > docs/recipes.md

The figures are lines of `ccheck evaluate --json` in recipes/measured.jsonl, each with an optional `note`.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from ..core.grounding_stages import ChunkRun, ElementRun, FiguresStage, ImageRun, PassagesStage
from ..core.models import PACKAGED
from ..core.published import Table
from ..core.recipe import Recipe, load_recipe, recipe_names
from ..core.stages import (
    AdditionalStage,
    Analysis,
    Bm25,
    Dense,
    EnsembleStage,
    EvidenceStage,
    Fusion,
    LateStage,
    LearnedStage,
    ListwiseStage,
    ModelStage,
    QuestionsStage,
    RewritingStage,
    Sparse,
    Stage,
    UnitsStage,
    VerdictStage,
)
from ..pipeline.needs import Needs, models_used, needs_of
from .recipe_prompts import prompts_section
from .recipe_tables import Line, changes_of, lines_of, measured_on, read_measured, table_command

LONGEST_CHANGES = 300
"""Characters of an ablation's changes in the table of a recipe's ablations."""
_HEAD = """# Recipes

Generated with `python -m ccheck.cli.recipe_pages > docs/recipes.md`. Do not edit this page.

A recipe describes a whole pipeline. `ccheck recipes show NAME` prints one, and `--recipe NAME|FILE` runs it.
Every command also takes `NAME:ABLATION`, which is the recipe with one of its ablations; `NAME:ONE+OTHER` has both.
`ccheck recipes tables NAME` prints the tables of the recipe's source, and `ccheck evaluate NAME --ablation ONE,OTHER`
measures ablations side by side and tests the differences.
Published figures are the source's own, on its own data. In the tables below, CLAIMS and QRELS stand for that data, and
what was measured here is in the rows below the published ones. The figures measured here are on other data, and
another model stands in where the original was not available. They show that the pipeline runs and what each stage
contributes, not that it reproduces the published figures. Intervals are 95% bootstrap intervals over the claims.
"""


_WORTH = """## What each stage is worth

One metric of each comparison that a source published, on the source's data. The last column has what was measured here,
on other data and with the stand-ins that the recipe's own section names. The recipe is in bold.
"""


_ABSENT = """## Systems without a recipe

**CheckThat! 2026, task 1** (find the paper behind a post in English, German or French). We do not know which
system won. One with public code and figures of its own
([MatejBudos/CheckThat26-source-retrieval](https://github.com/MatejBudos/CheckThat26-source-retrieval), MRR@5 .650 on
development, .574 on test) searches with three views of a post: translated, in its own language, and rewritten by a
language model. Its BM25 on GPT-2's subwords counts titles and words with digits four times. It fuses the lists with RRF
(k = 15; BM25 .75, dense retrieval 1.5, 1.5 and .5), and a fine-tuned SciBERT reorders the first five papers. ccheck has
no translated view of a claim, no prefixes for a claim or paper (which E5 needs), and no weights for titles and numbers
under an analysis, so no recipe can express it. `checkthat-4b` is the closest.
"""


_TABLES = """## Writing one

    ccheck recipes show default > mine.toml
    ccheck recipes check mine.toml

A recipe is a TOML file. An unknown key is an error that names the closest known key.

- `extends` names another recipe, or a file next to this one, and lays this recipe's tables over it. `false` in place of
  a table or key removes it.
- `[ablations.NAME]` has a `description` and the tables that it lays over the recipe, for example
  `retrievers.sparse = false`.
- `[tables.NUMBER]` is a table of the source, with its `title`, the data (`on`) and their `split`, its `metrics`, and
  `rows`: `"BM25" = {ablation = "bm25-only", published = [0.07, 0.12]}`. A row can name an `ablation` (or several joined
  with `+`), another `recipe`, or its own `command`. `"-"` stands for a figure that was not published.
- `[replace]` names models that stand in for others, like `--replace`.
- Relative file names are looked up next to the recipe first. `examples` must be in the recipe's own folder.
- A retriever's or reranker's name is its kind, unless you set `kind`. A reranker with any other name is a model.
- Results list scores under these names, so each stage needs a unique name, other than `rrf` and `minmax`.

The flags and settings that choose a reranker or a judge (`--rerank`, `CCHECK_RERANK`, `--llm`, `--stance`) change a
recipe in the same way in every command and in `ccheck.open()`. For a recipe from a stranger,
[security.md](security.md) says what it can't do.
"""
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
    "[rerankers.learned]": LearnedStage,
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


def main() -> None:
    sys.stdout.write(page())


def page() -> str:
    """The whole page."""
    measured = read_measured()
    recipes = {name: load_recipe(name) for name in recipe_names()}
    lines = [_HEAD, *_contents(recipes), *_worth(recipes, measured)]
    for name, recipe in recipes.items():
        lines += [f"## {name}", "", recipe.description, ""]
        lines += _source(recipe)
        lines += _stages(recipe)
        lines += _models(recipe)
        lines += _decisions(recipe)
        lines += _ablations(recipe)
        lines += _published(recipe, measured)
        lines += _runs([run for run in measured if run["recipe"].partition(":")[0] == name])
    lines += [_ABSENT]
    lines += prompts_section()
    lines += [_TABLES]
    for title, stage in _STAGES.items():
        lines += _keys(title, stage)
    return "\n".join(lines).rstrip() + "\n"


def _contents(recipes: Mapping[str, Recipe]) -> list[str]:
    sections = ("What each stage is worth", "Systems without a recipe", "The papers' prompts", "Writing one")
    links = [f"[{name}](#{name.lower().replace(' ', '-').replace(chr(39), '')})" for name in sections]
    listed = [f"- [{name}](#{name}): {recipe.description}" for name, recipe in recipes.items()]
    return [*listed, "", f"And: {', '.join(links)}, with every stage and its keys.", ""]


def _worth(recipes: Mapping[str, Recipe], measured: list[dict[str, Any]]) -> list[str]:
    """For each table that says what stages are worth: its rows by one metric, and how far they are from the recipe."""
    lines = [_WORTH]
    for name, recipe in recipes.items():
        for number, table in recipe.tables.items():
            if table.worth is None:
                continue
            found = [line for line in lines_of(recipe, table, measured) if line.recipe or line.published]
            whole = next((one.published.get(table.worth) for one in found if one.recipe == name), None)
            lines += [f"**[{name}](#{name}), table {number}: {table.title}**", ""]
            lines += [f"| what runs | {table.worth} | to the recipe | here |", "| --- | --- | --- | --- |"]
            for line in found:
                value = line.published.get(table.worth)
                apart = "" if value is None or whole is None or line.recipe == name else f"{value - whole:+.3f}"
                here = [one["metrics"][table.worth] for one in line.measured if table.worth in one["metrics"]]
                said = f"**{line.row}**" if line.recipe == name else line.row
                cells = ["–" if value is None else _figure(value), apart, ", ".join(map(_figure, here))]
                lines += [f"| {said} | {' | '.join(cells)} |"]
            lines += [""]
    return lines


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
    for key in ("examples", "calibration", "adapter"):
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
        *(f"vectors of {need.model}" for need in needs.dense if need.model is not None),
        *([f"sparse vectors of {needs.sparse}"] if needs.sparse else []),
        *("terms of the analysis above" for _ in needs.analyses),
        *(["additional texts"] if needs.additional else []),
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
        own = " Needs a separate ingest." if _needs_more(needs_of(loaded), needs_of(recipe)) else ""
        rows.append(f"| `{name}` | {ablation.description}.{own} | {_shortened(changes_of(ablation))} |")
    return [*rows, ""]


def _shortened(changes: str) -> str:
    """Shortens a long list of changes; `ccheck recipes tables` prints all of them."""
    kept = changes[: changes.rindex(", ", 0, LONGEST_CHANGES)] if len(changes) > LONGEST_CHANGES else changes
    return f"`{kept}`" + (", and more of this kind" if kept != changes else "")


def _needs_more(needs: Needs, known: Needs) -> bool:
    """Whether a store that was made for the recipe lacks something, or has texts that the ablation must not find."""
    dense = {(need.model, need.passages) for need in needs.dense} - {(one.model, one.passages) for one in known.dense}
    return bool(
        dense
        or needs.sparse not in (None, known.sparse)
        or any(one not in known.analyses for one in needs.analyses)
        or needs.additional != known.additional
    )


def _published(recipe: Recipe, measured: list[dict[str, Any]]) -> list[str]:
    """The source's tables, with what was measured below what was published."""
    lines: list[str] = []
    for number, table in recipe.tables.items():
        lines += [f"**Table {number}: {table.title}** ({table.on}, {table.split}).", ""]
        rows = [
            f"| row | recipe | {' | '.join(table.metrics)} |",
            f"| --- | --- |{' --- |' * len(table.metrics)}",
        ]
        found = list(lines_of(recipe, table, measured))
        for line in found:
            note = f" ({line.note})" if line.note else ""
            about = f"`{line.recipe}`" if line.recipe else f"`{line.command}`" if line.command else "–"
            rows.append(f"| {line.row}{note} | {about} | {_cells(table, line.published, {})} |")
            for one in line.measured:
                cells = _cells(table, one["metrics"], one.get("intervals", {}))
                rows.append(f"| measured here: {measured_on(one)} | | {cells} |")
        lines += [*rows, ""]
        if table.command != "none" and any(line.recipe for line in found):
            lines += [f"    {table_command(table)}", ""]
        lines += _unmeasured(table, found)
    return lines


def _unmeasured(table: Table, found: Sequence[Line]) -> list[str]:
    """The rows that were not measured here, by the models that they need."""
    rows: dict[str, list[str]] = {}
    for line in found:
        if line.recipe is not None and not line.measured and (needed := _needed(table, line.recipe)):
            rows.setdefault(", ".join(needed), []).append(line.row)
    if not rows:
        return []
    return [
        "Not measured here, because these models were not available:",
        "",
        *(f"- {needed}: {', '.join(names)}" for needed, names in rows.items()),
        "",
    ]


def _needed(table: Table, reference: str) -> list[str]:
    """The models that a row of the table needs beside those that are packaged."""
    recipe = load_recipe(reference)
    if "--pairs" in table.command:  # the judge alone
        recipe = recipe.model_copy(update={"retrievers": {}, "rerankers": {}})
    elif "{metrics}" in table.command and "--verdicts" not in table.command:  # no judge
        recipe = recipe.model_copy(update={"verdict": VerdictStage(method="none")})
    return [name for name in models_used(recipe) if name not in PACKAGED]


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


if __name__ == "__main__":
    main()
