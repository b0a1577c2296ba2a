"""`ccheck evaluate --averitec`: recipes that ask questions, or a file of predictions, by AVeriTeC's own measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.adjust import Changes, resolved
from ...core.errors import Incomplete, UsageError
from ...core.files import check_outputs
from ...core.types import Usage
from ..common import counted, inform, print_json, replacements, stdout, usage_said
from ..progress import checker, progress_bar, runtime
from .evaluate_pairs import cost_of
from .tables import figure, print_table, table

if TYPE_CHECKING:
    from ...core.settings import Settings
    from ...lab.measure.averitec import Gold, Meteor, Prediction
    from .evaluate import Evaluate

_SHOWN = ("Q-METEOR", "QA-METEOR", "AVeriTeC@0.25", "accuracy", "macro-F1")


def evaluate_averitec(asked: Evaluate, names: Sequence[str], files: Sequence[str], settings: Settings) -> None:
    """Print the measures of the recipes with these names, and of these files of predictions.

    Raises Incomplete if claims failed.
    """
    from ...lab.measure.averitec import predict, read_gold, read_predictions, write_predictions
    from ...lab.measure.meteor import open_meteor
    from ...lab.measure.session import load_recipes
    from ...lab.papers.published import published
    from ...llm.budget import price_of
    from ...pipeline.claims import read_claims

    recipes = load_recipes(names, replacements(asked.replace)) if names else {}
    if asked.out is not None and len(recipes) != 1:
        raise UsageError("--out writes the predictions of one recipe. Name only one")
    check_outputs([(asked.out, "the predictions")], (asked.averitec, *names, *files))
    gold = read_gold(asked.averitec or "")
    changes = Changes(llm=asked.llm, stance=asked.stance)
    meteor = open_meteor()  # what is missing says so at once
    rows: dict[str, dict[str, Any]] = {}
    failed: list[str] = []
    for file in files:
        rows[file] = _measured(gold, read_predictions(file), meteor, asked.ev2r, settings)
    for name, recipe in recipes.items():
        claims = read_claims(asked.averitec or "")
        with checker(settings, recipe=resolved(settings, changes, recipe)) as checked:
            with progress_bar(name, unit="claims") as update:
                made = predict(checked, claims, update)
            warnings = checked.plan().warnings
        if asked.out is not None:
            write_predictions(asked.out, made.predictions)
        usage = {stage: used.to_dict() for stage, used in made.usage_by_stage.items()}
        rows[name] = _measured(gold, made.predictions, meteor, asked.ev2r, settings) | {
            "seconds_per_claim": dict(made.seconds),
            "usage_by_stage": usage,
            "cost": cost_of(sum(made.usage_by_stage.values(), Usage()), price_of(settings)),
            "published": [one.to_dict() for one in published(recipe)],
            "replaced": dict(recipe.replace),
            "errors": [{"claim": claim, "error": error} for claim, error in made.errors.items()],
        }
        for message in (*warnings, *usage_said(made.usage_by_stage)):
            inform(f"{name}: {message}")
        if made.errors:
            claim, error = next(iter(made.errors.items()))
            failed.append(f"{name}: {counted(len(made.errors), 'claim')} failed in part. Claim {claim}: {error}")
    failed += [f"{Path(name).name}: {said}" for name, row in rows.items() for said in _unjudged(row)]
    if asked.as_json:
        for name, row in rows.items():
            print_json({"recipe": name} | row)
    else:
        _show(rows)
    if failed:
        raise Incomplete("; ".join(failed))


def _measured(
    gold: Sequence[Gold],
    predictions: Sequence[Prediction],
    meteor: Meteor,
    judge: str | None,
    settings: Settings,
) -> dict[str, Any]:
    from ...lab.measure.averitec import score

    row = score(gold, predictions, meteor).to_dict()
    if judge is None:
        return row
    from ...lab.measure.ev2r import ev2r
    from ...llm import open_llm

    with runtime(settings) as opened:
        recall = ev2r(gold, predictions, open_llm(opened, judge))
    row["metrics"] |= recall.to_dict()
    row["ev2r"] = {"model": judge, "failed": recall.failed, "error": recall.error}
    return row


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


def _show(rows: Mapping[str, Mapping[str, Any]]) -> None:
    names = [*_SHOWN, *dict.fromkeys(name for row in rows.values() for name in row["metrics"] if name[:4] == "Ev2R")]
    made = table("recipe", *names, "claims", "without label")
    for name, row in rows.items():
        values = [row["metrics"].get(metric) for metric in names]
        cells = ["unknown" if value is None else figure(value) for value in values]
        made.add_row(Path(name).name, *cells, f"{row['claims']:,}", f"{row['missing']:,}")
    print_table(stdout(), made)
    for name, row in rows.items():
        for title, shares in (("seconds a claim", row.get("seconds_per_claim")), ("F1", row["f1"])):
            if shares:
                said = ", ".join(f"{key} {value:.3g}" for key, value in shares.items())
                stdout().print(f"{Path(name).name}, {title}: {said}", style="dim", soft_wrap=True)
