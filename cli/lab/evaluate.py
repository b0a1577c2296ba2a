"""`ccheck evaluate`: recipes measured on claims with judgements."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...core.adjust import Changes, in_place_of_rerankers
from ...core.errors import UsageError
from ...core.files import check_folder, check_outputs
from .. import opt
from ..common import counted, inform, notice, replacements, settings_from, stdout
from ..progress import runtime
from .evaluate_more import evaluate_articles, evaluate_averitec, evaluate_pairs
from .tables import (
    LABEL_COLUMNS,
    Rows,
    about,
    confusion,
    differences,
    differences_json,
    figure,
    labels_row,
    print_figures,
    print_rows,
    print_table,
    table,
)

if TYPE_CHECKING:
    from rich.console import Console

    from ...core.recipe import Recipe
    from ...lab.measure.evaluate import Evaluation, EvaluationData
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
        "Measure only the judge, on labelled pairs: JSON Lines with claim, label, and evidence (the text) or doc_id (a "
        "document in the store).",
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

    With --pairs, nothing is searched: the judge reads each pair. Pairs that it can't judge count as wrong, and the exit
    code is 7.
    """
    settings = opt.settings_of(asked)
    if asked.pairs is not None:
        _check_pairs_options(asked)
        names = with_ablations(asked.recipes or (settings_from(**settings).recipe,), asked.ablation)
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
    if message := in_place_of_rerankers(chosen):
        inform(message)
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
    with runtime(chosen) as opened, open_session(opened, changes) as session:
        if session.memory.notice:
            inform(session.memory.notice)
        prepared = {name: session.prepare(recipe, data) for name, recipe in found.items()}
        points = _with_points(prepared, axes)

        def measured() -> Iterator[tuple[str, dict[str, Any], Sequence[str]]]:
            for name, one in session.evaluate_all(prepared, data):
                done[name] = one
                if name in runs:
                    write_run(runs[name], one.run, name)
                row = one.to_dict() | about(one.recipe, one.usage, chosen)
                row |= {"settings": points[name]} if name in points else {}
                inform(*(f"{name}: {message}" for message in dict.fromkeys(one.warnings) if message not in seen))
                seen.update(one.warnings)
                against = _against(done, data) if changed and asked.as_json else None
                yield name, row | differences_json(against, name), one.failures

        def show(rows: Rows) -> None:
            print_figures(rows, data.metrics)
            _show(stdout(), done, data, _against(done, data) if changed else None)

        try:
            print_rows(measured(), asked.as_json, show)
        finally:
            if done and not opt.is_quiet():
                first = next(iter(done.values()))
                notice(*coverage(data.claims, first.run, data.qrels, session.known))
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


def _check_pairs_options(asked: Evaluate) -> None:
    """Raises UsageError for what has no meaning with --pairs."""
    if len(asked.recipes) > 1:
        raise UsageError("--pairs measures one judge. Name at most one recipe")
    if asked.out is not None and asked.ablation is not None:
        raise UsageError("--out writes the answers of one judge. Leave out --ablation")
    check_outputs([(asked.out, "the answers")], (asked.pairs, *asked.recipes))
    _refuse(asked, "--pairs, which measures a judge without retrieval", "claims")


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
        if one.usage:
            console.print(f"{name}, language model calls per claim: {_asked_of_llms(one)}", style="dim")
    if compared is not None:
        print_table(console, differences(compared))
    if len(done) == 1:
        (one,) = done.values()
        _show_stages(console, one, data)
    _show_labels(console, done)


def _asked_of_llms(one: Evaluation) -> str:
    """The calls and tokens of each stage per claim: `rewrite 1 call, 120 + 40 tokens; verdict 10 calls, …`."""
    said = []
    for stage, usage in one.usage_by_stage.items():
        share = one.per_claim(usage)
        calls = f"{share['llm_calls']:g} {'call' if share['llm_calls'] == 1 else 'calls'}"
        cached = f", {share['cached']:g} from the cache" if share["cached"] else ""
        tokens = f"{share['prompt_tokens']:,.0f} + {share['completion_tokens']:,.0f} tokens"
        said.append(f"{stage} {calls}, {tokens}{cached}")
    return "; ".join(said)


def _show_stages(console: Console, one: Evaluation, data: EvaluationData) -> None:
    if len(one.stages) < 2:
        return
    made = table("stage", *data.metrics, title="Stages")
    for name, measured in one.stages_measured.items():
        made.add_row(name, *(figure(measured.mean[metric]) for metric in data.metrics))
    print_table(console, made)


def _show_labels(console: Console, done: Mapping[str, Evaluation]) -> None:
    labelled = [
        (name, kind, classified)
        for name, one in done.items()
        for kind, classified in (("stances", one.stances), ("verdicts", one.verdicts))
        if classified is not None
    ]
    if not labelled:
        return
    made = table("labels", *LABEL_COLUMNS)
    for name, kind, classified in labelled:
        made.add_row(*labels_row(f"{name}: {kind}", classified))
    print_table(console, made)
    for name, kind, classified in labelled:
        print_table(console, confusion(f"{name}: {kind}", classified))
