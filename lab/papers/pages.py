"""The page on all recipes: their sources' tables beside what was measured, and every key. `ccheck recipes show` prints
the recipes themselves.

    python -m ccheck.lab.papers --measured mine.jsonl > recipes.md

The measured figures are lines of `ccheck evaluate --json` (of any of its kinds) in `measured.jsonl` and in the files
that `--measured` names, each with an optional `note`.
"""

from __future__ import annotations

import inspect
import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from typing import Any, Literal, NamedTuple, get_args, get_origin

from pydantic import BaseModel

from ...core.grounding_stages import ChunkRun, ElementRun, FiguresStage, ImageRun, PassagesStage
from ...core.recipe import load_recipe, recipe_names
from ...core.stages import (
    AdditionalStage,
    Analysis,
    Bm25,
    Dense,
    EnsembleStage,
    EvidenceStage,
    Fusion,
    LanguageModelStage,
    LateStage,
    ListwiseStage,
    ModelStage,
    QuestionsStage,
    RewritingStage,
    Sparse,
    UnitsStage,
    VerdictStage,
)
from .published import row_command, row_recipe, tables_of

_STAGES: dict[str, type[BaseModel]] = {
    "[retrievers.bm25]": Bm25,
    "[retrievers.bm25.analysis]": Analysis,
    "[retrievers.dense]": Dense,
    "[retrievers.sparse]": Sparse,
    "[fusion]": Fusion,
    "[rewriting]": RewritingStage,
    "[ingest.additional]": AdditionalStage,
    "[rerankers.NAME]": ModelStage,
    "[rerankers.late]": LateStage,
    "[rerankers.ensemble]": EnsembleStage,
    "[rerankers.listwise]": ListwiseStage,
    "[questions]": QuestionsStage,
    "[language_model]": LanguageModelStage,
    "[ingest.units.NAME]": UnitsStage,
    "[figures]": FiguresStage,
    "[figures.runs.NAME], element-guided": ElementRun,
    "[figures.runs.NAME], chunk-guided": ChunkRun,
    "[figures.runs.NAME], image": ImageRun,
    "[passages]": PassagesStage,
    "[evidence]": EvidenceStage,
    "[verdict]": VerdictStage,
}


def page(measured: Iterable[Mapping[str, Any]] = ()) -> str:
    """The whole page, in Markdown, with further measured figures."""
    import jinja2

    made = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)  # noqa: S701 - Markdown
    made.filters |= {"figure": _figure, "cleaned": inspect.cleandoc}
    return made.from_string(_file("page.jinja")).render(
        recipes=[load_recipe(name) for name in recipe_names()],
        measured=[*read_measured(), *measured],
        pieces=pieces(),
        stages=_STAGES,
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


def _file(name: str) -> str:
    return (files(__package__ or "") / name).read_text(encoding="utf-8")


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
