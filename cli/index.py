"""`ccheck index`: stores themselves."""

from __future__ import annotations

import click

from ..errors import CcheckError, NotFound, UsageError
from .common import (
    counted,
    json_option,
    notice,
    options,
    print_fields,
    print_json,
    quiet_option,
    settings_from,
    stdout,
    store_option,
)


@click.group()
def index() -> None:
    """Look at stores, rebuild or delete them.

    \b
    ccheck index info
    ccheck index list
    ccheck index delete --store local:papers
    """


@index.command()
@options(store_option, json_option)
def info(*, store: str | None, as_json: bool) -> None:
    """Say what is in a store and what it was made with.

    \b
    ccheck index info --store https://host:9200/papers
    """
    from ..search import open_store

    with open_store(settings_from(store=store)) as opened:
        found = opened.info()
        if found is None:
            raise NotFound(f"there is no store {opened.name}: make it with ccheck ingest FILE --store {opened.name}")
    if as_json:
        print_json(
            {
                "store": found.name,
                "documents": found.documents,
                "passages": found.passages,
                "dimensions": found.dimensions,
                "layout": found.layout.to_dict(),
                "bytes": found.bytes,
                "pending": found.pending,
                "details": dict(found.details),
            }
        )
        return
    print_fields(
        stdout(),
        {
            "store": found.name,
            "documents": f"{found.documents:,}",
            "passages": f"{found.passages:,}",
            "made with": found.layout.describe(),
            "size": f"{found.bytes / 1e6:,.1f} MB" if found.bytes is not None else "",
            "not yet searchable": f"{found.pending:,}: an ingest is running, or is to be run again"
            if found.pending
            else "",
            **found.details,
        },
    )


@index.command("list")
@options(json_option)
def list_(*, as_json: bool) -> None:
    """List the local stores of the data folder.

    \b
    ccheck index list
    """
    from ..search.local import LocalStore
    from ..search.local.store import DATABASE

    folder = settings_from().data_dir
    names = sorted(file.parent.name for file in folder.glob(f"*/{DATABASE}"))
    rows = {}
    for name in names:
        documents, problem = None, ""
        try:
            with LocalStore(folder / name, name) as store:
                documents = store.count()
        except CcheckError as error:
            problem = str(error)
        if as_json:
            print_json({"store": f"local:{name}", "documents": documents, "folder": str(folder / name)})
        rows[f"local:{name}"] = problem or f"{counted(documents or 0, 'document'):<20}{folder / name}"
    if names and not as_json:
        print_fields(stdout(), rows)
    if not names and not as_json:
        notice(f"no stores in {folder} yet: ccheck ingest FILE makes one")


@index.command()
@options(store_option, quiet_option)
def rebuild(*, store: str | None, quiet: bool) -> None:
    """Build a local store's search index anew.

    \b
    ccheck index rebuild --store local:papers

    From the documents, which stay as they are; what deleted ones left behind goes.
    """
    from ..search import open_store
    from ..search.local import LocalStore

    with open_store(settings_from(store=store)) as opened:
        if not isinstance(opened, LocalStore):
            raise UsageError("only local stores are rebuilt here; Elasticsearch keeps its own index")
        opened.rebuild()
        if not quiet:
            notice(f"{opened.name} is rebuilt: {counted(opened.count(), 'document')}")


@index.command()
@click.option("--yes", is_flag=True, help="Remove it without asking.")
@options(store_option, quiet_option)
def delete(*, store: str | None, yes: bool, quiet: bool) -> None:
    """Remove a store with everything in it.

    \b
    ccheck index delete --store local:papers

    Asks first, and says exactly what goes. In Elasticsearch it removes only an index that ccheck made and that nobody
    else uses: an alias with a filter, a data stream, or an index with other aliases is refused.
    """
    from ..search import open_store

    with open_store(settings_from(store=store)) as opened:
        if opened.info() is None:
            raise NotFound(f"there is no store {opened.name}")
        if not yes and not click.confirm(f"Remove {opened.name}: {opened.removal()}?", err=True):
            notice("nothing was removed")
            return
        opened.drop()
        if not quiet:
            notice(f"{opened.name} is gone")
