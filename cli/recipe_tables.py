"""The tables of a recipe's source, with what was measured beside what was published."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import InvalidData, NotFound
from ..core.published import Ablation, Table, row_command, row_recipe

if TYPE_CHECKING:
    from ..core.recipe import Recipe


@dataclass(frozen=True, slots=True)
class Line:
    """A row of a table: what runs it, the published figures by metric, and what was measured with it."""

    row: str
    recipe: str | None
    command: str | None
    published: Mapping[str, float]
    measured: tuple[Mapping[str, Any], ...]
    note: str = ""


def lines_of(recipe: Recipe, table: Table, measured: Sequence[Mapping[str, Any]]) -> Iterator[Line]:
    """The rows of a table. `measured` are objects of `ccheck evaluate --json`, of any recipes."""
    for name, row in table.rows.items():
        reference = row_recipe(recipe, row)
        found = [
            one
            for one in measured
            if reference is not None and one["recipe"] == reference and set(table.metrics) & one["metrics"].keys()
        ]
        yield Line(name, reference, row_command(recipe, table, row), table.figures(name), tuple(found), row.note)


def read_measured(path: str | None = None) -> list[dict[str, Any]]:
    """Lines of `ccheck evaluate --json` from a file, or the packaged ones. Raises NotFound or InvalidData."""
    packaged = files(f"{(__package__ or '').rpartition('.')[0]}.recipes") / "measured.jsonl"
    try:
        text = (packaged if path is None else Path(path)).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise NotFound(f"there is no file {path} with the output of ccheck evaluate --json") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidData(f"the figures {path} can't be read: {error}") from error
    return [
        _measurement(line, f"{path}, line {number}") for number, line in enumerate(text.splitlines(), 1) if line.strip()
    ]


def _measurement(line: str, where: str) -> dict[str, Any]:
    try:
        one = json.loads(line)
    except ValueError as error:
        raise InvalidData(f"{where} is not JSON. --measured takes what ccheck evaluate --json prints") from error
    if isinstance(one, dict) and isinstance(one.get("recipe"), str) and isinstance(one.get("metrics"), dict):
        return one
    raise InvalidData(f"{where} has no recipe with its metrics. --measured takes what ccheck evaluate --json prints")


def measured_on(one: Mapping[str, Any]) -> str:
    """The conditions of a measurement: its note, its number of claims, and which models stood in for others."""
    swapped = [f"{new} for {old}" for old, new in one.get("replaced", {}).items()]
    claims = [f"{one['claims']:,} claims"] if isinstance(one.get("claims"), int) else []
    return "; ".join([*filter(None, [str(one.get("note", ""))]), *claims, *swapped])


def line_json(recipe: Recipe, number: str, table: Table, line: Line) -> dict[str, Any]:
    """A row as `ccheck recipes tables --json` prints it."""
    return {
        "recipe": line.recipe,
        "table": number,
        "title": table.title,
        "on": table.on,
        "split": table.split,
        "row": line.row,
        "command": line.command,
        "published": dict(line.published),
        "measured": [
            {
                "on": measured_on(one),
                "metrics": {metric: one["metrics"][metric] for metric in table.metrics if metric in one["metrics"]},
                "intervals": {m: i for m, i in one.get("intervals", {}).items() if m in table.metrics},
            }
            for one in line.measured
        ],
        "note": line.note,
    }


def changes_of(ablation: Ablation) -> str:
    """The changes of an ablation, as dotted keys: `retrievers.sparse = false`."""
    return ", ".join(f"{key} = {_value(value)}" for key, value in _dotted(ablation.changes))


def table_command(table: Table) -> str:
    """The command of a table's rows, with RECIPE in place of what each row is about."""
    metrics = " ".join(f"--metric {metric}" for metric in table.metrics)
    return table.command.replace("{recipe}", "RECIPE").replace("{metrics}", metrics).rstrip()


def _dotted(tables: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tables.items():
        if isinstance(value, dict) and value:
            yield from _dotted(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


def _value(value: Any) -> str:
    if isinstance(value, str) and Path(value).is_absolute():
        value = Path(value).name  # a file beside the recipe
    return json.dumps(value, ensure_ascii=False) if not isinstance(value, bool) else str(value).lower()
