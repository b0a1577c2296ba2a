"""`ccheck index`: stores themselves."""

from __future__ import annotations

import click

from ..errors import CcheckError, InvalidData, NotFound, UsageError
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
    """Look at stores, check, rebuild or delete them.

    \b
    ccheck index info
    ccheck index list
    ccheck index check
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
    from ..search.local.files import DATABASE

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
@options(store_option, json_option, quiet_option)
def check(*, store: str | None, as_json: bool, quiet: bool) -> None:
    """Look for damage in all files of a local store.

    \b
    ccheck index check
    ccheck index check --store local:papers

    Everything is compared with its checksum, and nothing is changed. Exit code 5: something is damaged, and the output
    says what to run.
    """
    from ..search import open_store
    from ..search.local import LocalStore

    with open_store(settings_from(store=store)) as opened:
        if not isinstance(opened, LocalStore):
            raise UsageError("only local stores are checked here; Elasticsearch checks its own files")
        found = opened.check()
    problems = [
        {"file": str(damage.where), "problem": damage.problem, "run": damage.commands(opened.name)} for damage in found
    ]
    if as_json:
        print_json({"store": opened.name, "damaged": bool(problems), "problems": problems})
    elif problems:
        print_fields(stdout(), {str(one["file"]): str(one["problem"]) for one in problems})
    elif not quiet:
        notice(f"{opened.name} is as it was written")
    if found:
        # What brings the documents back makes the rest anew, too.
        raise min(found, key=lambda damage: damage.derived).in_store(opened.name)


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
    else uses: an alias with a filter, a data stream, or an index with other aliases is refused. In a local store's
    folder it removes only the files that ccheck made.
    """
    from ..search import open_store
    from ..search.local import LocalStore

    with open_store(settings_from(store=store)) as opened:
        try:
            if opened.info() is None:
                raise NotFound(f"there is no store {opened.name}")
            what = opened.removal()
        except InvalidData as error:
            if not isinstance(opened, LocalStore):
                raise
            notice(str(error))  # a damaged store can be removed, too
            what = f"the files of the store in {opened.path}"
        if not yes and not click.confirm(f"Remove {opened.name}: {what}?", err=True):
            notice("nothing was removed")
            return
        opened.drop()
        if isinstance(opened, LocalStore) and opened.path.exists():
            left = [path for path in sorted(opened.path.rglob("*")) if path.is_symlink() or not path.is_dir()]
            notice(f"{opened.name} is gone. ccheck did not make these, and left them: {', '.join(map(str, left))}")
        elif not quiet:
            notice(f"{opened.name} is gone")
