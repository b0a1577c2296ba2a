"""`ccheck index`: stores themselves."""

from __future__ import annotations

import click

from . import opt
from .common import confirmed, counted, inform, notice, print_answer, print_fields, print_json, settings_from, stdout
from .index_documents import opened_store

SECTIONS = {
    "Documents": {
        "fields": "List the fields to filter on, with examples of their values.",
        "show": "Show documents as they are stored.",
        "export": "Write all documents as JSON Lines, for ccheck ingest.",
        "remove": "Remove documents by id or by a filter.",
    },
    "Stores": {
        "info": "Show what a store contains and how it was made.",
        "list": "List the local stores in the data folder, or a store's indices on a server.",
        "check": "Check all files of a local store for damage.",
        "rebuild": "Rebuild the search index of a local store.",
        "delete": "Delete a store with everything in it.",
    },
    "Elasticsearch": {
        "create": "Create an empty index with your own index type and shards.",
        "migrate": "Move a store to another model, chunking or index type, without downtime.",
        "revert": "Return to the index from before the last migration.",
        "install": "Put templates for searching without ccheck into the cluster, or take them out.",
        "enrich": "Add vectors to an index in Elasticsearch that others use.",
    },
}
"""The commands under each heading of the help."""
MODULES = {
    **dict.fromkeys(SECTIONS["Documents"], "index_documents"),
    **dict.fromkeys(SECTIONS["Stores"], "index"),
    **dict.fromkeys(SECTIONS["Elasticsearch"], "index_servers"),
    "enrich": "index_enrich",
    "install": "index_install",
}


@click.group(cls=opt.LazyGroup, sections=SECTIONS, modules=MODULES)
def index() -> None:
    """Inspect, repair, move, empty or delete stores and their documents.

    \b
    ccheck index info
    ccheck index fields
    ccheck index show 10.1007/s10712-011-9119-1
    ccheck index remove --filter retracted=true
    ccheck index export papers.jsonl
    ccheck index migrate --store https://host:9200/papers --index-type bbq_hnsw
    """


@opt.command
def info(*, store: str | None = opt.store, as_json: bool = opt.as_json) -> None:
    """Show what a store contains and how it was made.

    \b
    ccheck index info --store https://host:9200/papers
    """
    with opened_store(store) as opened:
        found = opened.info()
    assert found is not None
    facts = {
        "store": found.name,
        "documents": found.documents,
        "passages": found.passages,
        "dimensions": found.dimensions,
        "layout": found.layout.to_dict(),
        "bytes": found.bytes,
        "pending": found.pending,
        "details": dict(found.details),
    }
    waiting = f"{found.pending:,}: an ingest is running, or must be run again" if found.pending else ""
    said = {
        "store": found.name,
        "documents": f"{found.documents:,}",
        "passages": f"{found.passages:,}",
        "made with": found.made_with,
        "size": f"{found.bytes / 1e6:,.1f} MB" if found.bytes is not None else "",
        "not yet searchable": waiting,
        **found.details,
    }
    print_answer(as_json, facts, said)


@opt.command(name="list")
def list_(
    *,
    store: str | None = opt.option("List the indices of this store on a server instead.", "STORE"),
    as_json: bool = opt.as_json,
) -> None:
    """List the local stores in the data folder, or a store's indices on a server.

    \b
    ccheck index list
    ccheck index list --store https://host:9200/papers

    On a server, lists the index that the alias stands for, unfinished copies of a migration, and earlier indices that
    you can return to.
    """
    from ..search.open import local_stores

    if store is not None:
        from .index_servers import list_indices

        list_indices(store, as_json)
        return
    data_dir = settings_from().data_dir
    rows = {}
    for one in local_stores(data_dir):
        if as_json:
            print_json({"store": one.name, "documents": one.documents, "folder": str(one.folder)})
        rows[one.name] = one.problem or f"{counted(one.documents or 0, 'document'):<20}{one.folder}"
    if rows and not as_json:
        print_fields(stdout(), rows)
    if not rows and not as_json:
        inform(f"no stores in {data_dir} yet. Make one with ccheck ingest FILE")


@opt.command
def check(*, store: str | None = opt.store, as_json: bool = opt.as_json) -> None:
    """Check all files of a local store for damage.

    \b
    ccheck index check
    ccheck index check --store local:papers

    Compares everything with its checksum and changes nothing. If something is damaged, the output says what to run, and
    the exit code is 5.
    """
    from ..search import open_local_store

    with open_local_store(settings_from(store=store), "Elasticsearch checks its own files") as opened:
        found = opened.check()
    problems = [
        {"file": str(damage.where), "problem": damage.problem, "run": damage.commands(opened.name)} for damage in found
    ]
    if as_json:
        print_json({"store": opened.name, "damaged": bool(problems), "problems": problems})
    elif problems:
        print_fields(stdout(), {str(one["file"]): str(one["problem"]) for one in problems})
    else:
        inform(f"{opened.name} has no damage")
    if found:
        # What brings the documents back makes the rest again, too.
        raise min(found, key=lambda damage: damage.derived).in_store(opened.name)


@opt.command
def rebuild(*, store: str | None = opt.store) -> None:
    """Rebuild the search index of a local store.

    \b
    ccheck index rebuild --store local:papers

    The index is built from the stored documents, which stay unchanged. Remains of deleted documents are removed.
    """
    from ..search import open_local_store

    with open_local_store(settings_from(store=store), "Elasticsearch maintains its own index") as opened:
        opened.rebuild()
        inform(f"{opened.name} was rebuilt: {counted(opened.count(), 'document')}")


@opt.command
def delete(*, store: str | None = opt.store, yes: bool = opt.yes) -> None:
    """Delete a store with everything in it.

    \b
    ccheck index delete --store local:papers

    Says exactly what it will delete, and asks first. In Elasticsearch it deletes only an index that ccheck made and
    that nobody else uses: it refuses an alias with a filter, a data stream, or an index with other aliases. In the
    folder of a local store it deletes only the files that ccheck made.
    """
    from ..search import open_store

    with open_store(settings_from(store=store)) as opened:
        what = opened.removal()
        if not confirmed(f"Delete {opened.name}: {what}?", yes=yes):
            notice("nothing was deleted")
            return
        if left := opened.drop():
            notice(
                f"{opened.name} was deleted. These files are not ccheck's and were left: {', '.join(map(str, left))}"
            )
        else:
            inform(f"{opened.name} was deleted")
