"""Generate docs/recipes.md from the recipes and the figures measured with them.

    python -m ccheck.cli.recipe_pages > docs/recipes.md

The figures are lines of `ccheck evaluate --json` in benchmarks/recipes.jsonl, each with an optional `note`.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from ..pipeline.needs import models_used, needs_of
from ..recipe import Recipe, load_recipe, recipe_names
from ..stages import (
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
    RewritingStage,
    Sparse,
    Stage,
    VerdictStage,
)

MEASURED = Path(__file__).parents[1] / "benchmarks" / "recipes.jsonl"
_HEAD = """# Recipes

Generated with `python -m ccheck.cli.recipe_pages > docs/recipes.md`. Do not edit this page.

A recipe describes a whole pipeline. `ccheck recipes show NAME` prints one, and `--recipe NAME|FILE` runs it.
Published figures are the source's own, on its own data. The figures measured here are on other data, and another model
stands in where the original was not available. They show that the pipeline runs and what each stage contributes, not
that it reproduces the published figures. Intervals are 95% bootstrap intervals over the claims.
"""


_TABLES = """## Writing one

    ccheck recipes show default > mine.toml
    ccheck recipes check mine.toml

A recipe is a TOML file. An unknown key is an error that names the closest known key.

- `extends` names another recipe, or a file next to this one, and lays this recipe's tables over it. `false` in place of
  a table or key removes it.
- `[replace]` names models that stand in for others, like `--replace`.
- Relative file names are looked up next to the recipe first. `examples` must be in the recipe's own folder.
- A retriever's or reranker's name is its kind, unless you set `kind`. A reranker with any other name is a model.
- Results list scores under these names, so each stage needs a name of its own, other than `rrf` and `minmax`.

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
    "[evidence]": EvidenceStage,
    "[verdict]": VerdictStage,
}


def main() -> None:
    sys.stdout.write(page())


def page() -> str:
    """The whole page."""
    lines = [_HEAD]
    measured = _measured()
    for name in recipe_names():
        recipe = load_recipe(name)
        lines += [f"## {name}", "", recipe.description, ""]
        lines += _source(recipe)
        lines += _stages(recipe)
        lines += _models(recipe)
        lines += _published(recipe)
        lines += _runs([run for run in measured if run["recipe"] == name])
    lines += [_TABLES]
    for title, stage in _STAGES.items():
        lines += _keys(title, stage)
    return "\n".join(lines).rstrip() + "\n"


def _keys(title: str, stage: type[Stage]) -> list[str]:
    """A stage's docstring and its keys with their defaults."""
    lines = [f"### {title}", "", inspect.cleandoc(stage.__doc__ or ""), ""]
    lines += ["| key | default | |", "| --- | --- | --- |"]
    for name, field in stage.model_fields.items():
        if name == "kind":
            continue
        default = "must be given" if field.is_required() else _default(field.get_default(call_default_factory=True))
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
    if recipe.ingest.additional is not None:
        additional = _settings(recipe.ingest.additional, always=("summary", "posts"))
        rows.append(f"| at ingest | additional texts: {additional} |")
    rows.append(f"| verdict | {_settings(recipe.verdict, always=('method',))} |")
    return [*rows, ""]


def _settings(stage: Stage, always: tuple[str, ...] = ("depth",)) -> str:
    """The settings of a stage that differ from the defaults, and those in `always`."""
    said = stage.model_dump(mode="json", exclude_defaults=True) | {
        key: getattr(stage, key) for key in always if key in type(stage).model_fields
    }
    for key in ("examples", "calibration", "adapter"):
        if said.get(key):
            said[key] = Path(said[key]).name
    return ", ".join(f"{key} = {_value(value)}" for key, value in said.items() if key != "kind")


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_value(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return ", ".join(map(_value, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _models(recipe: Recipe) -> list[str]:
    lines = []
    for name, kind in models_used(recipe).items():
        made = recipe.fine_tuned.get(name)
        how = f", which is {made.base} after `{made.train}`" if made is not None else ""
        lines.append(f"- {kind}: {name}{how}")
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


def _published(recipe: Recipe) -> list[str]:
    if not recipe.published:
        return ["No figures were published for the whole system.", ""] if recipe.source is not None else []
    rows = ["| published | figures |", "| --- | --- |"]
    for published in recipe.published:
        note = f": {published.note}" if published.note else ""
        figures = ", ".join(f"{name} {_figure(value)}" for name, value in published.metrics.items())
        rows.append(f"| {published.on}{note} | {figures} |")
    return [*rows, ""]


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
        said = [run.get("note", ""), str(run["claims"]), figures, _shares(run), swapped or "–"]
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
    return f"{value:.3f}".lstrip("0")


def _interval(interval: list[float] | None) -> str:
    return f" ({_figure(interval[0])} to {_figure(interval[1])})" if interval else ""


def _measured() -> list[dict[str, Any]]:
    return list(_lines()) if MEASURED.is_file() else []


def _lines() -> Iterator[dict[str, Any]]:
    for line in MEASURED.read_text(encoding="utf-8").splitlines():
        if line.strip():
            yield json.loads(line)


if __name__ == "__main__":
    main()
