"""`ccheck compare`: runs against each other, claim by claim."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import UsageError
from ...core.text import shortened
from .. import opt
from ..common import counted, inform, notice, print_hanging, print_json, printable, stdout
from .tables import difference_json, differences, figure, print_table, table

if TYPE_CHECKING:
    from rich.console import Console

    from ...lab.measure.types import Change, Comparison, Measured

_CLAIM_CHARS = 200


@opt.command
def compare(
    runs: tuple[str, ...] = opt.argument("RUN RUN..."),
    *,
    qrels: str = opt.qrels,
    metrics: tuple[str, ...] = opt.metrics,
    claims: str | None = opt.option("Claims file, for the text of the most-changed claims.", "FILE"),
    changes: int = opt.option("How many of the most-changed claims to show.", least=0, most=1000, default=5),
    common: bool = opt.option(
        "Compare only the claims that are in all runs. Otherwise a claim that is missing from a run counts as 0, as "
        "with trec_eval -c, because a run has no lines for a claim without hits."
    ),
    as_json: bool = opt.as_json,
) -> None:
    """Compare runs claim by claim, with significance tests.

    \b
    ccheck compare bm25.run hybrid.run --qrels qrels.tsv --claims queries.jsonl

    The first run is the baseline. RUN is a TREC run, or the output of ccheck query --json. Each difference
    has a 95% interval and the p-value of a paired two-sided randomisation test; p (Holm) is corrected for all the
    differences that are shown. Wins, losses and ties count claims.
    """
    if len(runs) < 2:
        raise UsageError("give at least two runs to compare. The first is the baseline")
    from ...lab.measure.compare import compare as compare_runs
    from ...lab.measure.datasets import read_qrels, read_run
    from ...lab.measure.metrics import DEFAULT_METRICS, check_metrics
    from ...pipeline.claims import read_claims

    names = check_metrics(metrics or DEFAULT_METRICS)
    judged = read_qrels(qrels)
    texts = {str(claim.id): claim.text for claim in read_claims(claims)} if claims is not None else {}
    read = {name: read_run(path) for name, path in _names(runs).items()}
    compared = compare_runs(read, judged, names, changes=changes, common=common)
    notice(*compared.messages)  # figures never stand without them
    if not common and any(claim not in run for run in read.values() for claim in judged):
        inform("if a run covers only some of the claims, use --common to compare the claims that all runs have")
    if as_json:
        for name, measured in compared.measured.items():
            print_json(_line(name, measured, compared, texts))
    else:
        _show(stdout(), compared, names, texts)


def _names(paths: tuple[str, ...]) -> dict[str, str]:
    """Runs by what they are called in tables: the files' names or, where two have the same, what was given."""
    if len(set(paths)) < len(paths):
        raise UsageError("the same run is given twice")
    stems = [Path(path).name.removesuffix(".gz").removesuffix(".zst").rpartition(".")[0] for path in paths]
    return {stem if stem and stems.count(stem) == 1 else path: path for stem, path in zip(stems, paths, strict=True)}


def _line(name: str, measured: Measured, compared: Comparison, texts: Mapping[str, str]) -> dict[str, Any]:
    def changed(change: Change) -> dict[str, Any]:
        about = {"id": change.claim, "text": texts.get(change.claim)}
        return {"claim": about, "baseline": change.baseline, "value": change.value}

    differences = {
        one.metric: difference_json(one) | {"changes": list(map(changed, one.changes))}
        for one in compared.differences
        if one.run == name
    }
    return {
        "run": name,
        "baseline": None if name == compared.baseline else compared.baseline,
        "metrics": measured.mean,
        "intervals": {metric: list(ends) for metric, ends in measured.intervals.items()},
        "claims": max(map(len, measured.by_claim.values())),
        "differences": differences,
    }


# -- for a person


def _show(console: Console, compared: Comparison, names: list[str], texts: Mapping[str, str]) -> None:
    made = table("run", *names, "claims")
    for run, measured in compared.measured.items():
        cells = [figure(measured.mean[name], measured.intervals.get(name)) for name in names]
        made.add_row(printable(run), *cells, f"{max(map(len, measured.by_claim.values())):,}")
    print_table(console, made)
    print_table(console, differences(compared))
    for one in compared.differences:
        if one.metric == names[0] and one.changes:
            claims = counted(len(one.changes), "claim")
            console.print(f"{printable(one.run)}: the {claims} that changed most in {one.metric}", style="bold")
            for change in one.changes:
                figures = f"  {change.difference:+.4f}  {change.baseline:.4f} -> {change.value:.4f}  "
                shown = f"{change.claim}  {shortened(texts.get(change.claim, ''), _CLAIM_CHARS)}".rstrip()
                print_hanging(console, figures, printable(shown), len(figures))
