"""`ccheck index install`: templates and an endpoint in an Elasticsearch cluster, and taking them out again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from ..core.errors import UsageError
from . import opt
from .common import confirmed, inform, settings_from, stdout
from .index_servers import SERVER_ONLY

if TYPE_CHECKING:
    from ..core.settings import Settings
    from ..search import Search
    from ..search.elastic.install import Piece, Reranker
    from ..search.elastic.store import ElasticStore

COHERE_PATH = "/v2/rerank"
"""Where a reranking server takes Cohere's format."""


@opt.command
def install(
    *,
    store: str | None = opt.store,
    reranker: str | None = opt.option(
        "Reranking server that Elasticsearch is to call, as seen from the cluster. Its key is CCHECK_RERANK_API_KEY.",
        "URL",
    ),
    recipe: str | None = opt.recipe("Recipe whose search the search template holds."),
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
    one of these names is an error.
    """
    from ..search import open_elastic_store
    from ..search.elastic import install as installing

    settings = settings_from(store=store, recipe=recipe)
    with open_elastic_store(settings, SERVER_ONLY) as opened:
        if undo:
            _take_out(opened, dry_run=dry_run, yes=yes)
            return
        pieces = installing.pieces(opened, _search(settings), _reranker(settings, reranker), roles)
        if dry_run:
            click.echo("\n\n".join(f"PUT {piece.path[1:]}\n{_shown(piece)}" for piece in pieces))
            return
        due = [(piece, found) for piece in pieces if (found := installing.state(opened.client, piece)) != "same"]
        for piece, found in due:
            stdout().print(f"{found:>8}  {piece.what}", soft_wrap=True, markup=False, highlight=False)
        if not installing.fuses(opened.client):
            inform("the server's licence has no rrf, so that there is no search template")
        if not due:
            inform(f"everything is there: {len(pieces)} pieces for {opened.name}")
        elif confirmed(f"Put this into {opened.client.connection.name}?", yes=yes):
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
        stdout().print(f"  remove  {piece.what}", soft_wrap=True, markup=False, highlight=False)
    if not due:
        inform(f"nothing to remove: ccheck put nothing for {opened.name} into the cluster")
    elif confirmed(f"Remove this from {client.connection.name}?", yes=yes):
        for piece in due:
            why = installing.remove(client, piece)
            if why is not None:
                inform(f"the {piece.what} stays: {why}")


def _search(settings: Settings) -> Search:
    """What claims are searched with."""
    from ..core.adjust import resolved
    from ..search import Search

    recipe = resolved(settings)
    return Search([], recipe.retrievers, recipe.fusion)


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
