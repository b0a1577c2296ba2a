"""`ccheck evaluate`: recipes measured on claims with judgements."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..adjust import in_place_of_rerankers
from ..errors import Incomplete, UsageError
from ..files import check_folder, check_outputs
from .common import (
    device_option,
    json_option,
    llm_option,
    model_option,
    notice,
    notice_new,
    options,
    print_json,
    quiet_option,
    remote_code_option,
    replace_option,
    replacements,
    settings_from,
    stance_option,
    stdout,
    store_option,
)
from .evaluation_options import (
    claims_option,
    depth_option,
    fresh_option,
    limit_option,
    qrels_option,
    sample_option,
    seed_option,
)
from .progress import notifier, progress_bar
from .tables import LABEL_COLUMNS, confusion, figure, labels_row, print_table, seconds, table

if TYPE_CHECKING:
    from rich.console import Console

    from ..evaluation.evaluate import Evaluation
    from ..evaluation.session import EvaluationData
    from ..stages import Published


@click.command()
@click.argument("recipes", nargs=-1, required=True, metavar="RECIPE...")
@options(
    claims_option,
    qrels_option,
    click.option("--verdicts", metavar="FILE", help="True stances and verdicts, to measure the judge as well."),
    click.option(
        "--metric",
        "metrics",
        multiple=True,
        metavar="M",
        help="Metric, as ir-measures names it (nDCG@10), or MRR@5 or ClimateCheck. Repeatable.  "
        "[default: nDCG@10, R@100]",
    ),
    depth_option,
    click.option(
        "--run",
        "run_path",
        metavar="FILE|FOLDER",
        help="Also write the rankings as TREC runs; for several recipes, to FOLDER.",
    ),
    click.option("--report", metavar="FILE", help="Also write an HTML report with tables and plots to FILE."),
    replace_option,
    limit_option,
    sample_option,
    seed_option,
    fresh_option,
    remote_code_option,
    llm_option,
    stance_option,
    json_option,
    store_option,
    model_option,
    device_option,
    quiet_option,
)
def evaluate(
    recipes: tuple[str, ...],
    *,
    claims: str,
    qrels: str,
    verdicts: str | None,
    metrics: tuple[str, ...],
    depth: int | None,
    run_path: str | None,
    report: str | None,
    replace: tuple[str, ...],
    limit: int | None,
    sample: int | None,
    seed: int,
    fresh: bool,
    trust_remote_code: bool | None,
    llm: str | None,
    stance: str | None,
    as_json: bool,
    store: str | None,
    model: str | None,
    device: str | None,
    quiet: bool,
) -> None:
    """Measure recipes on claims with judgements.

    \b
    ccheck evaluate bm25 default --claims queries.jsonl --qrels qrels.tsv
    ccheck evaluate mine.toml --claims C --qrels Q --verdicts V --report page.html

    Prints a table with 95% intervals, and any figures that were published for a recipe next to the measured ones.
    Results are cached, so an interrupted run continues where it stopped, and another recipe computes only what differs.
    Claims that fail are named and left out of the means, and the exit code is 7.
    """
    from ..evaluation.session import load_recipes, open_session, read_evaluation_data

    found = load_recipes(recipes, replacements(replace))
    settings = settings_from(
        store=store,
        embedding_model=model,
        device=device,
        llm_model=llm,
        stance_model=stance,
        trust_remote_code=trust_remote_code,
    )
    if not quiet and (message := in_place_of_rerankers(settings)):
        notice(message)
    data = read_evaluation_data(
        claims, qrels, verdicts=verdicts, metrics=metrics, depth=depth, limit=limit, sample=sample, seed=seed
    )
    runs = _run_files(run_path, list(found))
    check_outputs(
        [*((file, f"the run of {name}") for name, file in runs.items()), (report, "the report")],
        (claims, qrels, verdicts, *recipes),
    )
    done: dict[str, Evaluation] = {}
    seen: set[str] = set()
    with open_session(settings, fresh=fresh, notify=notifier(quiet)) as session:
        if session.memory.notice and not quiet:
            notice(session.memory.notice)
        try:
            for name, one in session.evaluate_all(found, data, lambda name: progress_bar(name, quiet, unit="claims")):
                done[name] = one
                if name in runs:
                    from ..evaluation.runs import write_run

                    write_run(runs[name], one.run, name)
                if as_json:
                    print_json(one.to_dict() | {"recipe": name})
                if not quiet:
                    notice_new(name, one.warnings, seen)
        finally:  # what is done is shown, also where a recipe fails or somebody interrupts
            if done and not as_json:
                _show(stdout(), done, data)
            if done and not quiet:
                from ..evaluation.metrics import coverage

                first = next(iter(done.values()))
                for message in coverage(data.claims, first.run, data.qrels, session.known):
                    notice(message)
        if report is not None:
            from ..evaluation.report import write_report

            write_report(report, done, data.qrels, {claim.id or "": claim.text for claim in data.claims})
    if failed := [f"{name}: {failure}" for name, one in done.items() for failure in one.failures]:
        raise Incomplete("; ".join(failed))


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
    return {name: folder / f"{Path(name).stem if Path(name).suffix == '.toml' else name}.run" for name in names}


# -- for a person


def _show(console: Console, done: Mapping[str, Evaluation], data: EvaluationData) -> None:
    made = table("recipe", *data.metrics, "claims", "per claim")
    for name, one in done.items():
        cells = [figure(one.measured.mean[metric], one.measured.intervals.get(metric)) for metric in data.metrics]
        star = " *" if one.remembered else ""
        made.add_row(name, *cells, f"{one.judged_claims:,}", f"{seconds(one.seconds['total'])}{star}")
        for old, new in one.recipe.replace.items():
            made.add_row(f"  {new} stands in for {old}", style="dim")
        for published in one.recipe.published:
            figures = _published(published, data.metrics)
            if any(figures):
                made.add_row(f"  published: {published.on}", *figures, style="dim")
    print_table(console, made)
    for name, one in done.items():
        if one.usage:
            console.print(f"{name}, language model calls per claim: {_asked_of_llms(one)}", style="dim", markup=False)
    if any(one.remembered for one in done.values()):
        console.print("* partly from the cache, which took no time; --fresh computes everything again", style="dim")
    for name, one in done.items():
        for published in one.recipe.published:
            known = dict(zip(data.metrics, _published(published, data.metrics), strict=True))
            others = {key: value for key, value in published.metrics.items() if not _among(key, known)}
            if others:
                said = ", ".join(f"{key} {value:g}" for key, value in others.items())
                console.print(f"{name}, published on {published.on}: {said}", style="dim", markup=False)
    if len(done) == 1:
        (one,) = done.values()
        _show_stages(console, one, data)
    _show_labels(console, done)


def _asked_of_llms(one: Evaluation) -> str:
    """What each stage asked, a claim: `rewrite 1 call, 120 + 40 tokens; verdict 10 calls, …`."""
    said = []
    for stage, usage in one.usage_by_stage.items():
        share = one.per_claim(usage)
        calls = f"{share['llm_calls']:g} {'call' if share['llm_calls'] == 1 else 'calls'}"
        cached = f", {share['cached']:g} from the cache" if share["cached"] else ""
        tokens = f"{share['prompt_tokens']:,.0f} + {share['completion_tokens']:,.0f} tokens"
        said.append(f"{stage} {calls}, {tokens}{cached}")
    return "; ".join(said)


def _show_stages(console: Console, one: Evaluation, data: EvaluationData) -> None:
    from ..evaluation.trace import gains, ways

    if len(one.stages) < 2:
        return
    top = 10
    moved = gains(one, ways(one, data.qrels, top))
    made = table("stage", *data.metrics, f"relevant in top {top}", "won", "lost", title="Stages")
    for name, measured in one.stages_measured.items():
        gain = moved[name]
        retriever = name in one.recipe.retrievers
        cells = [figure(measured.mean[metric]) for metric in data.metrics]
        made.add_row(
            name,
            *cells,
            f"{gain.there:,}",
            "" if retriever else f"+{gain.won:,}",
            "" if retriever else f"-{gain.lost:,}",
        )
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


def _published(published: Published, metrics: tuple[str, ...]) -> list[str]:
    """The published figures in the columns of the metrics."""
    by_name = {_canonical(name): value for name, value in published.metrics.items()}
    return [f"{by_name[name]:.4g}" if (name := _canonical(metric)) in by_name else "" for metric in metrics]


def _among(name: str, shown: Mapping[str, str]) -> bool:
    return any(_canonical(metric) == _canonical(name) for metric, cell in shown.items() if cell)


def _canonical(metric: str) -> str:
    """The name by which ir-measures knows a metric; as it is where a source measured something else."""
    from ..evaluation.metrics import check_metrics

    with suppress(UsageError):
        return check_metrics([metric])[0]
    return metric
