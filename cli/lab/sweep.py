"""`ccheck sweep`: a recipe over a grid of settings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ...core.adjust import in_place_of_rerankers
from ...core.errors import Incomplete
from .. import opt
from ..common import counted, inform, notice_new, print_json, replacements, settings_from, stdout
from ..progress import runtime
from .tables import figure, print_table, seconds, table

if TYPE_CHECKING:
    from ...lab.measure.evaluate import Evaluation


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """The arguments and options of `ccheck sweep`."""

    recipe: str = opt.argument("RECIPE")
    claims: str = opt.claims
    qrels: str = opt.qrels
    grid: tuple[str, ...] = opt.option(
        "Setting of the recipe with the values to try: fusion.k=10,20,60. A stage can be true or false: "
        "retrievers.dense=true,false. Repeatable.",
        "KEY=V,V",
        required=True,
    )
    metric: str = opt.option("Metric that chooses the best point.", "M", default="nDCG@10")
    folds: int = opt.option("Number of folds for the held-out figure.", least=2, most=100, default=2)
    replace: tuple[str, ...] = opt.replace
    trust_remote_code: bool | None = opt.trust_remote_code
    as_json: bool = opt.as_json
    store: str | None = opt.store


@opt.command
def sweep(asked: Sweep) -> None:
    """Measure a recipe over a grid of settings.

    \b
    ccheck sweep default --claims C --qrels Q --grid fusion.k=10,20,60
    ccheck sweep mine.toml --claims C --qrels Q --grid rerankers.rerank=true,false

    Use development claims: on the claims that it was chosen on, the best setting looks better than it really is. The
    held-out figure is measured on other claims. What does not change between points is computed only
    once and cached, so an interrupted sweep continues where it stopped.
    """
    from ...lab.measure.session import load_recipes, open_session, read_evaluation_data
    from ...lab.measure.sweep import best, describe, hold_out, parse_grid, points_of

    ((name, base),) = load_recipes([asked.recipe], replacements(asked.replace)).items()
    settings = settings_from(store=asked.store, trust_remote_code=asked.trust_remote_code)
    if message := in_place_of_rerankers(settings):
        inform(message)
    axes = parse_grid(asked.grid)
    data = read_evaluation_data(asked.claims, asked.qrels, metrics=[asked.metric])
    done: list[Evaluation] = []
    seen: set[str] = set()
    with runtime(settings) as opened, open_session(opened) as session:
        if session.memory.notice:
            inform(session.memory.notice)
        # The settings of this machine change the recipe, then each point does.
        points = points_of(session.prepare(base, data), axes)
        grid = [point for point, _ in points]
        if left := math.prod(map(len, axes.values())) - len(points):
            inform(f"{counted(left, 'combination')} left out, because no retriever is left")
        recipes = {
            f"{number}/{len(points)} {describe(point)}": recipe for number, (point, recipe) in enumerate(points, 1)
        }
        try:
            for point, (_, one) in zip(grid, session.evaluate_all(recipes, data), strict=True):
                done.append(one)
                if asked.as_json:
                    print_json({"settings": point, **one.to_dict()})
                notice_new(name, one.warnings, seen)
        finally:  # what is done is shown, also where a point fails or somebody interrupts
            if done and not asked.as_json:
                _show(grid, done, asked.metric)
        place, held = best(done, asked.metric), hold_out(done, asked.metric, asked.folds)
    if asked.as_json:
        measured = done[place].measured
        print_json(
            {
                "best": grid[place],
                "metric": asked.metric,
                "value": measured.mean[asked.metric],
                "interval": list(measured.intervals.get(asked.metric, ())) or None,
                "held_out": asdict(held) | {"chosen": [grid[i] for i in held.chosen]},
                "points": len(done),
            }
        )
    else:
        stdout().print(f"best: {describe(grid[place])}")
        stdout().print(
            f"held out ({held.folds} folds): {asked.metric} {figure(held.value, held.interval)} on {held.claims:,} "
            f"claims; chosen there: {'; '.join(describe(grid[i]) for i in dict.fromkeys(held.chosen))}",
        )
    inform(
        "the figure of the best setting is too high, because it was chosen on these claims. Report the held-out "
        "figure, or measure once on test claims"
    )
    failed = [
        f"{describe(point)}: {failure}" for point, one in zip(grid, done, strict=True) for failure in one.failures
    ]
    if failed:
        raise Incomplete("; ".join(failed))


def _show(grid: Sequence[Mapping[str, Any]], done: Sequence[Evaluation], metric: str) -> None:
    from ...lab.measure.sweep import best, written

    made = table("", *grid[0], metric, "claims", "per claim")
    chosen = best(done, metric)
    for place, (point, one) in enumerate(zip(grid, done, strict=False)):
        made.add_row(
            "best" if place == chosen else "",
            *map(written, point.values()),
            figure(one.measured.mean[metric], one.measured.intervals.get(metric)),
            f"{one.judged_claims:,}",
            f"{seconds(one.seconds['total'])}{' *' if one.remembered else ''}",
            style="bold" if place == chosen else "",
        )
    print_table(stdout(), made)
    if any(one.remembered for one in done):
        stdout().print("* partly from the cache, which took no time", style="dim")
