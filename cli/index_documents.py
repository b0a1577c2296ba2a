"""`ccheck index fields | show | export | remove`: the documents of a store."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from more_itertools import chunked

from ..core.errors import NotFound, UsageError
from ..core.files import writing
from ..core.text import json_line
from ..ingest.documents import PAGE_STARTS
from . import opt
from .common import confirmed, counted, inform, notice, print_fields, print_json, settings_from, stdout

if TYPE_CHECKING:
    from ..core.types import Document
    from ..search import Filter, Store

EXAMPLES = 3
SAMPLED = 2_000
"""How many documents are read for examples of values."""
AT_ONCE = 500

only = opt.filters("Only documents whose metadata match: 'year>=2010'.")


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
    if as_json:
        for name, values in examples.items():
            print_json({"field": name, "kind": kinds[name], "examples": values})
    elif kinds:
        print_fields(stdout(), {name: f"{kinds[name]:<10} {', '.join(values)}" for name, values in examples.items()})
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
    for id_ in ids:
        if id_ in found:
            _print(found[id_], as_json)
    missing = [id_ for id_ in ids if id_ not in found]
    if missing:
        raise NotFound(f"{name} has no document with the id {', '.join(missing)}. ccheck index export prints all")


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
    if as_json:
        print_json(exported(document) | {"published": document.published})
        return
    console = stdout()
    fields = {"id": document.id, "title": document.title, "text": document.text, "published": document.published or ""}
    values = {name: "; ".join(map(str, v)) if isinstance(v, list) else str(v) for name, v in document.metadata.items()}
    print_fields(console, fields | values)
    console.print()
