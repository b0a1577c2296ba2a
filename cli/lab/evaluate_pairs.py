"""`ccheck evaluate --pairs`: judges measured on labelled pairs, without retrieval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ...core.adjust import Changes
from ...core.errors import Incomplete, UsageError
from ..common import counted, print_fields, print_json, replacements, stdout
from ..progress import progress_bar, runtime
from .tables import differences, differences_json, figure, print_table, seconds, table

if TYPE_CHECKING:
    from ...core.recipe import Recipe
    from ...core.settings import Settings
    from ...core.types import Usage
    from ...lab.measure.pairs import PairsMeasured
    from ...lab.measure.rows import StanceRow
    from ...lab.papers.published import Published
    from ...llm.budget import Price
    from .evaluate import Evaluate


def evaluate_pairs(asked: Evaluate, judges: Mapping[str | None, Settings]) -> None:
    """Judge the pairs of a file and print how good each judge is, and the others against the first one.

    `judges`: settings by the recipe that was named, which is their recipe, or of the only judge by None. Raises what
    reading, opening the store and opening a judge raise, and Incomplete where pairs could not be judged.
    """
    from ...lab.measure.compare_judges import compare_judges
    from ...lab.measure.rows import read_rows, with_documents
    from ...lab.measure.session import load_recipes
    from ...llm.budget import price_of
    from ...search import open_store

    replace = replacements(asked.replace)
    names = [name for name in judges if name is not None]
    if replace and not names:
        raise UsageError("--replace changes the models of a recipe. Name the recipe")
    recipes = dict(zip(names, load_recipes(names, replace).values(), strict=True))
    pairs: Sequence[StanceRow] = read_rows(asked.pairs or "", later=True).rows
    if not all(pair.text for pair in pairs):
        with open_store(next(iter(judges.values()))) as store:
            pairs = with_documents(pairs, store.get)
    done: dict[str, PairsMeasured] = {}
    failed: list[str] = []
    try:
        for name, settings in judges.items():
            recipe = recipes.get(name or "")
            own = {} if recipe is None else {old: new for old, new in replace.items() if old in recipe.replace}
            changes = Changes(llm=asked.llm, stance=asked.stance, verdict=asked.verdict, replace=own)
            measured = _measured(pairs, changes, settings, asked.quiet)
            done[name or ""] = measured
            cost = cost_of(measured.usage, price_of(settings))
            known = [] if recipe is None else _published(recipe, measured)
            if asked.as_json:
                named: dict[str, object] = {"recipe": name, "published": [row.to_dict() for row in known]}
                replaced = {"replaced": dict(recipe.replace)} if recipe is not None and recipe.replace else {}
                compared = compare_judges(done) if len(done) > 1 else None
                print_json(
                    measured.to_dict()
                    | {"cost": cost}
                    | (named if recipe is not None else {})
                    | replaced
                    | differences_json(compared, name)
                )
            else:
                _show(measured, name, cost, known)
            if count := measured.pairs - measured.judged:
                failed.append(
                    f"{f'{name}: ' if name else ''}{count:,} of {counted(measured.pairs, 'pair')} could not be "
                    f"judged and count as wrong. The first: {measured.reason}"
                )
    finally:  # what is done is compared, also where a judge can't be opened
        if len(done) > 1 and not asked.as_json:
            print_table(stdout(), differences(compare_judges(done)))
    if failed:
        raise Incomplete("; ".join(failed))


def _measured(pairs: Sequence[StanceRow], changes: Changes, settings: Settings, quiet: bool) -> PairsMeasured:
    from ...lab.measure.calibration import open_stance_method
    from ...lab.measure.pairs import measure_pairs

    with (
        runtime(settings, quiet) as opened,
        progress_bar("judging", quiet, unit="pairs") as update,
    ):
        return measure_pairs(open_stance_method(opened, changes, calibrated=True), pairs, update)


def cost_of(usage: Usage, price: Price | None) -> float | None:
    """The cost of the calls; None without prices, and for a judge that asks no server: its tokens are free."""
    if price is None or not (usage.llm_calls or usage.cached):
        return None
    return price.of(usage.prompt_tokens, usage.completion_tokens)


def _published(recipe: Recipe, measured: PairsMeasured) -> list[Published]:
    """The rows of the recipe's source that have one of the metrics."""
    from ...lab.papers.published import published

    return [row for row in published(recipe) if row.metrics.keys() & measured.metrics.keys()]


def _show(measured: PairsMeasured, recipe: str | None, cost: float | None, known: Sequence[Published]) -> None:
    names = {"weighted_f1": "weighted F1", "macro_f1": "macro F1"}
    facts = {"recipe": recipe} if recipe is not None else {}
    facts |= {"method": measured.method, "pairs": f"{measured.pairs:,}", "judged": f"{measured.judged:,}"}
    for name, value in measured.metrics.items():
        facts[names.get(name, name.replace("_", " "))] = (
            "unknown" if value is None else figure(value, measured.intervals[name])
        )
    for row in known:
        said = ", ".join(f"{names.get(name, name.replace('_', ' '))} {value:g}" for name, value in row.metrics.items())
        facts[f"published: {row.label}"] = f"{said} ({row.on}, {row.split})"
    if measured.usage:
        facts["usage"] = ", ".join(
            f"{name.replace('_', ' ')} {value:,}" for name, value in measured.usage.to_dict().items()
        )
        if cost is not None:
            facts["cost"] = f"{cost:.4f}, at your prices"
    facts["time"] = seconds(measured.seconds)
    print_fields(stdout(), facts)
    made = table("true \\ given", *next(iter(measured.confusion.values())))
    for true, given in measured.confusion.items():
        made.add_row(true, *(f"{count:,}" for count in given.values()))
    print_table(stdout(), made)
