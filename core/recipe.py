"""Recipes: a whole pipeline, written down as TOML.

Each stage is a table; `ccheck recipes show default` prints one. An unknown key is an error that names the nearest
known one.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, NamedTuple, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from .errors import CcheckError, InvalidData, NotFound, UsageError
from .files import read_text
from .grounding_stages import FiguresStage, PassagesStage
from .redaction import keep_secrets_of
from .stages import (
    EvidenceStage,
    Fusion,
    IngestStage,
    LanguageModelStage,
    ModelKind,
    QuestionsStage,
    RerankerStage,
    Retriever,
    RewritingStage,
    Stage,
    VerdictStage,
)
from .table import toml
from .text import did_you_mean

_MODEL_KEYS = ("model", "models", "llm", "asker", "subwords")
"""The keys of stages that name models."""
_NO_STAGES = ("fine_tuned", "replace", "ablations")
"""The tables of a recipe that name models and yet load none."""
_SENT_KEY = "examples"
"""The key of stages that names a file whose content is sent to language models."""
_FILE_KEYS = ("calibration", "model", "models", "expressions")
"""The keys of stages that name files or folders, looked for beside the recipe first. A model's name is none where there
is nothing of that name."""

_FUSIONS = get_args(Fusion.model_fields["method"].annotation)


class Source(Stage):
    """Where a recipe's system was published."""

    title: str
    authors: str
    venue: str
    url: str | None = None
    sections: dict[str, str] = Field(
        default={}, description="where the source describes a table of the recipe, by the table's name"
    )


class FineTuned(Stage):
    """A model that a recipe names and that nobody published: what it was made from, and the command that makes it."""

    base: str
    train: str


class Ablation(BaseModel):
    """A change of a recipe that its source, or somebody else, measured: all but the description is laid over it."""

    model_config = ConfigDict(extra="allow", frozen=True, defer_build=True)

    description: str

    @model_validator(mode="after")
    def _only_stages(self) -> Ablation:
        if not self.changes:
            raise ValueError("an ablation changes at least one stage, for example with retrievers.dense = false")
        if other := sorted({"name", "extends", "source", "fine_tuned", "replace", "ablations"} & self.changes.keys()):
            raise ValueError(f"an ablation changes stages, not {', '.join(other)}")
        return self

    @property
    def changes(self) -> dict[str, Any]:
        """The tables that are laid over the recipe."""
        return dict(self.model_extra or {})


class Recipe(Stage):
    """A pipeline from claim to verdict.

    `extends` names a recipe that this one changes: tables are laid over its tables, and a stage that is `false` is
    taken out. `replace` names models that stand in for others (what `--replace` adds to).
    """

    name: str
    description: str = ""
    extends: str | None = None
    source: Source | None = None
    ablation: str | None = Field(default=None, description="the ablation in use; commands set this")
    ablations: dict[str, Ablation] = Field(default={}, description="changes that the source measured, by name")
    decisions: list[str] = Field(
        default=[], description="where it differs from its source, or decides what the source leaves open"
    )
    fine_tuned: dict[str, FineTuned] = Field(default={}, description="models that you have to train first")
    replace: dict[str, str] = Field(default={}, description="models that replace others")
    ingest: IngestStage = IngestStage()
    rewriting: RewritingStage = RewritingStage()
    retrievers: dict[str, Retriever] = Field(min_length=1)
    fusion: Fusion = Fusion()
    rerankers: dict[str, RerankerStage] = Field(default={}, description="in the order in which they run")
    questions: QuestionsStage | None = None
    evidence: EvidenceStage = EvidenceStage()
    verdict: VerdictStage = VerdictStage()
    language_model: LanguageModelStage = LanguageModelStage()
    figures: FiguresStage | None = Field(default=None, description="for ccheck figures, inside articles")
    passages: PassagesStage | None = Field(default=None, description="for ccheck passages, inside articles")

    @model_validator(mode="before")
    @classmethod
    def _stages_by_their_names(cls, data: Any) -> Any:
        """A stage without `kind` has the kind that its name says; a reranker with another name and a `model` is one."""
        for stages in ("retrievers", "rerankers"):
            tables = data.get(stages) if isinstance(data, dict) else None
            known: dict[str, Any] = tables if isinstance(tables, dict) else {}
            for key, value in known.items():
                if value is False:
                    hint = did_you_mean(key, [one for one in known if known[one] is not False], "leave the line out")
                    raise ValueError(f"{stages}.{key} = false: there is no {key} to take out: {hint}")
                if isinstance(value, dict):
                    model = key not in ("ensemble", "late", "listwise") and ("model" in value or key == "rerank")
                    value.setdefault("kind", "model" if model and stages == "rerankers" else key)
        return data

    @model_validator(mode="after")
    def _one_name_each(self) -> Recipe:
        """Results keep scores and ranks by stage: two of one name would overwrite each other's."""
        if problem := name_clash(self.retrievers, self.rerankers):
            raise ValueError(problem)
        return self

    @model_validator(mode="after")
    def _questions_alone(self) -> Recipe:
        """A stage that would not run has no place in a recipe."""
        if self.questions is None:
            return self
        if self.rerankers:
            raise ValueError("questions are searched for without rerankers: leave out [rerankers]")
        if any(stage.query != "claim" for stage in self.retrievers.values()):
            raise ValueError("questions make their own queries: leave out query in [retrievers]")
        if self.verdict.method not in ("auto", "llm", "none"):
            raise ValueError("[questions] judges with its language model: verdict.method is llm or none")
        return self

    def stages(self) -> Iterator[Stage]:
        """The stages that name models, in the order in which they run: the one walk through a recipe."""
        if self.ingest.additional is not None:
            yield self.ingest.additional
        if any(stage.query != "claim" for stage in self.retrievers.values()):
            yield self.rewriting
        yield from self.retrievers.values()
        yield from self.rerankers.values()
        if self.questions is not None:
            yield self.questions
        yield self.verdict
        if self.figures is not None:
            yield from self.figures.runs.values()
        if self.passages is not None:
            yield self.passages

    def model_post_init(self, context: Any) -> None:
        def keep(key: str, value: Any) -> None:
            if key in _MODEL_KEYS:
                for one in value if isinstance(value, list) else [value]:
                    keep_secrets_of(str(one))

        _each(self.model_dump(), keep, _NO_STAGES)


def name_clash(retrievers: Iterable[str], rerankers: Iterable[str]) -> str | None:
    """Which two stages have one name, in words; None if all differ."""
    taken = set(_FUSIONS)
    for kind, names in (("retrievers", retrievers), ("rerankers", rerankers)):
        for name in names:
            if name in taken:
                return f"results keep scores by the names of stages. Rename [{kind}.{name}]: {name!r} is taken"
            taken.add(name)
    return None


def recipe_names() -> list[str]:
    """The recipes that come with ccheck."""
    return sorted(entry.name.removesuffix(".toml") for entry in _folder().iterdir() if entry.name.endswith(".toml"))


def recipe_text(name: str) -> str:
    """The TOML of a packaged recipe or of a file; of NAME:ABLATION that of a recipe that extends NAME with its tables.

    Raises NotFound if there is none, naming the nearest.
    """
    base, ablations = without_ablations(name)
    if ablations:
        recipe = load_recipe(name)
        *others, last = ablations
        extended = base if base in recipe_names() else str(Path(base).resolve())
        about: dict[str, Any] = {"name": recipe.name, "extends": ":".join(filter(None, (extended, "+".join(others))))}
        about |= {"ablation": recipe.ablation, "description": recipe.description}
        about |= recipe.ablations[last].changes
        return "".join(f"{key} = {toml(value)}\n" for key, value in about.items())
    if name in recipe_names():
        return _folder().joinpath(f"{name}.toml").read_text(encoding="utf-8")
    path = Path(name)
    if not path.is_file():
        hint = did_you_mean(name, recipe_names(), f"the packaged recipes are {', '.join(recipe_names())}")
        raise NotFound(f"there is no packaged recipe and no file named {name!r}: {hint}")
    return read_text(path, "the recipe")


def recipe_files(name: str) -> Iterator[Path]:
    """The files that a recipe is read from, its own and those that it extends; a packaged one has none.

    Raises NotFound or InvalidData.
    """
    return (Path(source.name).resolve() for source in _sources(name) if not source.packaged)


def load_recipe(name: str, replace: Mapping[str, str] | None = None) -> Recipe:
    """A packaged recipe by name, or one from a file, with the models of `replace` in place of others.

    `NAME:ABLATION` is the recipe with one of its ablations laid over it, `NAME:ONE+OTHER` with several.
    Raises NotFound or InvalidData, and UsageError for a model to replace that the recipe does not name.
    """
    data = _tables(name)
    data["name"] = data.get("name") or Path(name).stem
    try:
        recipe = Recipe.model_validate(data)
    except ValidationError as error:
        raise InvalidData(f"the recipe {name}: {'; '.join(_explain(error))}") from error
    return replaced(recipe, {**recipe.replace, **(replace or {})})


def without_ablations(name: str) -> tuple[str, list[str]]:
    """The recipe's name or file, and the ablations that `NAME:ONE+OTHER` names."""
    base, colon, ablations = name.rpartition(":")
    if not colon or not base or name in recipe_names() or Path(name).exists() or {"/", "\\"} & set(ablations):
        return name, []
    return base, ablations.split("+")


def _changes(name: str, known: Any, ablation: str) -> dict[str, Any]:
    """The tables of an ablation."""
    if not isinstance(known, dict) or not isinstance(known.get(ablation), dict):
        names = list(known) if isinstance(known, dict) else []
        hint = did_you_mean(ablation, names, f"its ablations are: {', '.join(names) or 'none'}")
        raise NotFound(f"the recipe {name} has no ablation {ablation!r}: {hint}")
    try:
        return Ablation.model_validate(known[ablation]).changes
    except ValidationError as error:
        raise InvalidData(f"the recipe {name}: ablations.{ablation}: {'; '.join(_explain(error))}") from error


def models_used(recipe: Recipe) -> dict[str, ModelKind]:
    """The models that the stages name, in order, with what each is used as; without `auto`, URLs and what the settings
    decide. A model that embeds is more than a tokenizer."""
    found: dict[str, ModelKind] = {}
    for stage in recipe.stages():
        for name, kind in stage.uses():
            if name is not None and (kind != "tokenizer" or name not in found):
                found[name] = kind
    return found


def replaced(recipe: Recipe, replace: Mapping[str, str]) -> Recipe:
    """The recipe with other models in place of some; `Recipe.replace` keeps what was replaced by what.

    Raises UsageError for a model that the recipe does not name.
    """
    data = recipe.model_dump()
    known = list(models_used(recipe))
    for old in replace:
        if old not in known:
            hint = did_you_mean(old, known, f"its models are: {', '.join(known) or 'none'}")
            raise UsageError(f"the recipe {recipe.name} has no model {old!r} to replace: {hint}")
    if not replace:
        return recipe

    def swapped(key: str, value: Any) -> Any:
        if key not in _MODEL_KEYS or value is None:
            return value
        if isinstance(value, list):
            return [replace.get(name, name) for name in value]
        return replace.get(str(value), value)

    return Recipe.model_validate(_each(data, swapped, _NO_STAGES) | {"replace": dict(replace)})


def ways_to_get(recipe: Recipe, model: str | None) -> str:
    """Says what to do if a model of the recipe is missing; empty for a model that the recipe does not name.

    A model that nobody published has to be trained. Any model can be replaced with another one.
    """
    if model is None or model not in models_used(recipe):
        return ""
    made = recipe.fine_tuned.get(model)
    how = f"It is {made.base} fine-tuned, and not published. Train it with `{made.train}`. " if made is not None else ""
    return f"{how}To run the recipe with another model: --replace {model}=OTHER"


def with_ways_to_get(error: CcheckError, recipe: Recipe) -> CcheckError:
    """The error; if it says that a model of the recipe is missing, with what to do.

    What the error says to do is left out for a model that nobody published: the hub doesn't have it.
    """
    if not isinstance(error, NotFound) or not (ways := ways_to_get(recipe, error.model)):
        return error
    said = f"the model {error.model} is not installed" if error.model in recipe.fine_tuned else str(error)
    return NotFound(f"{said}. {ways}", model=error.model)


def packaged_recipe(name: str) -> Recipe:
    """A recipe that comes with ccheck, or an ablation of one. Raises UsageError."""
    if name.partition(":")[0] not in (names := recipe_names()):
        hint = did_you_mean(name, names, "ccheck recipes list has them")
        raise UsageError(f"{name!r} is not a packaged recipe: {hint}")
    return load_recipe(name)


def cannot_run(recipe: Recipe, error: CcheckError) -> UsageError:
    """The error for a recipe that somebody chose, where a store has or a server can run only others."""
    how = "Choose another, or have the papers ingested for it and its models installed"
    return UsageError(f"the recipe {recipe.name} can't run here. {how}: {error}")


def changed(recipe: Recipe, changes: Mapping[str, Any]) -> Recipe:
    """The recipe with other settings, by dotted keys such as `fusion.k`; a stage that is set to False is taken out, and
    one that is set to True stays as it is.

    Raises UsageError for a key that the recipe does not have, or a value that is not valid there.
    """
    data = recipe.model_dump(exclude_unset=True)
    for key, value in changes.items():
        *tables, last = key.split(".")
        place, known = data, recipe.model_dump()
        for table in tables:
            if not isinstance(known.get(table), dict):
                hint = did_you_mean(table, known, f"known: {', '.join(known)}", cutoff=0.4)
                raise UsageError(f"the recipe {recipe.name} has no {table!r} of {key!r}: {hint}")
            place, known = place.setdefault(table, {}), known[table]
        if len(tables) == 1 and tables[0] in ("retrievers", "rerankers") and isinstance(value, bool):
            if last not in known:
                raise UsageError(f"the recipe {recipe.name} has no {key!r} to leave out. Known: {', '.join(known)}")
            if not value:
                del place[last]
        else:
            place[last] = value
    try:
        return Recipe.model_validate(data)
    except ValidationError as error:
        made = ", ".join(f"{key} = {value!r}" for key, value in changes.items())
        raise UsageError(f"the recipe {recipe.name} with {made}: {'; '.join(_explain(error))}") from error


class _Source(NamedTuple):
    """The TOML of one recipe, and the ablations of it that are wanted."""

    name: str
    ablations: list[str]
    packaged: bool
    data: dict[str, Any]


def _sources(reference: str) -> Iterator[_Source]:
    """A recipe, then the one that it extends, and so on."""
    seen: list[str] = []
    base: str | None = reference
    while base is not None:
        name, ablations = without_ablations(base)
        packaged = name in recipe_names()
        key = name if packaged else str(Path(name).resolve())
        if key in seen:
            raise InvalidData(f"the recipe {name} extends itself: {' -> '.join([*seen, key])}")
        seen.append(key)
        text = recipe_text(name)
        try:
            data = tomllib.loads(text)
        except (ValueError, RecursionError) as error:  # a number of thousands of digits is a plain ValueError
            raise InvalidData(f"the recipe {name} is not valid TOML: {error}") from error
        yield _Source(name, ablations, packaged, data)
        base = _extended(name, data)


def _tables(reference: str) -> dict[str, Any]:
    """The tables of a recipe laid over those of the one that it extends, each with its ablations over both."""
    data: dict[str, Any] = {}
    own = Path(str(_folder()))
    for source in reversed(list(_sources(reference))):
        for inherited in ("name", "source", "description", "ablation", "decisions"):
            data.pop(inherited, None)  # another pipeline than the one that was published
        folders = (own,) if source.packaged else (Path(source.name).parent, own)
        data = _laid_over(data, _beside(source.name, source.data, folders))
        for ablation in source.ablations:
            data = _laid_over(data, _changes(source.name, data.get("ablations"), ablation))
        if source.ablations:
            data["ablation"] = "+".join(source.ablations)
            data["name"] = f"{data.get('name') or Path(source.name).stem}:{data['ablation']}"
    return data


def _extended(name: str, data: Mapping[str, Any]) -> str | None:
    """Returns what the recipe `name` extends: a packaged recipe, or a file, which is first looked for beside it."""
    base = data.get("extends")
    if not isinstance(base, str):
        return None
    file, ablations = without_ablations(base)
    beside = Path(name).parent / file
    if name in recipe_names() or file in recipe_names() or not beside.is_file():
        return base
    return f"{beside}:{'+'.join(ablations)}" if ablations else str(beside)


def _laid_over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Tables over tables; `false` takes out what is there."""
    laid = dict(below)
    for key, value in above.items():
        known = laid.get(key)
        if value is False and known is not None and not isinstance(known, bool):
            del laid[key]
        else:
            laid[key] = _laid_over(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return laid


def _beside(name: str, data: dict[str, Any], folders: Sequence[Path]) -> dict[str, Any]:
    """The tables with the paths of the files that they name, beside the recipe or among the packaged ones.

    Raises InvalidData for examples from elsewhere: what they say is sent to language models, and a recipe can come
    from a stranger, who would choose which of the user's files go there.
    """

    def placed(key: str, value: Any) -> Any:
        if key in _FILE_KEYS and isinstance(value, list):
            return [_place(one, folders) for one in value]
        if key not in (_SENT_KEY, *_FILE_KEYS) or not isinstance(value, str):
            return value
        found = _place(value, folders)
        if key == _SENT_KEY and not any(
            Path(found).is_absolute() and Path(found).is_relative_to(folder.resolve()) for folder in folders
        ):
            raise InvalidData(
                f"the recipe {name} names {key} = {value!r}, but the recipe's folder has no such file. Copy it "
                "there (a recipe may send only files of its own folder to a language model)"
            )
        return found

    return _each(data, placed)


def _place(value: Any, folders: Sequence[Path]) -> Any:
    """The path of a file or folder of that name, else the name."""
    if not isinstance(value, str) or value in ("", "auto", "none"):
        return value
    there = (folder / value for folder in folders)
    return next((str(one.resolve()) for one in there if one.exists()), value)


def _each(data: Mapping[str, Any], change: Callable[[str, Any], Any], skip: Sequence[str] = ()) -> dict[str, Any]:
    """The tables with what `change` makes of each key and its value; the tables of `skip` stay as they are."""
    return {
        key: value if key in skip else _each(value, change, skip) if isinstance(value, dict) else change(key, value)
        for key, value in data.items()
    }


def _folder() -> Traversable:
    return files(f"{__package__.rpartition('.')[0]}.recipes")


def _explain(error: ValidationError) -> Iterable[str]:
    for problem in error.errors():
        parts = [str(part) for part in problem["loc"]]
        if parts[:1] in (["retrievers"], ["rerankers"]):
            del parts[2:3]  # the kind, by which pydantic tells the retrievers apart
        said = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "union_tag_invalid":
            tag, known = problem["ctx"]["tag"], problem["ctx"]["expected_tags"].replace("'", "").split(", ")
            other = f"known: {', '.join(known)}" + "; one of another name needs a model" * (parts[0] == "rerankers")
            said = f"unknown kind {tag}: {did_you_mean(tag, known, other)}"
        yield ": ".join(filter(None, (".".join(parts), said)))
