"""`ccheck index`: stores themselves."""

from __future__ import annotations

import click

from . import opt
from .common import confirmed, counted, notice, print_fields, print_json, settings_from, stdout
from .index_documents import export, fields, remove, sample, show
from .index_enrich import enrich
from .index_servers import alias, create, list_indices, migrate
from .opt import options

SECTIONS = {
    "Documents": ("fields", "show", "sample", "export", "remove"),
    "Stores": ("info", "list", "check", "rebuild", "delete"),
}
"""The commands under each heading of the help; all others are for servers."""


class Grouped(click.Group):
    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        named = {name for names in SECTIONS.values() for name in names}
        others = tuple(name for name in self.commands if name not in named)
        for heading, names in {**SECTIONS, "Elasticsearch": others}.items():
            with formatter.section(heading):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(100)) for name in names])


@click.group(cls=Grouped)
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


for command in (fields, show, sample, export, remove, create, migrate, alias, enrich):
    index.add_command(command)


@index.command()
@options(opt.store, opt.json)
def info(*, store: str | None, as_json: bool) -> None:
    """Show what a store contains and how it was made.

    \b
    ccheck index info --store https://host:9200/papers
    """
    from ..search import open_store
    from ..search.missing import no_store

    with open_store(settings_from(store=store)) as opened:
        found = opened.info()
        if found is None:
            raise no_store(opened.name)
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
            "made with": found.made_with,
            "size": f"{found.bytes / 1e6:,.1f} MB" if found.bytes is not None else "",
            "not yet searchable": f"{found.pending:,}: an ingest is running, or must be run again"
            if found.pending
            else "",
            **found.details,
        },
    )


@index.command("list")
@options(click.option("--store", metavar="STORE", help="List the indices of this store on a server instead."), opt.json)
def list_(*, store: str | None, as_json: bool) -> None:
    """List the local stores in the data folder, or a store's indices on a server.

    \b
    ccheck index list
    ccheck index list --store https://host:9200/papers
    """
    from ..search.local.listing import local_stores

    if store is not None:
        list_indices(store, as_json=as_json)
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
        notice(f"no stores in {data_dir} yet. Make one with ccheck ingest FILE")


@index.command()
@options(opt.store, opt.json, opt.quiet)
def check(*, store: str | None, as_json: bool, quiet: bool) -> None:
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
    elif not quiet:
        notice(f"{opened.name} has no damage")
    if found:
        # What brings the documents back makes the rest again, too.
        raise min(found, key=lambda damage: damage.derived).in_store(opened.name)


@index.command()
@options(opt.store, opt.quiet)
def rebuild(*, store: str | None, quiet: bool) -> None:
    """Rebuild the search index of a local store.

    \b
    ccheck index rebuild --store local:papers

    The index is built from the stored documents, which stay unchanged. Remains of deleted documents are removed.
    """
    from ..search import open_local_store

    with open_local_store(settings_from(store=store), "Elasticsearch maintains its own index") as opened:
        opened.rebuild()
        if not quiet:
            notice(f"{opened.name} was rebuilt: {counted(opened.count(), 'document')}")


@index.command()
@click.option("--yes", is_flag=True, help="Delete without asking.")
@options(opt.store, opt.quiet)
def delete(*, store: str | None, yes: bool, quiet: bool) -> None:
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
        elif not quiet:
            notice(f"{opened.name} was deleted")
