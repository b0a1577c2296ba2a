"""`ccheck evaluate` with `--pairs` (judges alone), `--averitec` (questions) and `--articles` (inside articles)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...core.adjust import Changes, resolved
from ...core.errors import UsageError
from ...core.files import check_outputs, write_text
from ...core.text import json_line
from ...core.types import Usage
from ..common import counted, inform, replacements, stdout, usage_said
from ..progress import checker, progress_bar, runtime
from .tables import Rows, about, differences, differences_json, print_figures, print_rows, print_table, table

if TYPE_CHECKING:
    from ...articles import Article
    from ...core.settings import Settings
    from ...lab.measure.averitec import Prediction
    from ...lab.measure.pairs import PairsMeasured, StanceRow
    from .evaluate import Evaluate


def evaluate_pairs(asked: Evaluate, judges: Mapping[str, Settings]) -> None:
    """Judge the pairs of a file and print how good each judge is, and the others against the first one.

    `judges`: settings by the recipe that was named, which is their recipe. Raises what reading, opening the store and
    opening a judge raise, and Incomplete where pairs could not be judged.
    """
    from ...lab.measure.compare import compare_judges
    from ...lab.measure.pairs import answers, read_rows, with_documents
    from ...lab.measure.session import load_recipes
    from ...search import open_store

    replace = replacements(asked.replace)
    recipes = dict(zip(judges, load_recipes(list(judges), replace).values(), strict=True))
    found = read_rows(asked.pairs or "", later=True)
    if found.skipped:
        inform(found.describe())
    pairs: Sequence[StanceRow] = found.rows
    if not all(pair.text for pair in pairs):
        with open_store(next(iter(judges.values()))) as store:
            pairs = with_documents(pairs, store.get)
    done: dict[str, PairsMeasured] = {}

    def measured() -> Iterator[tuple[str, dict[str, Any], list[str]]]:
        for name, recipe in recipes.items():
            own = {old: new for old, new in replace.items() if old in recipe.replace}
            changes = Changes(llm=asked.llm, stance=asked.stance, replace=own)
            one = done[name] = _measured(pairs, changes, judges[name])
            if asked.out is not None:
                write_text(asked.out, "".join(map(json_line, answers(pairs, one))), "the answers")
            compared = compare_judges(done) if len(done) > 1 else None
            row = one.to_dict() | about(recipe, one.usage, judges[name]) | differences_json(compared, name)
            row["published"] = [known for known in row["published"] if known["metrics"].keys() & one.metrics.keys()]
            failed = one.pairs - one.judged
            said = f"{failed:,} of {counted(one.pairs, 'pair')} could not be judged and count as wrong. "
            yield name, row, [f"{said}The first: {one.reason}"] if failed else []

    def show(rows: Rows) -> None:
        _show(rows)
        if len(done) > 1:
            print_table(stdout(), differences(compare_judges(done)))

    print_rows(measured(), asked.as_json, show)


def _measured(pairs: Sequence[StanceRow], changes: Changes, settings: Settings) -> PairsMeasured:
    from ...lab.measure.calibration import open_stance_method
    from ...lab.measure.pairs import measure_pairs

    with runtime(settings) as opened, progress_bar("judging", unit="pairs") as update:
        return measure_pairs(open_stance_method(opened, changes, calibrated=True), pairs, update)


def _show(rows: Rows) -> None:
    print_figures(rows, list(next(iter(rows.values()))["metrics"]), "pairs")
    for name, row in rows.items():
        decided = row["decided"]
        said = (
            f"{name}, {row['method']}: {decided['right']:,} of {decided['pairs']:,} decided right; of "
            f"{decided['refuted']:,} refuted, {decided['refuted_said_supports']:,} said to be supported, "
            f"{decided['refuted_decided_supports']:,} of these decide"
        )
        stdout().print(said, style="dim", soft_wrap=True)
        made = table("true \\ given", *next(iter(row["confusion"].values())), "precision", "recall", title=name)
        for true, given in row["confusion"].items():
            shares = ("–" if value is None else f"{value:.3f}" for value in row["labels"][true].values())
            made.add_row(true, *(f"{count:,}" for count in given.values()), *shares)
        print_table(stdout(), made)


_SHOWN = ("Q-METEOR", "QA-METEOR", "AVeriTeC@0.25", "accuracy", "macro-F1")


def evaluate_averitec(asked: Evaluate, names: Sequence[str], files: Sequence[str], settings: Settings) -> None:
    """Print the measures of the recipes with these names, and of these files of predictions.

    Raises Incomplete if claims failed.
    """
    from ...lab.measure.averitec import open_meteor, predict, read_gold, read_predictions, score, write_predictions
    from ...lab.measure.session import load_recipes
    from ...pipeline.claims import read_claims

    recipes = load_recipes(names, replacements(asked.replace)) if names else {}
    if asked.out is not None and len(recipes) != 1:
        raise UsageError("--out writes the predictions of one recipe. Name only one")
    check_outputs([(asked.out, "the predictions")], (asked.averitec, *names, *files))
    gold = read_gold(asked.averitec or "")
    changes = Changes(llm=asked.llm, stance=asked.stance)
    meteor = open_meteor()  # what is missing says so at once

    def scored(predictions: Sequence[Prediction]) -> dict[str, Any]:
        row = score(gold, predictions, meteor).to_dict()
        if asked.ev2r is not None:
            from ...lab.measure.averitec import ev2r
            from ...llm import open_llm

            with runtime(settings) as opened:
                recall = ev2r(gold, predictions, open_llm(opened, asked.ev2r))
            row["metrics"] |= recall.to_dict()
            row["ev2r"] = {"model": asked.ev2r, "failed": recall.failed, "error": recall.error}
        return row

    def measured() -> Iterator[tuple[str, dict[str, Any], list[str]]]:
        for file in files:
            row = scored(read_predictions(file))
            yield file, row, _unjudged(row)
        for name, recipe in recipes.items():
            claims = read_claims(asked.averitec or "")
            with checker(settings, recipe=resolved(settings, changes, recipe)) as checked:
                with progress_bar(name, unit="claims") as update:
                    made = predict(checked, claims, update)
                warnings = checked.plan().warnings
            if asked.out is not None:
                write_predictions(asked.out, made.predictions)
            row = scored(made.predictions) | about(recipe, sum(made.usage_by_stage.values(), Usage()), settings)
            row |= {
                "seconds_per_claim": dict(made.seconds),
                "usage_by_stage": {stage: used.to_dict() for stage, used in made.usage_by_stage.items()},
                "errors": [{"claim": claim, "error": error} for claim, error in made.errors.items()],
            }
            for message in (*warnings, *usage_said(made.usage_by_stage)):
                inform(f"{name}: {message}")
            failed = [
                f"{counted(len(made.errors), 'claim')} failed in part. Claim {claim}: {error}"
                for claim, error in list(made.errors.items())[:1]
            ]
            yield name, row, failed + _unjudged(row)

    shown = (*_SHOWN, *(("Ev2R-Q-recall", "Ev2R-QA-recall", "Ev2R@0.5") if asked.ev2r is not None else ()))
    print_rows(measured(), asked.as_json, lambda rows: print_figures(rows, shown))


def _unjudged(row: Mapping[str, Any]) -> list[str]:
    """The message about claims that Ev2R's judge could not judge; empty if there are none."""
    judged = row.get("ev2r")
    if judged is None or not judged["failed"]:
        return []
    claims = counted(row["claims"], "claim")
    return [
        f"{judged['model']} could not judge {judged['failed']:,} of {claims}, which Ev2R leaves out. "
        f"The first: {judged['error']}"
    ]


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
