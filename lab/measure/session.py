"""A session of evaluations: data are read once, and any number of recipes share one store and its models.

data = read_evaluation_data("queries.jsonl", "qrels.tsv")
with Runtime(resolve({"store": "local:papers"}).settings) as runtime, open_session(runtime) as session:
    recipes = {name: session.prepare(recipe, data) for name, recipe in load_recipes(["bm25", "default"]).items()}
    for name, evaluation in session.evaluate_all(recipes, data):
        print(name, evaluation.measured.mean)
"""

from __future__ import annotations

import itertools
import math
import re
import tomllib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from more_itertools import chunked

from ...core.adjust import Changes, resolved
from ...core.cache import Cache
from ...core.errors import InvalidData, UsageError
from ...core.recipe import Recipe, changed, load_recipe, models_used
from ...core.runtime import Runtime
from ...pipeline.checker import Checker
from ...pipeline.claims import read_claims
from ...search import Store, open_store
from .datasets import read_gold, read_qrels
from .evaluate import Evaluation, EvaluationData, evaluate, retrieval_only
from .metrics import DEFAULT_METRICS, check_metrics, cutoffs, some_of

DEPTH = 100
"""How many documents are ranked, unless a metric needs more."""


def read_evaluation_data(
    claims: str,
    qrels: str,
    *,
    verdicts: str | None = None,
    metrics: Sequence[str] = (),
) -> EvaluationData:
    """Read the files of an evaluation. Raises NotFound, InvalidData, UsageError (an unknown metric) or MissingExtra."""
    wanted = tuple(dict.fromkeys(metrics or DEFAULT_METRICS))
    check_metrics(wanted)
    judged, asked = read_qrels(qrels), read_claims(claims)
    gold = read_gold(verdicts) if verdicts is not None else None
    return EvaluationData(asked, judged, gold, wanted, max([DEPTH, *cutoffs(wanted).values()]))


def load_recipes(names: Sequence[str], replacements: Mapping[str, str] | None = None) -> dict[str, Recipe]:
    """Recipes by the names that tables give them: their own or, where two recipes share one, what was passed.

    Each recipe gets the replacements of the models that it names. Raises NotFound, InvalidData, or UsageError where no
    recipe names a model.
    """
    if len(set(names)) < len(names):
        raise UsageError("a recipe is given twice")
    replacements = replacements or {}
    loaded = {name: load_recipe(name) for name in names}
    used: set[str] = set()
    for name, recipe in loaded.items():
        own = {old: new for old, new in replacements.items() if old in models_used(recipe)}
        used |= own.keys()
        if own:
            loaded[name] = load_recipe(name, own)
    for old in replacements:
        if old not in used:
            load_recipe(names[0], {old: replacements[old]})  # raises, with the models that the recipe names
    called = [recipe.name for recipe in loaded.values()]
    return {recipe.name if called.count(recipe.name) == 1 else name: recipe for name, recipe in loaded.items()}


@dataclass(frozen=True, slots=True)
class Session:
    """A store, models that are loaded once, and what earlier evaluations computed, for any number of recipes."""

    runtime: Runtime
    store: Store
    memory: CachedMemory
    changes: Changes

    def prepare(self, recipe: Recipe, data: EvaluationData) -> Recipe:
        """The recipe with the changes from settings and data: without verdicts if none are measured."""
        recipe = resolved(self.runtime.settings, self.changes, recipe)
        return recipe if data.gold is not None else retrieval_only(recipe)

    def checker(self, recipe: Recipe) -> Checker:
        """A checker that shares this session's store and models."""
        return Checker(self.runtime, recipe=recipe, store=self.store)

    def known(self, ids: Sequence[str]) -> Collection[str]:
        """Those of the given document ids that the store has."""
        found: set[str] = set()
        for some in chunked(ids, 500):
            found |= self.store.get(some).keys()
        return found

    def evaluate_all(self, recipes: Mapping[str, Recipe], data: EvaluationData) -> Iterator[tuple[str, Evaluation]]:
        """Measure prepared recipes by name, each as it is asked for: what `ccheck evaluate` does.

        All of them are opened before the first one runs. Raises what would keep one from running, UsageError for one
        that is to judge and has no judge, InvalidData if the store has no judged document, and what `evaluate` raises.
        """
        judged = list(dict.fromkeys(document for grades in data.qrels.values() for document in grades))
        if not any(map(self.known, chunked(judged, 500))):
            raise InvalidData(*some_of(judged, judged, "judged document", f"not in {self.store.name}"))
        for recipe in recipes.values():
            with self.checker(recipe) as checker:
                plan = checker.plan()
            if data.gold is not None and plan.method is None:
                raise UsageError(f"the recipe {recipe.name} has no judge: its verdict method is none")
        for name, recipe in recipes.items():
            before = self.memory.hits.copy()
            with self.runtime.progress(name, "claims") as on_progress, self.checker(recipe) as checker:
                made = evaluate(checker, data, on_progress)
            yield name, replace(made, remembered=self.memory.hits - before)


@contextmanager
def open_session(runtime: Runtime, changes: Changes | None = None) -> Iterator[Session]:
    """Open the store of the settings. `changes` are made to each recipe.

    Raises UsageError, NotFound or InvalidData.
    """
    settings = runtime.settings
    file = settings.cache_dir / "evaluation" / "memory.sqlite"
    with Cache(file, settings.cache_bytes, "the cache of evaluations") as cache, open_store(settings) as store:
        memory = CachedMemory(cache)
        yield Session(replace(runtime, memory=memory), store, memory, changes or Changes())


@dataclass(frozen=True, slots=True)
class CachedMemory:
    """A `Memory` in a cache; keys are hashes of their kind, too. `hits` counts values, by kind."""

    cache: Cache
    hits: Counter[str] = field(default_factory=Counter)

    def get(self, kind: str, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        found = self.cache.get(keys)
        self.hits[kind] += len(found)
        return found

    def put(self, kind: str, values: Mapping[bytes, bytes]) -> None:
        self.cache.put(values)


# -- a recipe over a grid of settings

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
