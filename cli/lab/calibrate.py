"""`ccheck calibrate`: what a judge's confidence is worth, on labelled pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from ...core.adjust import Changes
from ...core.errors import Incomplete
from ...core.files import check_outputs
from .. import opt
from ..common import inform, notice, print_answer, settings_from
from ..progress import progress_bar, runtime


@opt.command
def calibrate(
    pairs: str = opt.argument("PAIRS"),
    *,
    corpus: str | None = opt.option("Documents, if the pairs have only their ids.", "FILE"),
    verdict: Literal["auto", "llm", "stance"] | None = opt.option(
        "Verdict method to calibrate.  [default: the recipe's, auto]"
    ),
    stance: str | None = opt.stance,
    llm: str | None = opt.llm,
    recipe: str | None = opt.recipe("Recipe whose judge to calibrate.  [env: CCHECK_RECIPE]"),
    output: str | None = opt.output("Write the calibration to FILE, for a recipe to use."),
    as_json: bool = opt.as_json,
) -> None:
    """Measure how reliable a judge's confidence is, and calibrate it.

    \b
    ccheck calibrate pairs.jsonl --stance FOLDER -o calibration.json
    ccheck calibrate pairs.jsonl --llm gpt-4.1-mini --json

    PAIRS is a JSON Lines file with claim, evidence and label. With --corpus it can have doc_id instead of evidence, or
    be SciFact's own file of claims. The error is the expected calibration error: the average
    gap between the confidence and the share of stances that are right. After calibration it is measured by
    cross-fitting, on claims that the calibration has not seen. To use the file, name it as `calibration` in the
    [verdict] table of a recipe.
    """
    from ...lab.measure.calibration import calibrate as measure
    from ...lab.measure.calibration import open_stance_method
    from ...lab.measure.pairs import read_rows, seen_in_training
    from ...verdict.calibration import save_calibration

    settings = settings_from(stance_model=stance, llm_model=llm, recipe=recipe)
    check_outputs([(output, "the calibration")], (pairs, corpus, settings.recipe))
    found = read_rows(pairs, corpus)
    if found.skipped:
        inform(found.describe())
    with runtime(settings) as opened, progress_bar("judging", unit="pairs") as update:
        method = open_stance_method(opened, Changes(llm=llm, stance=stance, verdict=verdict))
        report = measure(method, found.rows, update)
    if output is not None:
        save_calibration(report.calibration, Path(output))
    facts = {**report.to_dict(), "output": output}
    said = {name.replace("_", " "): str(value) for name, value in facts.items() if value is not None}
    warnings = [*seen_in_training(report.calibration.method), *report.doubts]
    print_answer(as_json, {**facts, "warnings": warnings}, said)
    notice(*warnings)
    if report.failed:
        raise Incomplete(f"{report.failed:,} of {len(found.rows):,} pairs were not judged. The first: {report.reason}")
