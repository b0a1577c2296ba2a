"""`ccheck index`: stores themselves."""

from __future__ import annotations

import click

from ..errors import NotFound, UsageError
from .common import json_option, options, quiet_option, settings_from, stdout, store_option


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
    from .query import print_json

    settings = settings_from(store=store)
    with open_store(settings) as opened:
        found = opened.info()
        if found is None:
            raise NotFound(f"there is no store {opened.name}: make it with ccheck ingest FILE --store {settings.store}")
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
    console = stdout()
    rows = {
        "store": found.name,
        "documents": f"{found.documents:,}",
        "passages": f"{found.passages:,}",
        "made with": found.layout.describe(),
        "size": f"{found.bytes / 1e6:,.1f} MB" if found.bytes is not None else "",
        "not yet searchable": f"{found.pending:,}" if found.pending else "",
        **found.details,
    }
    for name, value in rows.items():
        if value:
            console.print(f"[bold]{name:<18}[/] ", end="")
            console.print(value, markup=False, soft_wrap=True)


@index.command("list")
@options(json_option)
def list_(*, as_json: bool) -> None:
    """List the local stores of the data folder.

    \b
    ccheck index list
    """
    from ..search.local import LocalStore
    from ..search.local.store import DATABASE
    from .query import print_json

    folder = settings_from().data_dir
    names = sorted(file.parent.name for file in folder.glob(f"*/{DATABASE}"))
    for name in names:
        with LocalStore(folder / name, name) as store:
            documents = store.count()
        if as_json:
            print_json({"store": store.name, "documents": documents, "folder": str(folder / name)})
        else:
            click.echo(f"{store.name}  {documents:,} documents  {folder / name}")
    if not names and not as_json:
        click.echo(f"ccheck: no stores in {folder} yet: ccheck ingest FILE makes one", err=True)


@index.command()
@options(store_option, quiet_option)
def rebuild(*, store: str | None, quiet: bool) -> None:
    """Build a local store's search index anew from its documents, and drop what deleted ones left behind.

    \b
    ccheck index rebuild --store local:papers
    """
    from ..search import open_store
    from ..search.local import LocalStore

    with open_store(settings_from(store=store)) as opened:
        if not isinstance(opened, LocalStore):
            raise UsageError("only local stores are rebuilt here; Elasticsearch keeps its own index")
        opened.rebuild()
        if not quiet:
            click.echo(f"ccheck: {opened.name} is rebuilt: {opened.count():,} documents", err=True)


@index.command()
@click.option("--yes", is_flag=True, help="Do not ask.")
@options(store_option, quiet_option)
def delete(*, store: str | None, yes: bool, quiet: bool) -> None:
    """Remove a store with everything in it.

    \b
    ccheck index delete --store local:papers
    """
    from ..search import open_store

    with open_store(settings_from(store=store)) as opened:
        found = opened.info()
        if found is None:
            raise NotFound(f"there is no store {opened.name}")
        if not yes:
            click.confirm(f"Remove {opened.name} with its {found.documents:,} documents?", abort=True, err=True)
        opened.drop()
        if not quiet:
            click.echo(f"ccheck: {opened.name} is gone", err=True)
