"""`ccheck ingest`: papers into a store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from ..core.errors import CcheckError, Incomplete, InvalidData, UsageError
from ..core.files import check_output
from ..ingest.kinds import Format
from . import opt
from .common import (
    cost_said,
    counted,
    notice,
    print_fields,
    print_json,
    replacements,
    settings_from,
    stdout,
    usage_said,
)
from .opt import options
from .progress import ingest_progress, runtime

if TYPE_CHECKING:
    from ..core.settings import Settings
    from ..ingest import Encoders, IngestOptions, PlannedQuestions, Preview, Report
    from ..ingest.sources import Reading
    from ..search import Store


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="FILE|FOLDER|GLOB...")
@options(
    opt.store,
    click.option("--id-field", metavar="NAME", help="Field with the id, instead of _id."),
    click.option("--title-field", metavar="NAME", help="Field with the title, instead of title."),
    click.option("--text-field", metavar="NAME", help="Field with the text, instead of text."),
    click.option("--date-field", metavar="NAME", help="Field with the date or year of publication."),
    click.option(
        "--format",
        "format_",
        type=click.Choice(get_args(Format)),
        metavar="NAME",
        help=f"Format of the files: {', '.join(get_args(Format))}.  [default: detected from names and first bytes]",
    ),
    click.option(
        "--delimiter",
        metavar="CHAR",
        help="Separator of the cells in CSV files, such as ';' or tab.  [default: detected from the first lines]",
    ),
    click.option(
        "--encoding",
        metavar="NAME",
        help="Encoding of text files, such as latin-1.  [default: UTF-8, or detected from the files]",
    ),
    click.option(
        "--dedupe",
        type=click.Choice(["doi"]),
        help="Keep only the first paper with each DOI, across all ingests.",
    ),
    click.option(
        "--part",
        metavar="I/N",
        help="Store only part I of N, such as 3/16. Run all N at once, on as many machines as you like.",
    ),
    opt.recipe("Also compute what this recipe searches: its embeddings, sparse vectors, terms and additional texts."),
    opt.replace,
    click.option("--no-dense", is_flag=True, help="Compute no embeddings. Only BM25 can search the documents."),
    opt.model,
    opt.device,
    opt.number(
        "--passage-tokens",
        least=16,
        help="Longest passage, in tokens. Longer documents are split.  [default: what the model can read]",
    ),
    opt.number(
        "--overlap", least=0, help="Number of tokens that a passage shares with the one before.  [default: an eighth]"
    ),
    opt.llm,
    opt.max_calls,
    opt.max_cost,
    opt.file("--rejects", help="File that lists the rejected records.  [default: next to the input]"),
    click.option("--strict", is_flag=True, help="Stop at the first record that is rejected."),
    click.option("--force", is_flag=True, help="Read files again even if they are already stored."),
    click.option(
        "--dry-run",
        is_flag=True,
        help="Show how the first documents would be stored, and what a language model would be asked. Store nothing.",
    ),
    opt.json,
    opt.quiet,
)
def ingest(
    sources: tuple[str, ...],
    *,
    store: str | None,
    id_field: str | None,
    title_field: str | None,
    text_field: str | None,
    date_field: str | None,
    format_: Format | None,
    delimiter: str | None,
    encoding: str | None,
    dedupe: str | None,
    part: str | None,
    recipe: str | None,
    replace: tuple[str, ...],
    no_dense: bool,
    model: str | None,
    device: str | None,
    passage_tokens: int | None,
    overlap: int | None,
    llm: str | None,
    max_calls: int | None,
    max_cost: float | None,
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
    ccheck ingest zotero.ris pubmed.nbib scopus.csv --dedupe doi
    ccheck ingest 'dump-*.csv.gz' --id-field doi --text-field abstract --dry-run
    ccheck ingest corpus.jsonl --recipe mine.toml

    Reads JSON, CSV, Excel and Parquet; RIS, BibTeX, EndNote's XML, PubMed's .nbib and XML; exports of Zotero, Scopus
    and Web of Science; answers and dumps of OpenAlex, Crossref, Europe PMC and Semantic Scholar; JATS and TEI XML; PDF,
    Word, HTML and text files; ZIP archives of these; plain or compressed with gzip or zstd. - is standard input. Fields
    other than id, title and text become metadata that you can filter on. A paper without an abstract is stored by its
    title. If a run is interrupted, start it again and it continues. Records that can't be used are listed in a file
    (--rejects) with the reason, and the exit code is 7.
    """
    from ..ingest import IngestOptions, Part
    from ..ingest import ingest as run
    from ..ingest.encoders import chunking_for
    from ..ingest.fields import Fields
    from ..ingest.sources import find_sources
    from ..pipeline.ingest import open_ingest, recipe_to_ingest

    if replace and recipe is None:
        raise UsageError("--replace changes the models of a recipe. Name the recipe with --recipe")
    reading = _reading(format_, delimiter, encoding)
    own_part = Part.named(part) if part is not None else None
    found = find_sources(sources, reading)  # what is not there says so before a model is loaded
    if rejects is not None:
        check_output(rejects, "the rejects", [*(source.path for source in found), recipe])
    settings = settings_from(
        store=store,
        embedding_model=model,
        device=device,
        llm_model=llm,
        llm_max_calls=max_calls,
        llm_max_cost=max_cost,
    )
    needed = recipe_to_ingest(settings, recipe, replacements(replace), llm)
    dense = False if no_dense else True if model is not None else None
    with runtime(settings, quiet) as models, open_ingest(models, needed, dense) as ingesting:
        opened, encoders = ingesting.store, ingesting.encoders
        titles = needed is None or needed.ingest.titles
        made_options = IngestOptions(
            fields=Fields(id_field, title_field, text_field, date_field, titles),
            reading=reading,
            dedupe_doi=dedupe is not None,
            part=own_part,
            rejects=Path(rejects) if rejects else None,
            strict=strict,
            force=force,
            cache_dir=settings.cache_dir,
            cache_bytes=settings.cache_bytes,
            chunking=chunking_for(encoders, passage_tokens, overlap),
        )
        if dry_run:
            _preview(sources, opened, encoders, made_options, settings, as_json=as_json, quiet=quiet)
            return
        try:
            with ingest_progress(quiet) as on_progress:
                report = run(list(sources), opened, encoders, made_options, on_progress)
        except KeyboardInterrupt:
            notice(f"what was stored stays in {opened.name}. Run the same command again to continue")
            raise
        except CcheckError:
            if encoders.additional is not None and not quiet:
                notice(*usage_said({"additional": encoders.additional.usage}))
            raise
        if as_json:
            rejects = str(report.rejects) if report.rejects else None
            told = {"store": opened.name, "seconds": round(report.seconds, 3), "rejects": rejects}
            print_json(asdict(report) | told)
        if not quiet:
            notice(*_report(report, opened.name, dedupe is not None), *models.notices())
    if report.exit_code:
        where = (
            f". {report.rejects} lists them with the reasons"
            if report.rejects
            else ". To list them in a file, use --rejects FILE"
        )
        kind = InvalidData if report.rejected == report.read else Incomplete
        raise kind(f"{counted(report.rejected, 'record')} could not be used{where}")


def _reading(format_: Format | None, delimiter: str | None, encoding: str | None) -> Reading:
    """The format, delimiter and encoding of files, from the flags. Raises UsageError."""
    import codecs

    from ..ingest.sources import Reading

    if delimiter is not None:
        delimiter = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "pipe": "|"}.get(delimiter, delimiter)
        if len(delimiter) != 1 or delimiter in '"\r\n':
            raise UsageError(f"--delimiter {delimiter}: give one character, such as ';', or the word tab")
    if encoding is not None:
        try:
            codecs.lookup(encoding).incrementaldecoder("replace").decode(b"")
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            raise UsageError(
                f"--encoding {encoding}: unknown text encoding. Use utf-8, latin-1, cp1252, utf-16 …"
            ) from error
    return Reading(format_, delimiter, encoding)


def _preview(
    sources: tuple[str, ...],
    store: Store,
    encoders: Encoders,
    options: IngestOptions,
    settings: Settings,
    *,
    as_json: bool,
    quiet: bool,
) -> None:
    """Say what would be made, and of the first documents what."""
    from ..ingest import dry_run, layout_of, planned_questions
    from ..ingest.encoders import with_chunking

    _show_preview(dry_run(sources, options, encoders), as_json=as_json)
    planned = planned_questions(sources, store, encoders, options) if encoders.additional is not None else None
    if quiet:
        return
    notice(*encoders.notices)
    notice(f"would be made with {layout_of(with_chunking(encoders, options.chunking)).describe()}")
    if planned is not None and encoders.additional is not None:
        notice(_planned(planned, encoders.additional.questions_each, settings))
    notice(f"nothing was stored. Without --dry-run, the documents go into {store.name}")


def _planned(planned: PlannedQuestions, each: int, settings: Settings) -> str:
    cost = cost_said(settings, planned.prompt_tokens, planned.completion_tokens)
    return (
        f"would ask the language model {counted(planned.calls, 'question')} ({each} for each of "
        f"{counted(planned.documents, 'new document')}) of about {planned.prompt_tokens:,} + "
        f"{planned.completion_tokens:,} tokens{cost}; {counted(planned.cached, 'answer')} already in the cache"
    )


def _report(report: Report, store: str, deduped: bool) -> Iterator[str]:
    """Yields a report of the ingest, in a few lines."""
    yield from report.notices
    yield from usage_said({"additional": report.usage})
    if report.files and report.files == report.files_unchanged:
        what = "the file is" if report.files == 1 else f"all {report.files} files are"
        yield f"{store}: {what} already stored and unchanged (--force reads again)"
        return
    if not report.read:
        yield f"{store}: nothing to store: no records in {counted(report.files, 'file')}"
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
    yield f"{store}: {said} in {report.seconds:.1f} s ({rate:,.0f} records/s)"
    for name, kind in report.kinds.items():
        without = f", {kind.without_text:,} without an abstract" if kind.without_text else ""
        yield f"{name}: {counted(kind.papers, 'paper')}{without}"
    if report.without_text:
        titles = "its title" if report.without_text == 1 else "their titles"
        yield f"{counted(report.without_text, 'paper')} without an abstract can be found by {titles}"
    if report.retracted:
        yield f"{counted(report.retracted, 'paper')} retracted. --filter 'retracted!=true' leaves them out of a search"
    if report.same_doi:
        was = "was" if report.same_doi == 1 else "were"
        left = "left out" if deduped else "stored beside it. --dedupe doi keeps only the first"
        yield f"{counted(report.same_doi, 'paper')} with the DOI of a paper before {was} {left}"
    if report.without_id:
        yield f"{counted(report.without_id, 'record')} without an id got one from their content (see --id-field)"
    if report.dates_unread:
        records = counted(report.dates_unread, "record")
        yield f"the date of {records} could not be read. Filters on dates exclude them"


def _show_preview(preview: Preview, *, as_json: bool) -> None:
    console = stdout()
    for i, document in enumerate(preview.documents):
        passages = preview.passages[i] if preview.passages else None
        units = {name: counts[i] for name, counts in preview.units.items()}
        if as_json:
            print_json(asdict(document) | {"metadata": dict(document.metadata), "passages": passages, "units": units})
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
            **{f"units.{name}": str(count) for name, count in units.items()},
        }
        print_fields(console, fields)
        console.print()
    for reject in preview.rejects:
        notice(f"would be rejected: {reject.file}:{reject.line}: {reject.reason}")
