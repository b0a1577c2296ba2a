"""Measures a recipe over a grid of settings, and what choosing the best one is worth."""

from __future__ import annotations

import itertools
import math
import random
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...core.errors import InvalidData, UsageError
from ...core.recipe import changed
from .metrics import bootstrap
from .types import Interval

if TYPE_CHECKING:
    from ...core.recipe import Recipe
    from .evaluate import Evaluation

MAX_POINTS = 1000
_PLAIN = re.compile(r"[\w./:@+-]+")


@dataclass(frozen=True, slots=True)
class HeldOut:
    """The score of the best settings on claims that they were not chosen on.

    The claims are dealt at random into `folds`; for each fold the settings are those that are best on the other
    claims, and are measured on it. `value` is the mean over all claims, `chosen` the place of the point that was chosen
    for each fold.
    """

    folds: int
    value: float
    interval: Interval | None
    chosen: tuple[int, ...]
    claims: int


def parse_grid(grid: Sequence[str]) -> dict[str, list[Any]]:
    """`fusion.k=10,20,60` as a key and its values, which are written as in TOML; quotes can be left out.

    Raises UsageError.
    """
    axes: dict[str, list[Any]] = {}
    for text in grid:
        key, equals, values = text.partition("=")
        key = key.strip()
        if not equals or not re.fullmatch(r"[\w-]+(\.[\w-]+)*", key) or not values.strip():
            raise UsageError(f"the grid {text!r} is not KEY=VALUE,VALUE with a key such as fusion.k")
        if key in axes:
            raise UsageError(f"the key {key} is in the grid twice: give all of its values together")
        axes[key] = _values(values, text)
        if any(axes[key].count(value) > 1 for value in axes[key]):
            raise UsageError(f"the grid {text!r} has a value twice")
    return axes


def points_of(recipe: Recipe, axes: Mapping[str, Sequence[Any]]) -> list[tuple[dict[str, Any], Recipe]]:
    """All combinations, each with its recipe; the last key changes fastest.

    Combinations that turn off every retriever are left out. Raises UsageError for a key or value that the recipe does
    not take, and for too many combinations.
    """
    if not axes:
        raise UsageError("the grid is empty: name a key and its values, such as fusion.k=10,20,60")
    count = math.prod(len(values) for values in axes.values())
    if count > MAX_POINTS:
        raise UsageError(f"the grid has {count:,} combinations. At most {MAX_POINTS:,} are measured")
    combined = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    points = [(settings, changed(recipe, settings)) for settings in combined if _searches(recipe, settings)]
    if not points:
        raise UsageError("no combination of the grid has a retriever, so that nothing would be found")
    return points


def _searches(recipe: Recipe, settings: Mapping[str, Any]) -> bool:
    """Whether a retriever is left."""
    off = {key.removeprefix("retrievers.") for key, value in settings.items() if value is False}
    return not off.issuperset(recipe.retrievers)


def describe(settings: Mapping[str, Any]) -> str:
    """`fusion.k=10 fusion.method=rrf`."""
    return " ".join(f"{key}={written(value)}" for key, value in settings.items())


def best(points: Sequence[Evaluation], metric: str) -> int:
    """The index of the point with the highest mean; the first of equal ones."""
    return max(range(len(points)), key=lambda place: (points[place].measured.mean[metric], -place))


def hold_out(points: Sequence[Evaluation], metric: str, folds: int = 2, seed: int = 0) -> HeldOut:
    """See `HeldOut`; over the claims that were measured at all points. Raises InvalidData if they are too few."""
    by_claim = [point.measured.by_claim[metric] for point in points]
    claims = [claim for claim in by_claim[0] if all(claim in values for values in by_claim)]
    if folds < 2 or len(claims) < folds:
        raise InvalidData(f"{len(claims):,} claims can't be split into {folds} folds with one held out")
    dealt = list(claims)
    random.Random(seed).shuffle(dealt)  # noqa: S311
    chosen: list[int] = []
    values: dict[str, float] = {}
    for fold in range(folds):
        held = dealt[fold::folds]
        rest = [claim for number in range(folds) if number != fold for claim in dealt[number::folds]]
        means = [math.fsum(one[claim] for claim in rest) / len(rest) for one in by_claim]
        place = max(range(len(points)), key=lambda place: (means[place], -place))
        chosen.append(place)
        values |= {claim: by_claim[place][claim] for claim in held}
    ordered = [values[claim] for claim in claims]
    return HeldOut(folds, math.fsum(ordered) / len(ordered), bootstrap(ordered), tuple(chosen), len(claims))


def _values(written: str, text: str) -> list[Any]:
    try:
        values: list[Any] = tomllib.loads(f"x = [{written}]")["x"]
        return values
    except ValueError:
        return [_value(part.strip(), text) for part in written.split(",")]


def _value(written: str, text: str) -> Any:
    try:
        return tomllib.loads(f"x = {written}")["x"]
    except ValueError as error:
        if _PLAIN.fullmatch(written):
            return written
        raise UsageError(f"the value {written!r} of the grid {text!r} is not TOML: {error}") from error


def written(value: object) -> str:
    """A setting's value as a recipe has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
