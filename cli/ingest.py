"""`ccheck ingest`: papers into a store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import Incomplete, UsageError
from .common import (
    checker,
    counted,
    device_option,
    json_option,
    model_option,
    notice,
    options,
    print_fields,
    print_json,
    quiet_option,
    settings_from,
    stderr,
    stdout,
    store_option,
)

if TYPE_CHECKING:
    from ..ingest import Preview, Progress, Report
    from ..pipeline import Checker
    from ..search import Chunking


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="FILE|FOLDER|GLOB...")
@options(
    store_option,
    click.option("--id-field", metavar="NAME", help="The field with the id, in place of _id."),
    click.option("--title-field", metavar="NAME", help="The field with the title, in place of title."),
    click.option("--text-field", metavar="NAME", help="The field with the text, in place of text."),
    click.option("--date-field", metavar="NAME", help="The field with the day or year of publication."),
    click.option("--no-dense", is_flag=True, help="Without embeddings: searched by BM25 only."),
    model_option,
    device_option,
    click.option(
        "--passage-tokens",
        type=click.IntRange(16),
        metavar="N",
        help="Cut documents longer than N tokens into passages of N.  [default: the model's window]",
    ),
    click.option(
        "--overlap",
        type=click.IntRange(0),
        metavar="N",
        help="How many tokens a passage repeats of the one before.  [default: an eighth]",
    ),
    click.option("--rejects", metavar="FILE", help="Where what can't be used is listed.  [default: next to the input]"),
    click.option("--strict", is_flag=True, help="Stop at the first record that can't be used."),
    click.option("--force", is_flag=True, help="Read files again that are known to be stored."),
    click.option("--dry-run", is_flag=True, help="Show what the first documents would become, and store nothing."),
    json_option,
    quiet_option,
)
def ingest(
    sources: tuple[str, ...],
    *,
    store: str | None,
    id_field: str | None,
    title_field: str | None,
    text_field: str | None,
    date_field: str | None,
    no_dense: bool,
    model: str | None,
    device: str | None,
    passage_tokens: int | None,
    overlap: int | None,
    rejects: str | None,
    strict: bool,
    force: bool,
    dry_run: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Read papers into a store.

    \b
    ccheck ingest corpus.jsonl
    ccheck ingest papers/ --store https://host:9200/papers
    ccheck ingest 'dump-*.csv.gz' --id-field doi --text-field abstract --dry-run

    From JSON Lines, CSV, TSV and Parquet, also gzipped or as zstd; - is standard input. Fields other than id, title and
    text become metadata to filter on. A run that was cut off goes on when it is started again. What can't be used is
    listed with its line and reason in a file (--rejects), and the exit code is 7.
    """
    from ..ingest import IngestOptions
    from ..ingest import dry_run as preview
    from ..ingest.sources import find_sources

    if rejects == "-":
        raise UsageError("--rejects needs the name of a file")
    find_sources(sources)  # what is not there says so before a model is loaded
    settings = settings_from(store=store, embedding_model=model, device=device)
    with checker(settings, quiet=quiet) as made:
        dense = False if no_dense else True if model is not None else None
        made_options = IngestOptions(
            id_field=id_field,
            title_field=title_field,
            text_field=text_field,
            date_field=date_field,
            rejects=Path(rejects) if rejects else None,
            strict=strict,
            force=force,
            cache_dir=settings.cache_dir,
            cache_bytes=settings.cache_bytes,
            chunking=_chunking(made, dense, passage_tokens, overlap),
        )
        embedder = made.ingest_embedder(dense)  # now, so that the progress is that of the ingest
        if dry_run:
            _show_preview(preview(sources, made_options, embedder), as_json=as_json)
            if not quiet:
                notice(f"nothing was stored; without --dry-run it goes into {made.store.name}")
            return
        try:
            with _progress(quiet) as on_progress:
                report = made.ingest(*sources, options=made_options, dense=dense, on_progress=on_progress)
        except KeyboardInterrupt:
            notice(f"what was stored stays in {made.store.name}; the same command goes on from there")
            raise
        if as_json:
            rejects = str(report.rejects) if report.rejects else None
            told = {"store": made.store.name, "seconds": round(report.seconds, 3), "rejects": rejects}
            print_json(asdict(report) | told)
        if not quiet:
            for message in _report(report, made):
                notice(message)
            if embedder is None and not no_dense:
                notice("BM25 only: pip install 'ccheck[models]' and ingest again to add embeddings")
    if report.exit_code:
        where = f": {report.rejects} says which and why" if report.rejects else ""
        raise Incomplete(f"{counted(report.rejected, 'record')} could not be used{where}")


def _chunking(made: Checker, dense: bool | None, passage_tokens: int | None, overlap: int | None) -> Chunking | None:
    from ..ingest import default_chunking
    from ..search import Chunking

    if passage_tokens is None and overlap is None:
        return None
    embedder = made.ingest_embedder(dense)
    if embedder is None:
        raise UsageError("passages are for embeddings: --passage-tokens and --overlap need the models extra")
    default = default_chunking(embedder.spec)
    size = passage_tokens or default.max_tokens
    if size > default.max_tokens:
        raise UsageError(
            f"{embedder.spec.model} reads {default.max_tokens} tokens at most: --passage-tokens {size} is too many"
        )
    repeated = size // 8 if overlap is None else overlap
    if repeated >= size:
        raise UsageError(f"--overlap {repeated} must be less than the {size} tokens of a passage")
    return Chunking(size, size, repeated)


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[Progress], None] | None]:
    """A bar with rate and time left, on a terminal."""
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    console = stderr()
    if quiet or not console.is_terminal:
        yield None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[documents]:,} documents, {task.fields[rate]:,.0f}/s"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=console, transient=True, redirect_stdout=False) as bar:
        task = bar.add_task("reading", total=None, documents=0, rate=0.0)

        def update(progress: Progress) -> None:
            elapsed = bar.tasks[0].elapsed or 0
            bar.update(
                task,
                description=progress.phase,
                completed=progress.bytes_done,
                total=progress.bytes_total,
                documents=progress.documents,
                rate=progress.documents / elapsed if elapsed else 0.0,
            )

        yield update


def _report(report: Report, made: Checker) -> Iterator[str]:
    """What was done, in a few lines."""
    yield from report.notices
    if report.files and report.files == report.files_unchanged:
        what = "the file is" if report.files == 1 else f"all {report.files} files are"
        yield f"{made.store.name}: {what} stored already, unchanged (--force reads again)"
        return
    if not report.read:
        yield f"{made.store.name}: nothing to store, no records in {counted(report.files, 'file')}"
        return
    counts = {
        "added": report.added,
        "updated": report.updated,
        "unchanged": report.unchanged,
        "repeated": report.repeated,
        "rejected": report.rejected,
    }
    said = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
    rate = report.read / report.seconds if report.seconds else 0
    yield f"{made.store.name}: {said} in {report.seconds:.1f} s ({rate:,.0f} records/s)"
    if report.without_id:
        yield f"{report.without_id:,} without an id got one made from their content (--id-field names another field)"
    if report.dates_unread:
        yield f"{report.dates_unread:,} with a date that could not be read: --before leaves these out"


def _show_preview(preview: Preview, *, as_json: bool) -> None:
    console = stdout()
    for i, document in enumerate(preview.documents):
        passages = preview.passages[i] if preview.passages else None
        if as_json:
            print_json(asdict(document) | {"metadata": dict(document.metadata), "passages": passages})
            continue
        fields: dict[str, str] = {
            "id": document.id,
            "title": document.title,
            "text": document.text
            if len(document.text) <= 300
            else f"{document.text[:300]}… ({len(document.text):,} characters)",
            "published": document.published or "",
            **{f"metadata.{key}": str(value) for key, value in document.metadata.items()},
            "passages": "" if passages is None else str(passages),
        }
        print_fields(console, fields)
        console.print()
    for reject in preview.rejects:
        notice(f"would be rejected: {reject.file}:{reject.line}: {reject.reason}")
