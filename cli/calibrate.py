"""`ccheck calibrate`: what a judge's confidence is worth, on labelled pairs."""

from __future__ import annotations

from contextlib import ExitStack, closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..adjust import Changes, adjusted
from ..errors import Incomplete, InvalidData, UsageError
from ..files import check_outputs
from .common import (
    counted,
    device_option,
    json_option,
    llm_option,
    notice,
    options,
    print_fields,
    print_json,
    quiet_option,
    settings_from,
    stance_option,
    stderr,
    stdout,
    strategy_option,
)

if TYPE_CHECKING:
    from ..llm import LanguageModel
    from ..types import Label, Stance
    from ..verdict import StanceMethod
    from ..verdict.examples import LabelledPair

FOLDS = 5


@click.command()
@click.argument("pairs", metavar="PAIRS")
@options(
    click.option(
        "--verdict",
        type=click.Choice(["auto", "llm", "local-llm", "stance"]),
        help="Who judges.  [default: the recipe's, auto]",
    ),
    stance_option,
    llm_option,
    strategy_option,
    click.option("--recipe", metavar="NAME|FILE", help="The pipeline whose judge it is.  [env: CCHECK_RECIPE]"),
    click.option(
        "--kind",
        type=click.Choice(["temperature", "isotonic"]),
        default="temperature",
        show_default=True,
        help="One number, for few pairs; or a curve, for a thousand and more.",
    ),
    click.option("--output", "-o", metavar="FILE", help="Write the calibration to FILE, which a recipe names."),
    click.option("--plot", metavar="FILE", help="Draw the reliability, before and after, to FILE (.png, .svg, .pdf)."),
    json_option,
    device_option,
    quiet_option,
)
def calibrate(
    pairs: str,
    *,
    verdict: str | None,
    stance: str | None,
    llm: str | None,
    strategy: str | None,
    recipe: str | None,
    kind: str,
    output: str | None,
    plot: str | None,
    as_json: bool,
    device: str | None,
    quiet: bool,
) -> None:
    """Measure what a judge's confidence is worth, and mend it.

    \b
    ccheck calibrate pairs.jsonl --stance FOLDER -o calibration.json
    ccheck calibrate pairs.jsonl --llm gpt-4.1-mini --strategy hybrid

    PAIRS are JSON Lines of claim, evidence and label. The error is the expected calibration error: how far confidences
    are, on average, from the share of stances that are right; after calibration it is measured on claims that the
    calibration was not made from. A recipe uses the file by `calibration` in its table [verdict].
    """
    from ..verdict.calibration import fit_calibration, plot_reliability, reliability, save_calibration
    from ..verdict.examples import load_pairs
    from ..verdict.open import open_method

    settings = settings_from(recipe=recipe, device=device, llm_model=llm, stance_model=stance)
    check_outputs([(output, "the calibration"), (plot, "the plot")], (pairs, settings.recipe))
    changes = Changes(verdict=verdict, strategy=strategy)
    stage = adjusted(settings, changes).verdict.model_copy(update={"calibration": None})
    if stage.method == "none":
        raise UsageError("the recipe has no judge: name one by --stance or --llm")
    found = load_pairs(Path(pairs))
    with ExitStack() as stack:

        def language_model(name: str | None) -> LanguageModel:
            from ..llm import open_llm

            return stack.enter_context(closing(open_llm(settings, name)))

        method = open_method(stage, settings, language_model, (lambda message: None) if quiet else notice)
        stances, labels, claims, failed = _judged(method, found, quiet)
    if not stances:
        raise InvalidData(f"none of {counted(len(found), 'pair')} could be judged: {failed}")
    calibration = fit_calibration(stances, labels, method.name, "isotonic" if kind == "isotonic" else "temperature")
    before = reliability(stances, labels)
    after = reliability(*_cross_fitted(stances, labels, claims, method.name, kind))
    if output is not None:
        save_calibration(calibration, Path(output))
    if plot is not None:
        plot_reliability({"before": before, "after": after}, Path(plot))
    facts = {
        "method": method.name,
        "pairs": len(stances),
        "accuracy": round(before.accuracy, 4),
        "error_before": round(before.error, 4),
        "error_after": round(after.error, 4),
        "brier_before": round(before.brier, 4),
        "brier_after": round(after.brier, 4),
        "kind": kind,
        "temperature": calibration.temperature,
        "output": output,
        "plot": plot,
    }
    if as_json:
        print_json(facts)
    else:
        print_fields(
            stdout(), {name.replace("_", " "): str(value) for name, value in facts.items() if value is not None}
        )
    if failed:
        raise Incomplete(
            f"{len(found) - len(stances):,} of {counted(len(found), 'pair')} could not be judged: {failed}"
        )


def _judged(
    method: StanceMethod, pairs: list[LabelledPair], quiet: bool
) -> tuple[list[Stance], list[Label], list[str], str]:
    """The stances that could be had with their true labels and claims, and why the first of the others could not."""
    from rich.progress import Progress

    from ..types import Claim, Document, Evidence, Hit
    from ..verdict import Case, all_judged

    cases = [
        Case(Claim(pair.claim), (Evidence(Hit(1, Document(str(number), "", pair.evidence), 1.0)),))
        for number, pair in enumerate(pairs)
    ]
    console = stderr()
    progress = Progress(console=console, transient=True)
    stances: list[Stance] = []
    labels: list[Label] = []
    claims: list[str] = []
    failed = ""
    with progress if console.is_terminal and not quiet else nullcontext():
        for judged, pair in zip(
            progress.track(all_judged(method, cases), len(cases), description="pairs"), pairs, strict=True
        ):
            (stance,) = judged.stances
            if stance.label is None:
                failed = failed or str(stance.error)
                continue
            stances.append(stance)
            labels.append(pair.label)
            claims.append(pair.claim)
    return stances, labels, claims, failed


def _cross_fitted(
    stances: list[Stance], labels: list[Label], claims: list[str], name: str, kind: str
) -> tuple[list[Stance], list[Label]]:
    """Each stance calibrated by pairs of other claims."""
    from ..verdict.calibration import MIN_PAIRS, fit_calibration

    fold_of = {claim: number % FOLDS for number, claim in enumerate(dict.fromkeys(claims))}
    made: list[Stance] = []
    truth: list[Label] = []
    for fold in range(FOLDS):
        fitted = [i for i, claim in enumerate(claims) if fold_of[claim] != fold]
        rest = [i for i, claim in enumerate(claims) if fold_of[claim] == fold]
        if len(fitted) < MIN_PAIRS:
            raise InvalidData(
                f"{counted(len(stances), 'pair')} of {counted(len(fold_of), 'claim')} are too few to tell what a "
                f"calibration is worth: give pairs of at least {FOLDS} claims, some {2 * MIN_PAIRS} in all"
            )
        calibration = fit_calibration(
            [stances[i] for i in fitted],
            [labels[i] for i in fitted],
            name,
            "isotonic" if kind == "isotonic" else "temperature",
        )
        made += [calibration.apply(stances[i]) for i in rest]
        truth += [labels[i] for i in rest]
    return made, truth
