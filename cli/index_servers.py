"""`ccheck index create | migrate | revert | install | enrich`: indices on an Elasticsearch server."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import click
from more_itertools import map_reduce

from ..core.errors import Incomplete, InvalidData, UsageError
from . import opt
from .common import confirmed, counted, inform, notice, print_answer, print_json, replacements, settings_from, stdout
from .progress import progress_bar, runtime

if TYPE_CHECKING:
    from ..core.settings import Settings
    from ..pipeline.enrich import EnrichReport
    from ..pipeline.migrate import Migrated, Rankings
    from ..search.elastic.install import Piece, Reranker
    from ..search.elastic.mappings import IndexOptions
    from ..search.elastic.store import ElasticStore

# Those of `ccheck.search.elastic.mappings`, which takes long to import; a test compares them.
INDEX_TYPES = ("int8_hnsw", "bbq_hnsw", "int4_hnsw", "hnsw", "bbq_disk", "int8_flat", "bbq_flat", "flat")
SERVER_ONLY = "This command is for Elasticsearch: --store https://host:9200/INDEX"
COHERE_PATH = "/v2/rerank"
"""Where a reranking server takes Cohere's format."""
NAMED = 3
"""How many documents are named that failed for one reason."""

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

    with progress_bar("copying", unit="documents") as update, runtime(settings, lines=True) as models:
        done = run(
            models,
            changes,
            check,
            claims=asked,
            switch=not no_switch,
            on_documents=update,
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
    roles = {one.name: moving.role(one) for one in found}
    print_answer(as_json, [{"index": one.name, "in_use": one.in_use, "role": roles[one.name]} for one in found], roles)


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


# -- what is put into the cluster for searching without ccheck


@opt.command
def install(
    *,
    store: str | None = opt.store,
    reranker: str | None = opt.option(
        "Reranking server that Elasticsearch is to call, as seen from the cluster. Its key is CCHECK_RERANK_API_KEY.",
        "URL",
    ),
    recipe: str | None = opt.recipe("Recipe whose search the search template holds."),
    search_application: bool = opt.option(
        "Also make a search application of the search template, with its alias (privilege manage_search_application)."
    ),
    roles: bool = opt.option("Also put roles for searching, writing, administering and recording there."),
    undo: bool = opt.option("Take out what this command put into the cluster."),
    dry_run: bool = opt.option("Print the requests for Kibana's console, and change nothing."),
    yes: bool = opt.yes,
) -> None:
    """Put templates for searching without ccheck into the cluster, or take them out.

    \b
    ccheck index install --store https://host:9200/papers
    ccheck index install --store https://es:9200/papers --reranker http://gpu:8080
    ccheck index install --store https://host:9200/papers --undo

    These are component templates and an index template for the store's further indices; a search template with the
    search that ccheck sends for a claim, where the licence has rrf; and with --reranker an inference endpoint, with a
    second search template that reranks with it. What is there already stays as it is, and what somebody else made under
    one of these names is an error. The alias of a search application stays where it is if the store moves to another
    index: run the command again after ccheck index migrate.
    """
    from ..core.adjust import resolved
    from ..search import Search, open_elastic_store
    from ..search.elastic import install as installing

    settings = settings_from(store=store, recipe=recipe)
    with open_elastic_store(settings, SERVER_ONLY) as opened:
        if undo:
            _take_out(opened, dry_run=dry_run, yes=yes)
            return
        used = resolved(settings)
        search = Search([], used.retrievers, used.fusion)  # what claims are searched with
        pieces = installing.pieces(opened, search, _reranker(settings, reranker), roles, search_application)
        if dry_run:
            click.echo("\n\n".join(f"PUT {piece.path[1:]}\n{_shown(piece)}" for piece in pieces))
            return
        due = [(piece, found) for piece in pieces if (found := installing.state(opened.client, piece)) != "same"]
        for piece, found in due:
            stdout().print(f"{found:>8}  {piece.what}", soft_wrap=True)
        if not installing.fuses(opened.client):
            inform("the server's licence has no rrf, so that there is no search template")
        if not due:
            inform(f"everything is there: {len(pieces)} pieces for {opened.name}")
        elif confirmed(f"Put this into {opened.client.connection.url}?", yes=yes):
            for piece, _ in due:
                installing.put(opened.client, piece)
            inform(f"done. To take it out again, run ccheck index install --undo --store {opened.name}")
            click.echo(installing.example(opened, pieces))


def _take_out(opened: ElasticStore, *, dry_run: bool, yes: bool) -> None:
    from ..search.elastic import install as installing

    client = opened.client
    due = [piece for piece in installing.leftovers(opened) if installing.state(client, piece) != "absent"]
    if dry_run:
        click.echo("\n".join(f"DELETE {piece.path[1:]}" for piece in due))
        return
    for piece in due:
        stdout().print(f"  remove  {piece.what}", soft_wrap=True)
    if not due:
        inform(f"nothing to remove: ccheck put nothing for {opened.name} into the cluster")
    elif confirmed(f"Remove this from {client.connection.url}?", yes=yes):
        for piece in due:
            if (why := installing.remove(client, piece)) is not None:
                inform(f"the {piece.what} stays: {why}")


def _reranker(settings: Settings, url: str | None) -> Reranker | None:
    """The server that Elasticsearch is to call, with its key if the user named the server for it."""
    from ..search.elastic.install import Reranker

    if url is None:
        return None
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"--reranker {url} is not a URL. Write, for example, http://rerank:8080")
    key = settings.rerank_api_key
    whole = url if url.rstrip("/").endswith("/rerank") else url.rstrip("/") + COHERE_PATH
    return Reranker(whole, key.get_secret_value() if key is not None else None)


def _shown(piece: Piece) -> str:
    """The body without a key."""
    body = json.loads(json.dumps(piece.body))
    if "service_settings" in body:
        body["service_settings"]["secret_parameters"] = {"api_key": "KEY"}
    return json.dumps(body, indent=2)


# -- vectors for an index that others use


@opt.command
def enrich(
    index: str | None = opt.argument("[INDEX]", required=False),
    *,
    recipe: str | None = opt.recipe("Add everything that this recipe searches, such as sparse vectors and terms."),
    replace: tuple[str, ...] = opt.replace,
    in_place: bool = opt.option("Change the documents themselves. Asks first, and can't be undone."),
    one_vector: bool | None = opt.option(
        "One flat vector per document, which ES|QL and Kibana see, or one per passage, nested.  [default: flat if the "
        "model reads each of 1,000 documents whole]",
        names=("--one-vector/--passages",),
    ),
    dry_run: bool = opt.option("Say what would be done, and change nothing."),
    rate: float | None = opt.option("Most documents to write per second.", "N", least=0.001),
    undo: bool = opt.option("Delete the companion index."),
    yes: bool = opt.yes,
    store: str | None = opt.store,
    model: str | None = opt.model,
    as_json: bool = opt.as_json,
) -> None:
    """Add vectors to an index in Elasticsearch that others use.

    \b
    ccheck index enrich https://host:9200/articles
    ccheck index enrich https://host:9200/articles --undo

    Makes a companion: the index ccheck-companion-articles with the same ids and the vectors of the texts. The index
    itself stays as it is. ccheck then searches both together. Run it again to continue after an interruption, and to
    add what was written since: new documents, changed texts and removals. --undo deletes the companion.

    With --in-place, no companion is made: the documents get a field ccheck.vector, which any search can use.
    With --one-vector, a document that is longer than the model reads gets the vector of its beginning.
    """
    from ..pipeline.enrich import open_enricher
    from ..pipeline.enrich import undo as run_undo
    from ..pipeline.ingest import recipe_to_ingest

    if index is not None and store is not None:
        raise UsageError(f"name one index: {index} or --store {store}")
    if replace and recipe is None:
        raise UsageError("--replace changes the models of a recipe. Name the recipe with --recipe")
    if index is not None:  # a URL, or an index on the server that the settings name
        store = index if ":" in index or "/" in index else f"elasticsearch:{index}"
    settings = settings_from(store=store, embedding_model=model)
    if undo:
        if in_place:
            raise UsageError(
                "--undo deletes a companion. What --in-place added stays until the documents are reindexed into "
                "another index"
            )
        agreed = run_undo(settings, lambda what: confirmed(f"Delete {what}?", yes=yes))
        if not agreed or not opt.is_quiet():
            notice("the companion was deleted" if agreed else "nothing was deleted")
        return
    needed = recipe_to_ingest(settings, recipe, replacements(replace)) if recipe is not None else None
    with (
        runtime(settings) as models,
        open_enricher(models, needed, in_place=in_place, one_vector=one_vector, rate=rate, agreed=yes) as enricher,
    ):
        said = enricher.consequences()
        notice(*said)
        if enricher.plan:
            inform(f"{enricher.target.name} gets {enricher.plan}")
        if dry_run:
            return
        if said and not confirmed(f"Change the documents of {enricher.target.name}?", yes=yes):
            notice("nothing was changed")
            return
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # it ends as after Ctrl-C
        try:
            with progress_bar("enriching", unit="documents") as update:
                report = enricher.run(update)
        except KeyboardInterrupt:
            notice(f"what was made stays in {enricher.target.name}. Run the same command again to continue")
            raise
        if as_json:
            print_json(asdict(report))
        inform(*_said(report, in_place))
        left = [f"{counted(report.failed, 'document')} could not be enriched, see above"] if report.failed else []
        if report.changed:
            changed = counted(report.changed, "document")
            left += [f"{changed} changed while ccheck read them. Run the same command again"]
        if left:
            raise Incomplete(". ".join(left))


def _said(report: EnrichReport, in_place: bool) -> Iterator[str]:
    """Yields a report of a few lines."""
    yield from report.notices
    counts = [(name, getattr(report, name)) for name in ("made", "unchanged", "removed", "failed")]
    counts += [("changed meanwhile", report.changed)]
    said = ", ".join(f"{count:,} {name}" for name, count in counts if count) or "nothing to do"
    rate = f" ({report.made / report.seconds:,.0f} documents/s)" if report.made and report.seconds else ""
    yield f"{report.target}: {said} in {report.seconds:.1f} s{rate}"
    if report.without_text:
        yield f"{counted(report.without_text, 'document')} without a text got no vector"
    if report.cut:
        how = "use a companion (without --in-place)" if in_place else "delete the companion (--undo) and use --passages"
        long = counted(report.cut, "document")
        yield f"{long} longer than the model reads: one vector, of the beginning. For all of it, {how}"
    for why, ids in map_reduce(report.failures, report.failures.__getitem__).items():
        others = f" and {len(ids) - NAMED} more" if len(ids) > NAMED else ""
        yield f"{', '.join(ids[:NAMED])}{others}: {why}"
    if (more := report.failed - len(report.failures)) > 0:
        yield f"and {more:,} more"
