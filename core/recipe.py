"""Recipes: a whole pipeline, written down as TOML.

Each stage is a table; `ccheck recipes show default` prints one. An unknown key is an error that names the nearest
known one.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from .errors import InvalidData, NotFound


class Stage(BaseModel):
    """A table of a recipe."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Bm25(Stage):
    """Documents by the claim's words, scored by BM25 (k1 = 1.2, b = 0.75).

    `fields` gives the boost of each field that is searched; `content` is title and text as one field. Over several
    fields the best one counts, the others at 0.3 of their score (a disjunction maximum).
    """

    kind: Literal["bm25"] = "bm25"
    depth: int = Field(default=100, ge=1, le=10_000, description="how many documents it hands on")
    weight: float = Field(default=1.0, gt=0, description="its share in the fusion")
    fields: dict[str, float] = Field(default={"content": 1.0}, min_length=1)
    required: bool = Field(default=True, description="false: goes on without it where it can't run, and says so")


class Dense(Stage):
    """Documents by the cosine of the claim's embedding and their best passage's.

    `candidates` is the number of neighbours that an approximate index looks at (Elasticsearch's `num_candidates`);
    the local store is exact.
    """

    kind: Literal["dense"] = "dense"
    depth: int = Field(default=100, ge=1, le=10_000, description="how many documents it hands on")
    weight: float = Field(default=1.0, gt=0, description="its share in the fusion")
    candidates: int | None = Field(default=None, ge=1, le=10_000)
    required: bool = Field(default=True, description="false: goes on without it where it can't run, and says so")


Retriever: TypeAlias = Annotated[Bm25 | Dense, Field(discriminator="kind")]


class Fusion(Stage):
    """How the retrievers' rankings become one.

    `rrf`: score(d) = sum of weight / (k + rank(d)) (Cormack, Clarke and Büttcher, SIGIR 2009). `minmax`: each
    retriever's scores scaled to 0..1 over what it handed on, then the weighted sum; k is not used.
    """

    method: Literal["rrf", "minmax"] = "rrf"
    k: int = Field(default=60, ge=1, description="rank constant")


class ModelReranker(Stage):
    """Documents ordered again by a model that reads the claim and the document together.

    `model`: a name, a folder, the URL of a server, or `auto` (the sidecar of the settings, else what suits this
    machine). A document that is longer than `max_tokens` allows is cut, or scored by windows of which the best counts.
    """

    kind: Literal["model"] = "model"
    model: str = "auto"
    depth: int = Field(default=100, ge=1, le=10_000, description="how many documents it reads")
    max_tokens: int | None = Field(default=None, ge=32, le=131_072, description="default: the model's own, at most 512")
    long: Literal["cut", "windows"] = "cut"
    cutoff_layer: int | None = Field(default=None, ge=1, description="of layerwise models: the layer that scores")
    prompt: str | None = Field(default=None, description="of decoders that are not known: what stands after the texts")
    yes_token: str | None = Field(default=None, description="of the same: the token whose logit is the score")
    dtype: Literal["float32", "bfloat16", "float16"] | None = Field(
        default=None, description="default: bfloat16 on a GPU that has it, else float32"
    )
    trust_remote_code: bool = Field(default=False, description="true: Python code beside the weights may run here")
    required: bool = Field(default=True, description="false: goes on without it where it can't run, and says so")


class EnsembleReranker(Stage):
    """Several models whose rankings become one: by reciprocal ranks, or by the mean of scores scaled to 0..1."""

    kind: Literal["ensemble"] = "ensemble"
    models: list[str] = Field(min_length=1)
    method: Literal["rrf", "mean"] = "rrf"
    k: int = Field(default=60, ge=1, description="rank constant of rrf")
    depth: int = Field(default=100, ge=1, le=10_000, description="how many documents they read")
    max_tokens: int | None = Field(default=None, ge=32, le=131_072)
    long: Literal["cut", "windows"] = "cut"
    required: bool = Field(default=True, description="false: goes on without it where it can't run, and says so")


class ListwiseReranker(Stage):
    """A language model that orders passages by permutation, in windows from the last to the first (RankGPT).

    Its order is fused with the scores of the reranker before it:
    alpha * score + (1 - alpha) * (1 - (rank - 1) / (N - 1)).
    """

    kind: Literal["listwise"] = "listwise"
    llm: str | None = Field(default=None, description="the language model; default: the settings'")
    depth: int = Field(default=20, ge=2, le=1000, description="how many documents it reads")
    window: int = Field(default=20, ge=2, le=100)
    stride: int = Field(default=10, ge=1, le=100)
    alpha: float = Field(default=0.4, ge=0, le=1, description="the share of the scores before")
    examples: Path | None = Field(default=None, description="labelled rankings to show; JSON Lines")
    required: bool = Field(default=True, description="false: goes on without it where it can't run, and says so")


RerankerStage: TypeAlias = Annotated[ModelReranker | EnsembleReranker | ListwiseReranker, Field(discriminator="kind")]


class EvidenceStage(Stage):
    """Which sentences of each document are shown, and how many.

    `mix`: the words shared with the claim and the similarity of embeddings, where there is a model; `lexical` and
    `embedding`: one of them alone; `reranker`: by the last reranker's score.
    """

    sentences: int = Field(default=1, ge=0, le=10)
    method: Literal["mix", "lexical", "embedding", "reranker"] = "mix"


class VerdictStage(Stage):
    """Who judges. `auto`: the best that is set up; `none`: nobody.

    `llm` asks a language model over HTTP, in the way that `strategy` names; `local-llm` compares the likelihood of the
    answers by a causal model on this machine; `stance` is a sequence classifier.
    """

    method: Literal["auto", "llm", "local-llm", "stance", "none"] = "auto"
    model: str | None = Field(default=None, description="the model of the method; default: the settings'")
    strategy: Literal["one-step", "two-step", "few-shot", "hybrid", "batch"] = "one-step"
    documents: int = Field(default=10, ge=1, le=1000, description="how many of the hits are judged")
    examples: Path | None = Field(default=None, description="labelled pairs for few-shot; JSON Lines")
    shots: int = Field(default=4, ge=1, le=50, description="how many examples are shown")
    batch: int = Field(default=50, ge=1, le=200, description="pairs in one prompt of the strategy batch")
    open_share: float | None = Field(default=None, ge=0, le=1, description="batch: the share of open pairs to expect")
    conclude: Literal["rule", "model"] = Field(default="rule", description="who makes the claim's verdict of stances")
    calibration: Path | None = Field(default=None, description="a file that ccheck wrote from labelled pairs")


class Recipe(Stage):
    """A pipeline from claim to verdict."""

    name: str
    description: str = ""
    retrievers: dict[str, Retriever] = Field(min_length=1)
    fusion: Fusion = Fusion()
    rerankers: dict[str, RerankerStage] = Field(default={}, description="in the order in which they run")
    evidence: EvidenceStage = EvidenceStage()
    verdict: VerdictStage = VerdictStage()


def recipe_names() -> list[str]:
    """The recipes that come with ccheck."""
    return sorted(entry.name.removesuffix(".toml") for entry in _folder().iterdir() if entry.name.endswith(".toml"))


def recipe_text(name: str) -> str:
    """The TOML of a packaged recipe or of a file.

    Raises NotFound where there is neither, naming the nearest.
    """
    if name in recipe_names():
        return _folder().joinpath(f"{name}.toml").read_text(encoding="utf-8")
    path = Path(name)
    if not path.is_file():
        near = difflib.get_close_matches(name, recipe_names(), 1)
        hint = f"did you mean {near[0]!r}?" if near else f"packaged are {', '.join(recipe_names())}"
        raise NotFound(f"there is no recipe {name!r}, neither packaged nor as a file: {hint}")
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidData(f"the recipe {name} can't be read: {error}") from error


def load_recipe(name: str) -> Recipe:
    """A packaged recipe by name, or one from a file. Raises NotFound or InvalidData."""
    text = recipe_text(name)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidData(f"the recipe {name} is not valid TOML: {error}") from error
    for stages, known, usual in (("retrievers", (), None), ("rerankers", ("ensemble", "listwise"), "model")):
        tables = data.get(stages)
        for key, table in tables.items() if isinstance(tables, dict) else ():
            if isinstance(table, dict):
                table.setdefault("kind", key if key in known or usual is None else usual)
    data.setdefault("name", Path(name).stem)
    try:
        return Recipe.model_validate(data)
    except ValidationError as error:
        raise InvalidData(f"the recipe {name}: {'; '.join(_explain(error))}") from error


def _folder() -> Traversable:
    return files(f"{__package__}.recipes")


def _explain(error: ValidationError) -> Iterable[str]:
    for problem in error.errors():
        parts = [str(part) for part in problem["loc"]]
        if parts[:1] in (["retrievers"], ["rerankers"]):
            del parts[2:3]  # the kind, by which pydantic tells the retrievers apart
        where = ".".join(parts)
        if problem["type"] != "extra_forbidden":
            yield f"{where}: {problem['msg']}"
            continue
        key = str(problem["loc"][-1])
        known = _known_keys(problem["loc"])
        near = difflib.get_close_matches(key, known, 1, cutoff=0.4)
        yield f"unknown key {where}" + (f", did you mean {near[0]!r}?" if near else f"; known: {', '.join(known)}")


def _known_keys(path: tuple[int | str, ...]) -> list[str]:
    """The keys of the stage that an error's path leads to."""
    models: list[type[Stage]] = [Recipe]
    for part in path[:-1]:
        found: list[type[Stage]] = []
        for model in models:
            if part in model.model_fields:
                found += _stages(model.model_fields[str(part)].annotation)
        tagged = [
            model for model in models if model.model_fields.get("kind") and part == model.model_fields["kind"].default
        ]
        models = found or tagged or models
    return sorted({name for model in models for name in model.model_fields})


def _stages(annotation: Any) -> list[type[Stage]]:
    if isinstance(annotation, type) and issubclass(annotation, Stage):
        return [annotation]
    if get_origin(annotation) in (dict, list, Union, UnionType, Annotated):
        return [stage for part in get_args(annotation) for stage in _stages(part)]
    return []
