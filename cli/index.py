"""`ccheck index`: stores themselves, and their documents."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from more_itertools import chunked

from ..core.errors import CcheckError, NotFound, ServerError, UsageError
from ..core.files import writing
from ..core.text import json_line
from ..ingest.documents import PAGE_STARTS
from . import opt
from .common import confirmed, counted, inform, notice, print_answer, settings_from, stdout

if TYPE_CHECKING:
    from ..core.types import Document
    from ..search import Filter, Store

SECTIONS = {
    "Documents": ["fields", "show", "export", "remove"],
    "Stores": ["info", "list", "check", "rebuild", "delete"],
    "Elasticsearch": ["create", "migrate", "revert", "install", "enrich"],
}
"""The commands under each heading of the help."""
MODULES = dict.fromkeys((one for some in SECTIONS.values() for one in some), "index")
MODULES |= dict.fromkeys(SECTIONS["Elasticsearch"], "index_servers")
EXAMPLES = 3
SAMPLED = 2_000
"""How many documents are read for examples of values."""
AT_ONCE = 500

only = opt.option("Only documents whose metadata match: 'year>=2010'.", "COND", names=("--filter",))


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
    said = {
        "store": found.name,
        "documents": f"{found.documents:,}",
        "passages": f"{found.passages:,}",
        "made with": found.made_with,
        "size": f"{found.bytes / 1e6:,.1f} MB" if found.bytes is not None else "",
        "not yet searchable": f"{found.pending:,}: an ingest runs, or must be run again" if found.pending else "",
        **found.details,
    }
    print_answer(as_json, facts, said)


@opt.command
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
    found = list(local_stores(data_dir))
    facts = [{"store": one.name, "documents": one.documents, "folder": str(one.folder)} for one in found]
    said = {one.name: one.problem or f"{counted(one.documents or 0, 'document'):<20}{one.folder}" for one in found}
    print_answer(as_json, facts, said)
    if not found and not as_json:
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
    facts = {"store": opened.name, "damaged": bool(problems), "problems": problems}
    print_answer(as_json, facts, {str(one["file"]): str(one["problem"]) for one in problems})
    if not problems and not as_json:
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
    folder of a local store it deletes only the files that ccheck made. The record of checks stays.
    """
    from ..search import open_store
    from ..service.service import record_of
    from ..service.types import Wanted

    settings = settings_from(store=store)
    with open_store(settings) as opened:
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
        record = record_of(opened, settings)
        assert record is not None
        with contextlib.closing(record):
            try:
                kept = bool(record.list(Wanted(limit=1)))
            except CcheckError as error:
                kept = not isinstance(error, ServerError)  # it is there, and damaged
        if kept:
            notice(f"its checks were left, with their claims: {record.name}")


# -- documents


@opt.command
def fields(*, store: str | None = opt.store, as_json: bool = opt.as_json) -> None:
    """List the fields to filter on, with examples of their values.

    \b
    ccheck index fields
    """
    with opened_store(store) as opened:
        kinds = opened.fields()
        seen: dict[str, Counter[str]] = {name: Counter() for name in kinds}
        for document in itertools.islice(opened.scan(), SAMPLED):
            for name, value in (*document.metadata.items(), ("published", document.published)):
                for one in value if isinstance(value, list) else [value]:
                    if one is not None and name in seen:
                        text = str(one).lower() if isinstance(one, bool) else str(one)
                        seen[name][text[:60]] += 1
    examples = {name: [value for value, _ in seen[name].most_common(EXAMPLES)] for name in sorted(kinds)}
    facts = [{"field": name, "kind": kinds[name], "examples": values} for name, values in examples.items()]
    print_answer(as_json, facts, {name: f"{kinds[name]:<10} {', '.join(some)}" for name, some in examples.items()})
    if not kinds and not as_json:
        inform("the documents have no metadata to filter on")


@opt.command
def show(
    ids: tuple[str, ...] = opt.argument("ID..."), *, store: str | None = opt.store, as_json: bool = opt.as_json
) -> None:
    """Show documents as they are stored.

    \b
    ccheck index show 10.1007/s10712-011-9119-1
    """
    with opened_store(store) as opened:
        found = opened.get(list(ids))
        name = opened.name
    for id_ in filter(found.__contains__, ids):
        _print(found[id_], as_json)
    _refuse_missing(ids, found, name)


@opt.command
def export(
    file: str = opt.argument("[FILE]", required=False, default="-"),
    *,
    filters: tuple[str, ...] = only,
    overwrite: bool = opt.option("Replace FILE if it exists."),
    store: str | None = opt.store,
) -> None:
    """Write all documents as JSON Lines, for ccheck ingest.

    \b
    ccheck index export papers.jsonl
    ccheck index export --filter 'year>=2010' | gzip > recent.jsonl.gz

    Without FILE, or with -, they go to standard output.
    """
    done = 0
    if file != "-" and Path(file).is_file() and not overwrite:
        raise UsageError(f"{file} already exists. Choose another file, or use --overwrite to replace it")
    with (
        opened_store(store) as opened,
        contextlib.nullcontext(sys.stdout) if file == "-" else writing(file, "the export") as stream,
    ):
        for document in opened.scan(_conditions(opened, filters)):
            stream.write(json_line(exported(document)))
            done += 1
    inform(f"{counted(done, 'document')} written" + (f" to {file}" if file != "-" else ""))


@opt.command
def remove(
    ids: tuple[str, ...] = opt.argument("[ID]...", required=False),
    *,
    yes: bool = opt.yes,
    filters: tuple[str, ...] = only,
    store: str | None = opt.store,
) -> None:
    """Remove documents by id or by a filter.

    \b
    ccheck index remove W2741809807 W2000000003
    ccheck index remove --filter retracted=true
    """
    if bool(ids) == bool(filters):
        raise UsageError("name what to remove: ids, or a condition (--filter)")
    with opened_store(store) as opened:
        info = opened.info()
        assert info is not None
        # From here on this is one index: what is shown is what goes, even if the name is given to another meanwhile.
        opened.prepare(info.layout)
        if ids:
            found = list(opened.get(list(ids)))
        else:
            found = [document.id for document in opened.scan(_conditions(opened, filters))]
        if not found:
            _refuse_missing(ids, found, opened.name)
            notice(f"nothing to remove from {opened.name}")
            return
        some = ", ".join(found[:3]) + (" …" if len(found) > 3 else "")
        total = counted(opened.count(), "document")
        if not confirmed(f"Remove {len(found):,} of {total} from {opened.name} ({some})?", yes=yes):
            notice("nothing was removed")
            return
        removed = sum(opened.delete(some) for some in chunked(found, AT_ONCE))
        opened.publish()
        inform(f"{counted(removed, 'document')} removed from {opened.name}")
        _refuse_missing(ids, found, opened.name)


def _refuse_missing(ids: Sequence[str], found: Container[str], name: str) -> None:
    if missing := [id_ for id_ in ids if id_ not in found]:
        raise NotFound(f"{name} has no document with the id {', '.join(missing)}. ccheck index export prints all")


def exported(document: Document) -> dict[str, Any]:
    """A document as a line of JSON Lines: what `ccheck ingest` makes the same document of."""
    metadata = dict(document.metadata)
    if document.published is not None and not any(name in metadata for name in ("date", "published", "year")):
        metadata["published"] = document.published
    pages = {PAGE_STARTS: list(document.pages)} if document.pages else {}
    return {"_id": document.id, "title": document.title, "text": document.text, **pages, "metadata": metadata}


@contextlib.contextmanager
def opened_store(store: str | None) -> Iterator[Store]:
    """The store that is named, or the settings'. Raises NotFound if there is none."""
    from ..search import open_store
    from ..search.store import no_store

    with open_store(settings_from(store=store)) as opened:
        if opened.info(figures=False) is None:
            raise no_store(opened.name)
        yield opened


def _conditions(store: Store, texts: Sequence[str]) -> list[Filter]:
    from ..search import parse_filter
    from ..search.filters import refuse_unfit

    filters = [parse_filter(text) for text in texts]
    if filters:
        refuse_unfit(filters, store.fields(), store.name)
    return filters


def _print(document: Document, as_json: bool) -> None:
    fields = {"id": document.id, "title": document.title, "text": document.text, "published": document.published or ""}
    values = {name: "; ".join(map(str, v)) if isinstance(v, list) else str(v) for name, v in document.metadata.items()}
    print_answer(as_json, exported(document) | {"published": document.published}, fields | values)
    if not as_json:
        stdout().print()
