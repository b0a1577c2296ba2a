"""`ccheck evaluate --pairs`: judges measured on labelled pairs, without retrieval."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...core.adjust import Changes
from ...core.files import write_text
from ...core.text import json_line
from ..common import counted, inform, replacements, stdout
from ..progress import progress_bar, runtime
from .tables import Rows, about, differences, differences_json, print_figures, print_rows, print_table, table

if TYPE_CHECKING:
    from ...core.settings import Settings
    from ...lab.measure.pairs import PairsMeasured
    from ...lab.measure.rows import StanceRow
    from .evaluate import Evaluate


def evaluate_pairs(asked: Evaluate, judges: Mapping[str, Settings]) -> None:
    """Judge the pairs of a file and print how good each judge is, and the others against the first one.

    `judges`: settings by the recipe that was named, which is their recipe. Raises what reading, opening the store and
    opening a judge raise, and Incomplete where pairs could not be judged.
    """
    from ...lab.measure.compare_judges import compare_judges
    from ...lab.measure.pairs import answers
    from ...lab.measure.rows import read_rows, with_documents
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
            one = done[name] = _measured(pairs, changes, judges[name])
            if asked.out is not None:
                write_text(asked.out, "".join(map(json_line, answers(pairs, one))), "the answers")
            compared = compare_judges(done) if len(done) > 1 else None
            row = one.to_dict() | about(recipe, one.usage, judges[name]) | differences_json(compared, name)
            row["published"] = [known for known in row["published"] if known["metrics"].keys() & one.metrics.keys()]
            failed = one.pairs - one.judged
            said = f"{failed:,} of {counted(one.pairs, 'pair')} could not be judged and count as wrong. "
            yield name, row, [f"{said}The first: {one.reason}"] if failed else []

    def show(rows: Rows) -> None:
        _show(rows)
        if len(done) > 1:
            print_table(stdout(), differences(compare_judges(done)))

    print_rows(measured(), asked.as_json, show)


def _measured(pairs: Sequence[StanceRow], changes: Changes, settings: Settings) -> PairsMeasured:
    from ...lab.measure.calibration import open_stance_method
    from ...lab.measure.pairs import measure_pairs

    with (
        runtime(settings) as opened,
        progress_bar("judging", unit="pairs") as update,
    ):
        return measure_pairs(open_stance_method(opened, changes, calibrated=True), pairs, update)


def _show(rows: Rows) -> None:
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
