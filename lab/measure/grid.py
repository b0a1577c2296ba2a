"""A recipe over a grid of settings: the recipes that `ccheck evaluate --grid` measures."""

from __future__ import annotations

import itertools
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from ...core.errors import UsageError
from ...core.recipe import Recipe, changed

MAX_POINTS = 1000
_PLAIN = re.compile(r"[\w./:@+-]+")


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
    """All combinations, each with its recipe, which it names; the last key changes fastest.

    Combinations that turn off every retriever are left out. Raises UsageError for a key or value that the recipe does
    not take, and for too many combinations.
    """
    count = math.prod(len(values) for values in axes.values())
    if count > MAX_POINTS:
        raise UsageError(f"the grid has {count:,} combinations. At most {MAX_POINTS:,} are measured")
    retrievers = [f"retrievers.{name}" for name in recipe.retrievers]
    combined = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    points = [
        (settings, changed(recipe, settings).model_copy(update={"name": describe(settings)}))
        for settings in combined
        if not {key for key, value in settings.items() if value is False}.issuperset(retrievers)
    ]
    if not points:
        raise UsageError("no combination of the grid has a retriever, so that nothing would be found")
    return points


def describe(settings: Mapping[str, Any]) -> str:
    """`fusion.k=10 fusion.method=rrf`."""
    return " ".join(
        f"{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in settings.items()
    )


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
