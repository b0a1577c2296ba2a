"""`ccheck evaluate --pairs`: judges measured on labelled pairs, without retrieval."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ...core.adjust import Changes
from ...core.errors import Incomplete
from ...core.files import write_text
from ..common import counted, inform, print_fields, print_json, replacements, stdout
from ..progress import progress_bar, runtime
from .tables import differences, differences_json, figure, print_table, seconds, table

if TYPE_CHECKING:
    from ...core.settings import Settings
    from ...core.types import Usage
    from ...lab.measure.pairs import PairsMeasured
    from ...lab.measure.rows import StanceRow
    from ...lab.papers.published import Published
    from ...llm.budget import Price
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
    from ...lab.papers.published import published
    from ...llm.budget import price_of
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
    failed: list[str] = []
    try:
        for name, recipe in recipes.items():
            own = {old: new for old, new in replace.items() if old in recipe.replace}
            changes = Changes(llm=asked.llm, stance=asked.stance, replace=own)
            measured = done[name] = _measured(pairs, changes, judges[name])
            if asked.out is not None:
                lines = (json.dumps(one, ensure_ascii=False) for one in answers(pairs, measured))
                write_text(asked.out, "".join(f"{line}\n" for line in lines), "the answers")
            cost = cost_of(measured.usage, price_of(judges[name]))
            known = [row for row in published(recipe) if row.metrics.keys() & measured.metrics.keys()]
            if asked.as_json:
                about = {"recipe": name, "cost": cost, "published": [row.to_dict() for row in known]}
                replaced = {"replaced": dict(recipe.replace)} if recipe.replace else {}
                compared = compare_judges(done) if len(done) > 1 else None
                print_json(measured.to_dict() | about | replaced | differences_json(compared, name))
            else:
                _show(measured, name, cost, known)
            if count := measured.pairs - measured.judged:
                failed.append(
                    f"{name}: {count:,} of {counted(measured.pairs, 'pair')} could not be judged and count as wrong. "
                    f"The first: {measured.reason}"
                )
    finally:  # what is done is compared, also where a judge can't be opened
        if len(done) > 1 and not asked.as_json:
            print_table(stdout(), differences(compare_judges(done)))
    if failed:
        raise Incomplete("; ".join(failed))


def _measured(pairs: Sequence[StanceRow], changes: Changes, settings: Settings) -> PairsMeasured:
    from ...lab.measure.calibration import open_stance_method
    from ...lab.measure.pairs import measure_pairs

    with (
        runtime(settings) as opened,
        progress_bar("judging", unit="pairs") as update,
    ):
        return measure_pairs(open_stance_method(opened, changes, calibrated=True), pairs, update)


def cost_of(usage: Usage, price: Price | None) -> float | None:
    """The cost of the calls; None without prices, and for a judge that asks no server: its tokens are free."""
    if price is None or not (usage.llm_calls or usage.cached):
        return None
    return price.of(usage.prompt_tokens, usage.completion_tokens)


def _show(measured: PairsMeasured, recipe: str, cost: float | None, known: Sequence[Published]) -> None:
    facts = {"recipe": recipe, "method": measured.method}
    facts |= {"pairs": f"{measured.pairs:,}", "judged": f"{measured.judged:,}"}
    for name, value in measured.metrics.items():
        facts[_in_words(name)] = "unknown" if value is None else figure(value, measured.intervals[name])
    for row in known:
        said = ", ".join(f"{_in_words(name)} {value:g}" for name, value in row.metrics.items())
        facts[f"published: {row.label}"] = f"{said} ({row.on}, {row.split})"
    decided = measured.decided
    facts["decided"] = f"{decided['right']:,} of {decided['pairs']:,} right"
    facts["refuted, said SUPPORTS"] = (
        f"{decided['refuted_said_supports']:,} of {decided['refuted']:,}, "
        f"{decided['refuted_decided_supports']:,} of these decide"
    )
    if measured.usage:
        facts["usage"] = ", ".join(f"{_in_words(name)} {value:,}" for name, value in measured.usage.to_dict().items())
        if cost is not None:
            facts["cost"] = f"{cost:.4f}, at your prices"
    facts["time"] = seconds(measured.seconds)
    print_fields(stdout(), facts)
    made = table("true \\ given", *next(iter(measured.confusion.values())), "precision", "recall")
    for true, given in measured.confusion.items():
        shares = ("–" if value is None else f"{value:.3f}" for value in measured.labels[true].values())
        made.add_row(true, *(f"{count:,}" for count in given.values()), *shares)
    print_table(stdout(), made)


def _in_words(name: str) -> str:
    """`weighted F1` of `weighted_f1`."""
    return name.replace("_f1", "_F1").replace("_", " ")
