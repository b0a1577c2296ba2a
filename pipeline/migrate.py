"""Moving a store in Elasticsearch to another model, chunking or index type, while it is searched and written to."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from ..core.errors import InvalidData, UsageError
from ..core.layout import Layout
from ..core.recipe import Recipe, load_recipe
from ..core.runtime import Runtime
from ..core.settings import Settings
from ..core.types import Claim
from ..ingest import Encoders, layout_of
from ..ingest.documents import digest, layout_bytes
from ..ingest.encoders import EntryMaker, with_passages
from ..search import open_elastic_store
from ..search.elastic import ElasticStore, bulk, fields, moving
from ..search.elastic.mappings import IndexOptions
from ..search.elastic.reading import Written
from .checker import Checker
from .doctor import only_searching
from .ingest import open_encoders

LOCAL = "Only an Elasticsearch store has indices behind an alias. Ingest into another local store instead"
SAMPLED, TOP = 50, 10
"""How many stored documents stand in for claims, and how many hits of each are compared."""
ROUNDS, FEW = 20, 1_000
"""How often documents that came meanwhile are caught up, or until so few come that writes can wait for the last."""

Rankings: TypeAlias = Mapping[str, Sequence[str]]
"""The ids of the best documents for each claim's id."""
Check: TypeAlias = Callable[[Rankings, Rankings, bool], str]
"""Compares rankings of the index in use and of its copy, which may be `remade` by other models. Returns what to say;
raises InvalidData where the copy is too different."""


@dataclass(frozen=True, slots=True)
class Changes:
    """How the new index differs. A new `recipe`, `model` or size of passages makes new vectors."""

    options: IndexOptions
    recipe: Recipe | None = None
    model: str | None = None
    passage_tokens: int | None = None

    @property
    def remakes(self) -> bool:
        return any(one is not None for one in (self.recipe, self.model, self.passage_tokens))


@dataclass(frozen=True, slots=True)
class Migrated:
    """The old index and the new one; `switched` says whether the alias is on the new one."""

    source: str
    target: str
    documents: int
    copied: int
    switched: bool
    checked: str


def migrate(
    runtime: Runtime,
    changes: Changes,
    check: Check,
    *,
    claims: Sequence[Claim] = (),
    switch: bool = True,
    on_documents: Callable[[int, int], None] = lambda done, total: None,
) -> Migrated:
    """Fill a new index from the store's documents, check it, and put the alias on it.

    Rankings are compared for `claims`; without any, for titles of stored documents. `on_documents` is told how many of
    how many were copied. A run that was interrupted continues. Raises UsageError for a local store, InvalidData if the
    check fails or an unfinished copy has other settings, and what copying and encoding raise.
    """
    settings = runtime.settings
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(open_elastic_store(settings, LOCAL))
        client, alias = store.client, store.index
        source = moving.in_use(client, alias)
        encoders = _encoders(runtime, store, source.index.layout, changes) if changes.remakes else None
        layout = layout_of(encoders) if encoders is not None else source.index.layout
        options = changes.options
        options = replace(options, index_type=options.index_type or source.index.meta.get("index_type"))
        begun = moving.unfinished(client, alias, source)
        if begun is not None:
            _refuse_other(begun, layout, options)
            moving.release(client, source)
            runtime.notify(f"continuing with {begun.name}")
        target = begun or moving.begin(client, alias, source, layout, options)
        move = moving.Move(client, alias, source, target)
        operations = stack.enter_context(_operations(settings, source, layout, encoders))
        done, total = 0, client.count(source.name)

        def copied(documents: int) -> None:
            nonlocal done
            done += documents
            on_documents(done, max(done, total))

        for _ in range(ROUNDS):
            before = done
            move.catch_up(operations, copied)
            if done - before < FEW:
                break
        move.remove_surplus()
        said = _checked(settings, store, move, claims, check)
        if switch:
            move.switch(operations, copied)
        documents = client.count(target.name)
        return Migrated(source.name, target.name, documents, done, switch, said)


def go_back(runtime: Runtime) -> Migrated:
    """Put the alias back on the index that it was on before the last migration.

    What was written since is copied there first. Raises NotFound if that index was deleted, and what `migrate` does.
    """
    settings = runtime.settings
    with open_elastic_store(settings, LOCAL) as store:
        client, alias = store.client, store.index
        source = moving.in_use(client, alias)
        target = moving.former(client, alias, source)
        move = moving.Move(client, alias, source, target)
        layout, done = target.index.layout, 0

        def operations(written: Sequence[Written]) -> Iterator[bulk.Operation]:
            # Its models are loaded only if something was written since.
            encoders = None
            if layout != source.index.layout:
                with ElasticStore(client.connection, target.name) as former:
                    encoders = open_encoders(runtime, former.info(), None, None if layout.dense else False)
            with _operations(settings, source, layout, encoders) as made:
                yield from made(written)

        def copied(documents: int) -> None:
            nonlocal done
            done += documents

        move.catch_up(operations, copied)
        move.switch(operations, copied)
        return Migrated(source.name, target.name, client.count(target.name), done, True, "")


def _encoders(runtime: Runtime, store: ElasticStore, layout: Layout, changes: Changes) -> Encoders:
    """Returns the encoders for the new index. If a model is chosen, its vectors take the place of all others."""
    info = store.info()
    assert info is not None
    if changes.model is not None:
        units = {name: replace(one, embedding=None) for name, one in layout.units.items()}
        info = replace(info, layout=replace(layout, dense={}, units=units))
    # A store without vectors gets some only if they are asked for.
    dense = True if changes.model is not None else None if changes.recipe is not None or layout.dense else False
    encoders = open_encoders(runtime, info, changes.recipe, dense)
    if encoders.additional is not None and layout.additional != encoders.additional.spec:
        instead = "Ingest the files with this recipe into another store (--store)"
        raise UsageError(f"a migration asks no language model, so it can't write additional texts. {instead}")
    return with_passages(encoders, changes.passage_tokens)


def _refuse_other(begun: moving.Numbered, layout: Layout, options: IndexOptions) -> None:
    if begun.index.layout != layout or begun.wanted != options:
        raise InvalidData(
            f"{begun.name} is the unfinished copy of a migration with other settings: {begun.index.layout.describe()}; "
            f"{_described(begun.wanted)}. Run that one again to finish it, or delete the copy: "
            f"ccheck index delete --store {begun.index.name}"
        )


def _described(options: IndexOptions) -> str:
    said = {"index type": options.index_type, "shards": options.shards}
    return ", ".join(f"{name} {value if value is not None else 'as usual'}" for name, value in said.items())


@contextlib.contextmanager
def _operations(
    settings: Settings, source: moving.Numbered, layout: Layout, encoders: Encoders | None
) -> Iterator[moving.Operations]:
    """Yields the function that writes documents of the source to an index of this layout."""
    if layout == source.index.layout:
        yield moving.as_stored
        return
    assert encoders is not None
    with EntryMaker(encoders, settings.cache_dir, settings.cache_bytes) as maker:
        key = layout_bytes(layout)

        def remade(written: Sequence[Written]) -> Iterator[bulk.Operation]:
            stored = [(one, one.source or {}) for one in written]
            ours = [(fields.document(source.index, one.id, held), held) for one, held in stored if "digest" in held]
            kept = layout.additional is not None
            texts = [tuple(held.get("additional", ())) if kept else () for _, held in ours]
            given = [(one, digest(one, key), some) for (one, _), some in zip(ours, texts, strict=True)]
            yield from (bulk.index_operation(entry, layout) for entry in (maker.make(given) if given else []))
            # What others wrote has nothing that a model made, or what nobody can make again.
            made = {*source.index.layout.dense, "sparse", "terms", "units"}
            yield from moving.as_stored(
                [
                    replace(one, source={name: value for name, value in held.items() if name not in made})
                    for one, held in stored
                    if "digest" not in held
                ]
            )

        yield remade


# -- the check


def _checked(settings: Settings, store: ElasticStore, move: moving.Move, claims: Sequence[Claim], check: Check) -> str:
    """Returns what the check says about the rankings of both indices.

    Raises InvalidData if the check fails, or the copy is empty.
    """
    connection, layouts = store.client.connection, (move.source.index.layout, move.target.index.layout)
    before, after = move.counts()
    if before and not after:
        raise InvalidData(f"{move.target.name} is empty, but {move.source.name} is not: the alias stays where it is")
    if not after:
        return ""
    asked = [replace(claim, id=claim.id or str(place)) for place, claim in enumerate(claims or _titles(store))]
    if not asked:
        return "no document has a title to compare rankings with"
    found = []
    for one, remade in ((move.source, False), (move.target, layouts[0] != layouts[1])):
        # A model that the settings name made the new vectors, not the old ones.
        own = settings if remade else settings.model_copy(update={"embedding_model": None})
        recipe = only_searching(load_recipe(settings.recipe))
        with (
            ElasticStore(connection, one.name) as opened,
            contextlib.closing(Checker(own, recipe=recipe, store=opened)) as checker,
        ):
            results = checker.check_many(asked, k=TOP, details=False)
            found.append({r.claim.id or "": [e.document.id for e in r.evidence] for r in results if r.error is None})
    return check(found[0], found[1], layouts[0] != layouts[1])


def _titles(store: ElasticStore) -> list[Claim]:
    """The titles of some documents, or the beginnings of their texts, in place of claims."""
    documents = itertools.islice(store.scan(), SAMPLED)
    return [Claim(text) for one in documents if (text := (one.title or one.text)[:200].strip())]


def overlap(first: Rankings, second: Rankings) -> float:
    """The mean share, 0..1, of the best documents of a claim that both rankings have."""
    shares = []
    for claim in first.keys() | second.keys():
        one, other = {*first.get(claim, ())}, {*second.get(claim, ())}
        shares.append(len(one & other) / max(len(one), len(other), 1) if one or other else 1.0)
    return sum(shares) / max(len(shares), 1)
