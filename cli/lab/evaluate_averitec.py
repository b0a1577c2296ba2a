"""`ccheck evaluate --averitec`: recipes that ask questions, or a file of predictions, by AVeriTeC's own measures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...core.adjust import Changes, resolved
from ...core.errors import UsageError
from ...core.files import check_outputs
from ...core.types import Usage
from ..common import counted, inform, replacements, usage_said
from ..progress import checker, progress_bar, runtime
from .tables import about, print_figures, print_rows

if TYPE_CHECKING:
    from ...core.settings import Settings
    from ...lab.measure.averitec import Prediction
    from .evaluate import Evaluate

_SHOWN = ("Q-METEOR", "QA-METEOR", "AVeriTeC@0.25", "accuracy", "macro-F1")


def evaluate_averitec(asked: Evaluate, names: Sequence[str], files: Sequence[str], settings: Settings) -> None:
    """Print the measures of the recipes with these names, and of these files of predictions.

    Raises Incomplete if claims failed.
    """
    from ...lab.measure.averitec import predict, read_gold, read_predictions, score, write_predictions
    from ...lab.measure.meteor import open_meteor
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
            from ...lab.measure.ev2r import ev2r
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
