"""`ccheck evaluate --pairs`: a judge measured on labelled pairs, without retrieval."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..adjust import Changes
from ..errors import Incomplete
from .common import counted, print_fields, print_json, stdout
from .progress import notifier, progress_bar
from .tables import figure, print_table, seconds, table

if TYPE_CHECKING:
    from ..evaluation.pairs import PairsMeasured
    from ..settings import Settings


def evaluate_pairs(
    path: str, verdict: str | None, settings: Settings, recipe: str | None, *, as_json: bool, quiet: bool
) -> None:
    """Judge the pairs of a file and print how good the judge is. `recipe`: the one that was named, in the settings too.

    Raises what reading, opening the store and opening the judge raise, and Incomplete where pairs could not be judged.
    """
    from ..evaluation.calibration import open_stance_method
    from ..evaluation.pairs import measure_pairs, read_pairs, with_documents
    from ..search import open_store

    pairs = read_pairs(path)
    if any(pair.document is None for pair in pairs):
        with open_store(settings) as store:
            pairs = with_documents(pairs, store.get)
    with (
        open_stance_method(settings, Changes(verdict=verdict), notifier(quiet), calibrated=True) as method,
        progress_bar("judging", quiet, unit="pairs") as update,
    ):
        measured = measure_pairs(method, pairs, update)
    if as_json:
        print_json(measured.to_dict() | ({"recipe": recipe} if recipe is not None else {}))
    else:
        _show(measured, recipe)
    if failed := measured.pairs - measured.judged:
        raise Incomplete(
            f"{failed:,} of {counted(measured.pairs, 'pair')} could not be judged and count as wrong. "
            f"The first: {measured.reason}"
        )


def _show(measured: PairsMeasured, recipe: str | None) -> None:
    names = {"weighted_f1": "weighted F1", "macro_f1": "macro F1"}
    facts = {"recipe": recipe} if recipe is not None else {}
    facts |= {"method": measured.method, "pairs": f"{measured.pairs:,}", "judged": f"{measured.judged:,}"}
    for name, value in measured.metrics.items():
        facts[names.get(name, name.replace("_", " "))] = (
            "unknown" if value is None else figure(value, measured.intervals[name])
        )
    if measured.usage:
        facts["usage"] = ", ".join(
            f"{name.replace('_', ' ')} {value:,}" for name, value in measured.usage.to_dict().items()
        )
    facts["time"] = seconds(measured.seconds)
    print_fields(stdout(), facts)
    made = table("true \\ given", *next(iter(measured.confusion.values())))
    for true, row in measured.confusion.items():
        made.add_row(true, *(f"{count:,}" for count in row.values()))
    print_table(stdout(), made)
