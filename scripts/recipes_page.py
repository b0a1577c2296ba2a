"""The page on all recipes: their sources' tables beside what was measured, and every key. `ccheck recipes show` prints
the recipes themselves.

    python scripts/recipes_page.py mine.jsonl > recipes.md

The measured figures are lines of `ccheck evaluate --json` (of any of its kinds) in `recipes_page/measured.jsonl` and in
the files that are named, each with an optional `note`.
"""

from __future__ import annotations

import inspect
import json
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin

import jinja2
from pydantic import BaseModel

from ccheck.core.recipe import Recipe, load_recipe, recipe_names
from ccheck.lab.papers.published import Row, Table, tables_of

FOLDER = Path(__file__).with_suffix("")


def page(measured: Iterable[Mapping[str, Any]] = ()) -> str:
    """The whole page, in Markdown, with further measured figures."""
    made = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    made.filters |= {"figure": _figure, "cleaned": inspect.cleandoc}
    return made.from_string(_file("page.jinja")).render(
        recipes=[load_recipe(name) for name in recipe_names()],
        measured=[*read_measured(), *measured],
        pieces=pieces(),
        stages=dict(stages(Recipe)),
        keys=_keys,
        tables_of=tables_of,
        row_recipe=row_recipe,
        row_command=row_command,
    )


def read_measured() -> list[dict[str, Any]]:
    """What was measured: objects that `ccheck evaluate --json` printed, some with a `note`."""
    return [json.loads(line) for line in _file("measured.jsonl").splitlines()]


class Piece(NamedTuple):
    """A piece of a prompt in a paper, and words of the prompt (a file of the repository) that say the same."""

    source: str
    piece: str
    prompt: str
    words: str


def pieces() -> Iterator[Piece]:
    """Every piece, in the order of the papers."""
    for source in tomllib.loads(_file("prompts.toml"))["source"]:
        for piece, words in source["pieces"]:
            yield Piece(source["name"], piece, source["prompt"], words)


_ABOUT = ("source", "ablations", "fine_tuned")
"""Tables of a recipe that are no stages."""


def stages(
    table: type[BaseModel], path: str = "", seen: set[type] | None = None
) -> Iterator[tuple[str, type[BaseModel]]]:
    """Every kind of table in another one, with its place in a recipe: `[retrievers.bm25]`."""
    seen = set() if seen is None else seen
    for name, field in table.model_fields.items():
        for kind in _tables_in(field.annotation):
            if kind in seen or name in _ABOUT:
                continue
            seen.add(kind)
            own = kind.model_fields["kind"].default if "kind" in kind.model_fields else None
            named_so = own not in (None, "model") and name != "runs"
            place = f"{path}{name}" + (
                f".{own if named_so else 'NAME'}" if get_origin(field.annotation) is dict else ""
            )
            yield f"[{place}]" + (f", {own}" if name == "runs" else ""), kind
            yield from stages(kind, f"{place}.", seen)


def _tables_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for one in get_args(annotation):
        yield from _tables_in(one)


def _file(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def _keys(stage: type[BaseModel]) -> Iterator[tuple[str, str, str]]:
    """A stage's keys with their defaults and what they mean."""
    for name, field in stage.model_fields.items():
        if name != "kind":
            default = "required" if field.is_required() else _default(field.get_default(call_default_factory=True))
            yield name, default, "; ".join(filter(None, (field.description, _choices(field.annotation))))


def _choices(annotation: Any) -> str:
    """The values that a key accepts, if they are listed."""
    values = [value for value in get_args(annotation) if value is not type(None)]
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{_value(value)}`" for value in values)
    return _choices(values[0]) if len(values) == 1 and get_origin(values[0]) is Literal else ""


def _default(value: Any) -> str:
    if isinstance(value, BaseModel):
        return "as below"
    return "–" if value in (None, "", {}, []) else f"`{_value(value)}`"


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {_value(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return ", ".join(map(_value, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _figure(value: float | None) -> str:
    """Three decimals of what lies between 0 and 1, three at most of what does not."""
    if value is None:
        return "–"
    if abs(value) > 1:
        return f"{value:,.3f}".rstrip("0").rstrip(".")
    return f"{value:.3f}".lstrip("0")


def row_recipe(recipe: Recipe, row: Row) -> str | None:
    """The name with which commands load what a row is about; None if a command of its own makes it."""
    if row.command is not None:
        return None
    own = recipe.name.partition(":")[0]
    return row.recipe or (own if row.ablation is None else f"{own}:{row.ablation}")


def row_command(recipe: Recipe, table: Table, row: Row) -> str | None:
    """The command that runs a row; None if nothing can."""
    reference = row_recipe(recipe, row)
    if reference is None or table.command == "none":
        return None if row.command == "none" else row.command
    return table.command_for(reference)


def main(files: list[str]) -> None:
    lines = [line for file in files for line in Path(file).read_text(encoding="utf-8").splitlines() if line.strip()]
    print(page(map(json.loads, lines)), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
