"""`ccheck index create | migrate | revert`: indices on an Elasticsearch server, for those who run it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from ..core.errors import InvalidData, UsageError
from . import opt
from .common import counted, inform, notice, print_fields, print_json, settings_from, stdout
from .progress import progress_bar, runtime

if TYPE_CHECKING:
    from ..pipeline.migrate import Migrated, Rankings
    from ..search.elastic.mappings import IndexOptions

# Those of `ccheck.search.elastic.mappings`, which takes long to import; a test compares them.
INDEX_TYPES = ("int8_hnsw", "bbq_hnsw", "int4_hnsw", "hnsw", "bbq_disk", "int8_flat", "bbq_flat", "flat")
SERVER_ONLY = "This command is for Elasticsearch: --store https://host:9200/INDEX"

index_type_option = opt.option(
    f"How the server indexes vectors: {', '.join(INDEX_TYPES)}.  [default: int8_hnsw; migrate keeps the index's]",
    "TYPE",
    type=click.Choice(INDEX_TYPES),
)
shards_option = opt.option("Number of primary shards.  [default: 1]", least=1, most=1024)
recipe_option = opt.recipe("Also add the fields that this recipe searches.")


@opt.command
def create(
    *,
    store: str | None = opt.store,
    index_type: str | None = index_type_option,
    shards: int | None = shards_option,
    recipe: str | None = recipe_option,
    model: str | None = opt.model,
    no_dense: bool = opt.option("Store no vectors. Only BM25 can search."),
) -> None:
    """Create an empty index with your own index type and shards.

    \b
    ccheck index create --store elasticsearch:papers --index-type bbq_hnsw

    ccheck ingest creates an index too, with the defaults. Use this command to choose.
    """
    from ..ingest.encoders import layout_of
    from ..pipeline.ingest import open_encoders, recipe_to_ingest
    from ..search import open_elastic_store
    from ..search.elastic import moving

    settings = settings_from(store=store, embedding_model=model)
    with open_elastic_store(settings, SERVER_ONLY) as opened:
        if opened.info() is not None:
            raise InvalidData(f"{opened.name} exists. To change it, run ccheck index migrate --store {opened.name}")
        dense = False if no_dense else True if model is not None else None
        with runtime(settings) as models:
            encoders = open_encoders(models, None, recipe_to_ingest(settings, recipe), dense)
        layout = layout_of(encoders)
        made = moving.create(opened.client, opened.index, layout, _options(index_type, shards))
        opened.prepare(layout)  # says at once if nothing could be written to it
        inform(*encoders.notices)
        inform(f"{opened.name} was created: the index {made}, for {layout.describe()}")


@opt.command
def migrate(
    *,
    store: str | None = opt.store,
    index_type: str | None = index_type_option,
    shards: int | None = shards_option,
    recipe: str | None = recipe_option,
    model: str | None = opt.option("New embedding model: a folder or a name.", "NAME"),
    passage_tokens: int | None = opt.option("Longest passage, in tokens.", least=16),
    claims: str | None = opt.option("Claims to compare rankings with.  [default: titles of stored documents]", "FILE"),
    agree: float | None = opt.option(
        "Minimum overlap of the two top-10 lists.  [default: 0.8; 0.3 with other vectors]", least=0, most=1
    ),
    no_switch: bool = opt.option("Fill and check the new index, but leave the alias where it is."),
    as_json: bool = opt.as_json,
) -> None:
    """Move a store to another model, chunking or index type, without downtime.

    \b
    ccheck index migrate --store elasticsearch:papers --index-type bbq_hnsw
    ccheck index migrate --store elasticsearch:papers --model e5-small-v2
    ccheck index migrate --store elasticsearch:papers --passage-tokens 128

    Fills a new index (papers-000002) from the stored documents, while the old one is searched and written to. What is
    written in the meantime is copied too. If the counts are equal and the rankings agree, the alias is switched in one
    step. Writes wait for a moment; searches never do. If this command is interrupted, run it again and it continues.
    The old index is kept: ccheck index revert returns to it, ccheck index delete removes it.
    """
    from ..core.runtime import Runtime, silent
    from ..pipeline.ingest import recipe_to_ingest
    from ..pipeline.migrate import Changes
    from ..pipeline.migrate import migrate as run

    settings = settings_from(store=store, embedding_model=model)
    chosen = _options(index_type, shards)
    changes = Changes(chosen, recipe_to_ingest(settings, recipe) if recipe else None, model, passage_tokens)
    if not changes.remakes and chosen == _options(None, None):
        raise UsageError(
            "nothing would change. Say what to change with --index-type, --shards, --model, --recipe or "
            "--passage-tokens"
        )
    asked = []
    if claims is not None:
        from ..pipeline.claims import read_claims

        asked = read_claims(claims)

    def check(before: Rankings, after: Rankings, remade: bool) -> str:
        return _compared(before, after, agree if agree is not None else 0.3 if remade else 0.8)

    with (
        progress_bar("copying", unit="documents") as update,
        Runtime(settings, silent if opt.is_quiet() else notice) as models,
    ):
        done = run(
            models,
            changes,
            check,
            claims=asked,
            switch=not no_switch,
            on_documents=lambda some, total: update(some, total),
        )
    _say(done, settings.store, as_json)


@opt.command
def revert(*, store: str | None = opt.store, as_json: bool = opt.as_json) -> None:
    """Return to the index from before the last migration, with what was written since.

    \b
    ccheck index revert --store https://host:9200/papers
    """
    from ..pipeline.migrate import go_back

    settings = settings_from(store=store)
    with runtime(settings) as models:
        done = go_back(models)
    _say(done, settings.store, as_json)


def list_indices(store: str, as_json: bool) -> None:
    """Print the numbered indices of a store, with what each is to it."""
    from ..search import open_elastic_store
    from ..search.elastic import moving
    from ..search.store import no_store

    with open_elastic_store(settings_from(store=store), SERVER_ONLY) as opened:
        found = moving.numbered(opened.client, opened.index)
        if not found:
            raise no_store(opened.name)
    rows = {one.name: moving.role(one) for one in found}
    if not as_json:
        print_fields(stdout(), rows)
    for one in found if as_json else ():
        print_json({"index": one.name, "in_use": one.in_use, "role": rows[one.name]})


def _options(index_type: str | None, shards: int | None) -> IndexOptions:
    from ..search.elastic.mappings import IndexOptions

    return IndexOptions(index_type, shards)  # type: ignore[arg-type]  # click has checked it


def _compared(before: Rankings, after: Rankings, least: float) -> str:
    """The comparison in words. Raises InvalidData if the new rankings are too different."""
    from ..pipeline.migrate import TOP, overlap

    share = overlap(before, after)
    said = f"of the top {TOP} of {counted(len(before), 'claim')} both indices have {share:.0%} in common"
    if share < least:
        raise InvalidData(
            f"{said}, less than {least:.0%}, so the alias stays where it is. The new index is kept: run the same "
            "command with a smaller --agree"
        )
    return said


def _say(done: Migrated, store: str, as_json: bool) -> None:
    if as_json:
        print_json(asdict(done))
    if done.checked:
        inform(done.checked)
    if done.switched:
        inform(
            f"{store} is now {done.target}, with {counted(done.documents, 'document')}. {done.source} is kept, and "
            "takes no writes: ccheck index revert returns to it, ccheck index delete removes it"
        )
    else:
        inform(f"{done.target} has {counted(done.documents, 'document')}. Run the same command without --no-switch")
