"""`ccheck calibrate`: what a judge's confidence is worth, on labelled pairs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ...core.adjust import Changes
from ...core.errors import Incomplete
from ...core.files import check_outputs
from .. import opt
from ..common import counted, print_fields, print_json, settings_from, stdout
from ..opt import options
from ..progress import progress_bar, runtime

if TYPE_CHECKING:
    from ...verdict.calibration import Kind
    from ...verdict.examples import LabelledPair


@click.command()
@click.argument("pairs", metavar="PAIRS")
@options(
    opt.file("--corpus", help="Documents, if the pairs have only their ids."),
    click.option(
        "--verdict",
        type=click.Choice(["auto", "llm", "stance"]),
        help="Verdict method to calibrate.  [default: the recipe's, auto]",
    ),
    opt.stance,
    opt.llm,
    opt.strategy,
    opt.recipe("Recipe whose judge to calibrate.  [env: CCHECK_RECIPE]"),
    click.option(
        "--kind",
        type=click.Choice(["temperature", "isotonic"]),
        default="temperature",
        show_default=True,
        help="Kind of calibration: temperature for few pairs, isotonic for a thousand or more.",
    ),
    opt.file("--output", "-o", help="Write the calibration to FILE, for a recipe to use."),
    opt.file("--plot", help="Write a reliability plot, before and after, to FILE (.png, .svg or .pdf)."),
    opt.json,
    opt.device,
    opt.quiet,
)
def calibrate(
    pairs: str,
    *,
    corpus: str | None,
    verdict: str | None,
    stance: str | None,
    llm: str | None,
    strategy: str | None,
    recipe: str | None,
    kind: Kind,
    output: str | None,
    plot: str | None,
    as_json: bool,
    device: str | None,
    quiet: bool,
) -> None:
    """Measure how reliable a judge's confidence is, and calibrate it.

    \b
    ccheck calibrate pairs.jsonl --stance FOLDER -o calibration.json
    ccheck calibrate pairs.jsonl --llm gpt-4.1-mini --strategy hybrid

    PAIRS is a JSON Lines file with claim, evidence and label. With --corpus it can have doc_id instead of evidence, or
    be SciFact's own file of claims. The error is the expected calibration error: the average
    gap between the confidence and the share of stances that are right. After calibration it is measured by
    cross-fitting, on claims that the calibration has not seen. To use the file, name it as `calibration` in the
    [verdict] table of a recipe.
    """
    from ...lab.measure.calibration import calibrate as measure
    from ...lab.measure.calibration import open_stance_method
    from ...verdict.calibration import save_calibration
    from ...verdict.examples import load_pairs

    settings = settings_from(recipe=recipe, device=device, llm_model=llm, stance_model=stance)
    check_outputs([(output, "the calibration"), (plot, "the plot")], (pairs, corpus, settings.recipe))
    found = load_pairs(Path(pairs)) if corpus is None else _pairs_of(pairs, corpus)
    changes = Changes(llm=llm, stance=stance, verdict=verdict, strategy=strategy)
    with (
        runtime(settings, quiet) as opened,
        progress_bar("judging", quiet, unit="pairs") as update,
    ):
        report = measure(open_stance_method(opened, changes), found, kind, update)
    if output is not None:
        save_calibration(report.calibration, Path(output))
    if plot is not None:
        from ...lab.measure.plots import save_reliability

        save_reliability({"before": report.before, "after": report.after}, Path(plot))
    facts = {**report.to_dict(), "output": output, "plot": plot}
    if as_json:
        print_json(facts)
    else:
        print_fields(
            stdout(), {name.replace("_", " "): str(value) for name, value in facts.items() if value is not None}
        )
    if report.failed:
        raise Incomplete(
            f"{report.failed:,} of {counted(len(found), 'pair')} could not be judged. The first: {report.reason}"
        )


def _pairs_of(pairs: str, corpus: str) -> list[LabelledPair]:
    """Pairs whose documents are in a corpus: the files that `ccheck train stance` reads."""
    from ...core.types import document_text
    from ...lab.train.stance_rows import read_rows
    from ...verdict.examples import LabelledPair

    return [
        LabelledPair(row.claim, document_text(row.title, row.text), row.label) for row in read_rows(pairs, corpus).rows
    ]
