"""`ccheck evaluate`: recipes measured on claims with judgements, judges on pairs (`--pairs`), and inside articles."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...core.adjust import Changes, resolved
from ...core.errors import UsageError
from ...core.files import check_folder, check_outputs, write_text
from ...core.text import json_line
from ...core.types import Usage
from .. import opt
from ..common import counted, inform, notice, replacements, settings_from, stdout, usage_said
from ..grounding import image_folders, read_articles
from ..progress import checker, progress_bar, runtime
from .tables import (
    Rows,
    about,
    confusion,
    differences,
    differences_json,
    figure,
    label_figures,
    print_figures,
    print_rows,
    print_table,
    table,
)

if TYPE_CHECKING:
    from rich.console import Console

    from ...core.recipe import Recipe
    from ...core.settings import Settings
    from ...lab.measure.averitec import Prediction
    from ...lab.measure.evaluate import Evaluation, EvaluationData
    from ...lab.measure.pairs import PairsMeasured, StanceRow
    from ...lab.measure.types import Comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluate:
    """The arguments and options of `ccheck evaluate`."""

    recipes: tuple[str, ...] = opt.argument("[RECIPE]...", required=False)
    claims: str | None = opt.option(opt.CLAIMS_HELP, "FILE", heading=opt.EVERYDAY)
    qrels: str | None = opt.option(opt.QRELS_HELP, "FILE")
    verdicts: str | None = opt.option("True stances and verdicts, to measure the judge as well.", "FILE")
    metrics: tuple[str, ...] = opt.metrics
    ablation: str | None = opt.option(
        "Also measure the recipe with these ablations, or with all of them, and test the differences. ccheck recipes "
        "show prints them.",
        "A,B",
    )
    grid: tuple[str, ...] = opt.option(
        "Also measure the recipe with each of these values of a setting: fusion.k=10,20,60. A stage can be true or "
        "false: retrievers.dense=true,false. Repeatable, for all combinations.",
        "KEY=V,V",
    )
    run: str | None = opt.option("Also write the rankings as TREC runs; for several recipes, to FOLDER.", "FILE|FOLDER")
    as_json: bool = opt.as_json
    store: str | None = opt.store
    pairs: str | None = opt.option(
        "Measure only the recipes' judges, on labelled pairs: JSON Lines with claim, label, and evidence (the text) or "
        "doc_id (a document in the store).",
        "FILE",
        heading="Judges and questions",
    )
    out: str | None = opt.option(
        "Also write the answers: with --pairs as JSON Lines, with --averitec as the task's prediction file.",
        "FILE",
    )
    averitec: str | None = opt.option(
        "Measure recipes that ask questions with AVeriTeC's own measures, on the rows of its data. RECIPE can also be "
        "a prediction file (.json).",
        "FILE",
    )
    ev2r: str | None = opt.option("With --averitec: also let this language model judge the recall (Ev2R).", "MODEL")
    articles: str | None = opt.option(
        "Measure recipes with a table [figures] or [passages] on these articles, with Context24's measures. --claims "
        "has the claims and what grounds them.",
        "FOLDER|ZIP",
    )
    bertscore: str | None = opt.option("With --articles: also BERTScore, with this model.", "MODEL")
    llm: str | None = opt.under(opt.ADVANCED, opt.llm)
    stance: str | None = opt.stance
    replace: tuple[str, ...] = opt.replace


@opt.command
def evaluate(asked: Evaluate) -> None:
    """Measure recipes on claims with judgements.

    \b
    ccheck evaluate bm25 default --claims queries.jsonl --qrels qrels.tsv
    ccheck evaluate mine.toml --claims C --qrels Q --verdicts V --run mine.run
    ccheck evaluate climatecheck-hybrid --ablation all --claims C --qrels Q
    ccheck evaluate default --grid fusion.k=10,20,60 --claims C --qrels Q
    ccheck evaluate --pairs pairs.jsonl --llm gpt-4.1-mini --json
    ccheck evaluate averitec-questions --averitec dev.jsonl --out p.json
    ccheck evaluate context24-passages --articles papers/ --claims gold.json

    Prints a table with 95% intervals, and any figures that were published for a recipe next to the measured ones.
    Results are cached, so an interrupted run continues where it stopped, and another recipe computes only what differs.
    Claims that fail are named and left out of the means, and the exit code is 7.

    With --pairs, nothing is searched: the judge of each recipe reads each pair. Pairs that it can't judge count as
    wrong, and the exit code is 7.
    """
    settings = opt.settings_of(asked)
    if asked.pairs is not None:
        check_outputs([(asked.out, "the answers")], (asked.pairs, *asked.recipes))
        _refuse(asked, "--pairs, which measures a judge without retrieval", "claims")
        names = with_ablations(asked.recipes or (settings_from(**settings).recipe,), asked.ablation)
        if asked.out is not None and len(names) > 1:
            raise UsageError("--out writes the answers of one judge. Name one recipe, without --ablation")
        evaluate_pairs(asked, {name: settings_from(**settings, recipe=name) for name in names})
        return
    if not asked.recipes:
        raise click.MissingParameter(param_type="argument", param_hint="'RECIPE...'")
    if asked.averitec is not None:
        named = tuple(name for name in asked.recipes if not name.endswith(".json"))
        files = [name for name in asked.recipes if name not in named]
        chosen = settings_from(**settings)
        evaluate_averitec(asked, with_ablations(named, asked.ablation) if named else [], files, chosen)
        return
    if asked.articles is not None:
        _refuse(asked, "--articles, which measures inside articles", "out", "ev2r", "store", "stance")
        evaluate_articles(asked, with_ablations(asked.recipes, asked.ablation), settings_from(**settings))
        return
    from ...lab.measure.datasets import write_run
    from ...lab.measure.metrics import coverage
    from ...lab.measure.session import load_recipes, open_session, parse_grid, read_evaluation_data

    if any(one is not None for one in (asked.out, asked.ev2r, asked.bertscore)):
        raise UsageError("--out needs --pairs or --averitec, --ev2r needs --averitec, and --bertscore --articles")
    if asked.claims is None or asked.qrels is None:
        missing = "--claims" if asked.claims is None else "--qrels"
        raise click.MissingParameter(param_type="option", param_hint=f"'{missing}'")
    found = load_recipes(with_ablations(asked.recipes, asked.ablation), replacements(asked.replace))
    axes = parse_grid(asked.grid)
    if axes and (len(found) > 1 or asked.run is not None):
        raise UsageError("--grid changes one recipe, and its rankings are not written: leave out the others and --run")
    chosen = settings_from(**settings)
    if chosen.rerank is not None:
        origin = chosen.origins["rerank"]
        inform(f"the reranker {chosen.rerank} replaces the recipes' own (the setting rerank, from {origin})")
    data = read_evaluation_data(asked.claims, asked.qrels, verdicts=asked.verdicts, metrics=asked.metrics)
    runs = _run_files(asked.run, list(found))
    check_outputs(
        [(file, f"the run of {name}") for name, file in runs.items()],
        (asked.claims, asked.qrels, asked.verdicts, *asked.recipes),
    )
    done: dict[str, Evaluation] = {}
    seen: set[str] = set()
    changes = Changes(llm=asked.llm, stance=asked.stance)
    changed = asked.ablation is not None or bool(axes)
    say = inform if asked.as_json else notice  # rows of JSON have the warnings too; figures never stand without them
    with runtime(chosen) as opened, open_session(opened, changes) as session:
        inform(*filter(None, [session.memory.cache.notice]))
        prepared = {name: session.prepare(recipe, data) for name, recipe in found.items()}
        points = _with_points(prepared, axes)
        known = functools.cache(session.known)

        def measured() -> Iterator[tuple[str, dict[str, Any], Sequence[str]]]:
            for name, one in session.evaluate_all(prepared, data):
                done[name] = one
                if name in runs:
                    write_run(runs[name], one.run, name)
                row = one.to_dict() | about(one.recipe, one.usage, chosen)
                row |= {"settings": points[name]} if name in points else {}
                row["warnings"] += coverage(data.claims, one.run, data.qrels, data.metrics, known)
                say(*(f"{name}: {message}" for message in dict.fromkeys(one.warnings) if message not in seen))
                seen.update(one.warnings)
                against = _against(done, data) if changed and asked.as_json else None
                yield name, row | differences_json(against, name), one.failures

        def show(rows: Rows) -> None:
            print_figures(rows, data.metrics)
            _show(stdout(), done, data, _against(done, data) if changed else None)

        try:
            print_rows(measured(), asked.as_json, show)
        finally:
            if done:
                first = next(iter(done.values()))
                say(*coverage(data.claims, first.run, data.qrels, data.metrics, known))
            if axes:
                inform(
                    "the best of several settings looks better than it is on the claims that chose it. Measure it once "
                    "on other claims"
                )


def _with_points(prepared: dict[str, Recipe], axes: Mapping[str, Sequence[Any]]) -> dict[str, dict[str, Any]]:
    """Add the only recipe's combinations of a grid to it. Returns the settings of each by its name."""
    if not axes:
        return {}
    from ...lab.measure.session import points_of

    points = points_of(next(iter(prepared.values())), axes)
    if left := math.prod(map(len, axes.values())) - len(points):
        inform(f"{counted(left, 'combination')} left out, because no retriever is left")
    prepared |= {recipe.name: recipe for _, recipe in points}
    return {recipe.name: settings for settings, recipe in points}


def _refuse(asked: Evaluate, other: str, *more: str) -> None:
    """Raises UsageError for options that have no meaning with another one, which measures no retrieval."""
    useless = (*more, "qrels", "verdicts", "metrics", "run", "grid")
    if given := [{"metrics": "metric"}.get(name, name) for name in useless if getattr(asked, name)]:
        said = ", ".join(f"--{name}" for name in given)
        raise UsageError(f"{said} can't be used with {other}")


def _run_files(path: str | None, names: list[str]) -> dict[str, Path]:
    """Where the run of each recipe goes. Raises UsageError."""
    if path is None:
        return {}
    if len(names) == 1 and not Path(path).is_dir():
        return {names[0]: Path(path)}
    folder = Path(path)
    if path == "-" or folder.is_file():
        raise UsageError(f"{path} is not a folder. The runs of several recipes need one")
    check_folder(folder, "the runs")
    folder.mkdir(parents=True, exist_ok=True)
    stems = {name: (Path(name).stem if Path(name).suffix == ".toml" else name).replace(":", "-") for name in names}
    return {name: folder / f"{stem}.run" for name, stem in stems.items()}


def with_ablations(recipes: tuple[str, ...], ablation: str | None) -> list[str]:
    """The recipes, and for the only one of them the names with which its ablations are loaded.

    Raises UsageError for ablations of several recipes, and NotFound for a recipe without any.
    """
    if ablation is None:
        return list(recipes)
    if not recipes:
        raise UsageError("--ablation needs the recipe that it changes")
    if len(recipes) > 1:
        raise UsageError("--ablation changes one recipe. Give only one, or name ablations as RECIPE:ABLATION")
    from ...core.recipe import load_recipe

    (recipe,) = recipes
    names = [one.strip() for one in ablation.split(",") if one.strip()]
    if names == ["all"]:
        names = list(load_recipe(recipe).ablations)
    if not names:
        raise UsageError(f"the recipe {recipe} has no ablations. Add [ablations.NAME] tables to its file")
    return [recipe, *(f"{recipe}:{name}" for name in names)]


def _against(done: Mapping[str, Evaluation], data: EvaluationData) -> Comparison | None:
    """Every recipe so far against the first one, over the claims that all of them answered."""
    if len(done) < 2:
        return None
    from ...lab.measure.compare import compare

    return compare({name: one.run for name, one in done.items()}, data.qrels, data.metrics, changes=0, common=True)


# -- for a person


def _show(
    console: Console, done: Mapping[str, Evaluation], data: EvaluationData, compared: Comparison | None = None
) -> None:
    """What stands below the table of figures: language models, differences, stages and labels."""
    for name, one in done.items():
        for said in usage_said(one.usage_by_stage):
            console.print(f"{name}, {said}", style="dim")
    if compared is not None:
        print_table(console, differences(compared))
    if len(done) == 1:
        (one,) = done.values()
        made = table("stage", *data.metrics, title="Stages")
        for name, measured in one.stages_measured.items() if len(one.stages_measured) > 1 else ():
            made.add_row(name, *(figure(measured.mean[metric]) for metric in data.metrics))
        if made.rows:
            print_table(console, made)
    _show_labels(console, done)


def _show_labels(console: Console, done: Mapping[str, Evaluation]) -> None:
    labelled = [
        (f"{name}: {kind}", classified)
        for name, one in done.items()
        for kind, classified in (("stances", one.stances), ("verdicts", one.verdicts))
        if classified is not None
    ]
    if not labelled:
        return
    made = table("labels", *label_figures(labelled[0][1]))
    for name, classified in labelled:
        made.add_row(name, *label_figures(classified).values())
    print_table(console, made)
    for name, classified in labelled:
        print_table(console, confusion(name, classified))


# -- judges alone, questions, and what articles hold


def evaluate_pairs(asked: Evaluate, judges: Mapping[str, Settings]) -> None:
    """Judge the pairs of a file and print how good each judge is, and the others against the first one.

    `judges`: settings by the recipe that was named, which is their recipe. Raises what reading, opening the store and
    opening a judge raise, and Incomplete where pairs could not be judged.
    """
    from ...lab.measure.calibration import open_stance_method
    from ...lab.measure.compare import compare_judges
    from ...lab.measure.pairs import answers, measure_pairs, read_rows, seen_in_training, with_documents
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
            with runtime(judges[name]) as opened, progress_bar("judging", unit="pairs") as update:
                method = open_stance_method(opened, changes, calibrated=True)
                one = done[name] = measure_pairs(method, pairs, update)
            if asked.out is not None:
                write_text(asked.out, "".join(map(json_line, answers(pairs, one))), "the answers")
            compared = compare_judges(done) if len(done) > 1 else None
            row = one.to_dict() | about(recipe, one.usage, judges[name]) | differences_json(compared, name)
            row["published"] = [known for known in row["published"] if known["metrics"].keys() & one.metrics.keys()]
            row["warnings"] = seen_in_training(one.method)
            notice(*row["warnings"])
            failed = one.pairs - one.judged
            said = f"{failed:,} of {counted(one.pairs, 'pair')} could not be judged and count as wrong. "
            yield name, row, [f"{said}The first: {one.reason}"] if failed else []

    def show(rows: Rows) -> None:
        _show_pairs(rows)
        if len(done) > 1:
            print_table(stdout(), differences(compare_judges(done)))

    print_rows(measured(), asked.as_json, show)


def _show_pairs(rows: Rows) -> None:
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
    from ...lab.measure.averitec import (
        EV2R,
        mismatches,
        open_meteor,
        predict,
        read_gold,
        read_predictions,
        require_questions,
        score,
        write_predictions,
    )
    from ...lab.measure.session import load_recipes
    from ...pipeline.claims import read_claims

    recipes = load_recipes(names, replacements(asked.replace)) if names else {}
    if asked.out is not None and len(recipes) != 1:
        raise UsageError("--out writes the predictions of one recipe. Name only one")
    check_outputs([(asked.out, "the predictions")], (asked.averitec, *names, *files))
    gold = read_gold(asked.averitec or "")
    changes = Changes(llm=asked.llm, stance=asked.stance)
    for recipe in recipes.values():
        require_questions(recipe)
    meteor = open_meteor()  # what is missing says so at once

    def scored(name: str, predictions: Sequence[Prediction]) -> tuple[dict[str, Any], list[str]]:
        row, unjudged = score(gold, predictions, meteor), []
        row["warnings"] = mismatches(gold, predictions)
        notice(*(f"{name}: {one}" for one in row["warnings"]))
        if asked.ev2r is not None:
            from ...lab.measure.averitec import ev2r
            from ...llm.model import open_llm

            with runtime(settings) as opened:
                recall = ev2r(gold, predictions, open_llm(opened, asked.ev2r))
            row["metrics"] |= recall.metrics
            row["ev2r"] = {"model": asked.ev2r, "failed": recall.failed, "error": recall.error}
            if recall.failed:
                some = f"{recall.failed:,} of {counted(row['claims'], 'claim')}, which Ev2R leaves out"
                unjudged = [f"{asked.ev2r} could not judge {some}. The first: {recall.error}"]
        return row, unjudged

    def measured() -> Iterator[tuple[str, dict[str, Any], list[str]]]:
        for file in files:
            yield file, *scored(Path(file).name, read_predictions(file))
        for name, recipe in recipes.items():
            claims = read_claims(asked.averitec or "")
            with checker(settings, recipe=resolved(settings, changes, recipe)) as checked:
                with progress_bar(name, unit="claims") as update:
                    made = predict(checked, claims, update)
                warnings = checked.plan().warnings
            if asked.out is not None:
                write_predictions(asked.out, made.predictions)
            row, unjudged = scored(name, made.predictions)
            row |= about(recipe, sum(made.usage_by_stage.values(), Usage()), settings)
            row |= {
                "seconds_per_claim": dict(made.seconds),
                "usage_by_stage": {stage: used.to_dict() for stage, used in made.usage_by_stage.items()},
                "errors": [{"claim": claim, "error": error} for claim, error in made.errors.items()],
            }
            for message in (*warnings, *usage_said(made.usage_by_stage)):
                inform(f"{name}: {message}")
            yield name, row, _first(made.errors, "failed, wholly or in part") + unjudged

    shown = (*_SHOWN, *(EV2R if asked.ev2r is not None else ()))
    print_rows(measured(), asked.as_json, lambda rows: print_figures(rows, shown))


def _first(errors: Mapping[str, str], what: str) -> list[str]:
    """How many claims did what, with the first of their errors; empty if there are none."""
    return [f"{counted(len(errors), 'claim')} {what}. Claim {claim}: {errors[claim]}" for claim in list(errors)[:1]]


def evaluate_articles(asked: Evaluate, names: Sequence[str], settings: Settings) -> None:
    """Print the measures of the recipes with these names. Raises Incomplete if claims failed."""
    from ...lab.measure.context24 import marked, measure, read_gold
    from ...lab.measure.session import load_recipes

    if asked.claims is None:
        raise click.MissingParameter(param_type="option", param_hint="'--claims'")
    gold, changes = read_gold(asked.claims), Changes(llm=asked.llm)
    loaded = load_recipes(names, replacements(asked.replace))
    recipes = {name: resolved(settings, changes, recipe) for name, recipe in loaded.items()}
    for recipe in recipes.values():
        marked(recipe, gold)  # raises what keeps it from being measured
    articles, unread = read_articles(asked.articles or "")
    inform(*(f"skipped {reason}" for reason in unread))

    def measured() -> Iterator[tuple[str, dict[str, Any], list[str]]]:
        for name, recipe in recipes.items():
            with runtime(settings) as opened:
                found = measure(recipe, gold, articles, opened, image_folders(asked.articles or ""), asked.bertscore)
            yield name, found.to_dict() | about(recipe, found.usage, settings), _first(found.errors, "failed")

    def show(rows: Rows) -> None:
        print_figures(rows, list(dict.fromkeys(one for row in rows.values() for one in row["metrics"])))

    print_rows(measured(), asked.as_json, show)
