"""`ccheck ingest`: papers into a store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from ..core.errors import CcheckError, Incomplete, InvalidData, UsageError
from ..core.files import check_output
from ..core.text import per_second
from ..ingest.sniff import Format
from . import opt
from .common import (
    cost_said,
    counted,
    inform,
    notice,
    print_fields,
    print_json,
    replacements,
    settings_from,
    stdout,
    usage_said,
)
from .progress import ingest_progress, runtime

if TYPE_CHECKING:
    from ..core.settings import Settings
    from ..ingest import Encoders, IngestOptions, Preview, Report
    from ..ingest.sources import Reading
    from ..search import Store


_format = opt.option(
    f"Format of the files: {', '.join(get_args(Format))}.  [default: detected from names and first bytes]",
    "NAME",
    heading="Files",
)


@opt.command
def ingest(
    sources: tuple[str, ...] = opt.argument("FILE|FOLDER|GLOB..."),
    *,
    store: str | None = opt.under(opt.EVERYDAY, opt.store),
    dedupe: Literal["doi"] | None = opt.option("Keep only the first paper with each DOI, across all ingests."),
    rejects: str | None = opt.option("File that lists the rejected records.  [default: next to the input]", "FILE"),
    dry_run: bool = opt.option(
        "Show how the first documents would be stored, and what a language model would be asked. Store nothing."
    ),
    as_json: bool = opt.as_json,
    format_: Format | None = _format,
    encoding: str | None = opt.option(
        "Encoding of text files, such as latin-1.  [default: UTF-8, or detected from the files]", "NAME"
    ),
    id_field: str | None = opt.option("Field with the id, instead of _id.", "NAME"),
    title_field: str | None = opt.option("Field with the title, instead of title.", "NAME"),
    text_field: str | None = opt.option("Field with the text, instead of text.", "NAME"),
    date_field: str | None = opt.option("Field with the date or year of publication.", "NAME"),
    recipe: str | None = opt.recipe(
        "Also compute what this recipe searches: its embeddings, sparse vectors, terms and additional texts.",
        heading=opt.ADVANCED,
    ),
    replace: tuple[str, ...] = opt.replace,
    model: str | None = opt.model,
    no_dense: bool = opt.option("Compute no embeddings. Only BM25 can search the documents."),
) -> None:
    """Read papers into a store.

    \b
    ccheck ingest corpus.jsonl
    ccheck ingest papers/ --store https://host:9200/papers
    ccheck ingest zotero.ris pubmed.nbib scopus.csv --dedupe doi
    ccheck ingest 'dump-*.csv.gz' --id-field doi --text-field abstract --dry-run
    ccheck ingest corpus.jsonl --recipe mine.toml

    Reads JSON, CSV, Excel and Parquet; RIS, BibTeX, PubMed's .nbib and XML; exports of Zotero and Scopus; answers
    and dumps of OpenAlex, Crossref, Europe PMC and Semantic Scholar; JATS and TEI XML; PDF, Word, HTML and text files;
    ZIP archives of these; plain or compressed with gzip or zstd. - is standard input. Fields other than id, title and
    text become metadata that you can filter on. A paper without an abstract is stored by its title. If a run is
    interrupted, start it again and it continues. Records that can't be used are listed in a file (--rejects) with the
    reason, and the exit code is 7.
    """
    from ..ingest import IngestOptions
    from ..ingest import dry_run as preview
    from ..ingest import ingest as run
    from ..ingest.fields import Fields
    from ..ingest.sources import find_sources
    from ..pipeline.ingest import open_encoders, recipe_to_ingest
    from ..search import open_store

    if replace and recipe is None:
        raise UsageError("--replace changes the models of a recipe. Name the recipe with --recipe")
    if model == "none":
        raise UsageError("--model names an embedding model. To compute no embeddings, use --no-dense")
    reading = _reading(format_, encoding)
    found = find_sources(sources, reading)  # what is not there says so before a model is loaded
    if rejects is not None:
        check_output(rejects, "the rejects", [*(source.path for source in found), recipe])
    settings = settings_from(store=store, embedding_model=model)
    needed = recipe_to_ingest(settings, recipe, replacements(replace))
    dense = False if no_dense else True if model is not None else None
    with runtime(settings) as models, open_store(settings) as opened:
        encoders = open_encoders(models, opened.info(), needed, dense)
        titles = needed is None or needed.ingest.titles
        made_options = IngestOptions(
            fields=Fields(id_field, title_field, text_field, date_field, titles),
            reading=reading,
            dedupe_doi=dedupe is not None,
            rejects=Path(rejects) if rejects else None,
            cache_dir=settings.cache_dir,
            cache_bytes=settings.cache_bytes,
        )
        if dry_run:
            _show_preview(preview(sources, made_options, encoders), as_json=as_json)
            _say_plan(sources, opened, encoders, made_options, settings)
            return
        try:
            with ingest_progress() as on_progress:
                report = run(list(sources), opened, encoders, made_options, on_progress)
        except KeyboardInterrupt:
            notice(f"what was stored stays in {opened.name}. Run the same command again to continue")
            raise
        except CcheckError:
            if encoders.additional is not None:
                inform(*usage_said({"additional": encoders.additional.usage}, settings))
            raise
        if as_json:
            rejects = str(report.rejects) if report.rejects else None
            told = {"store": opened.name, "seconds": round(report.seconds, 3), "rejects": rejects}
            print_json(asdict(report) | told)
        inform(*_report(report, opened.name, dedupe is not None, settings), *models.notices())
    if report.exit_code:
        where = (
            f". {report.rejects} lists them with the reasons"
            if report.rejects
            else ". To list them in a file, use --rejects FILE"
        )
        kind = InvalidData if report.rejected == report.read else Incomplete
        raise kind(f"{counted(report.rejected, 'record')} could not be used{where}")


def _reading(format_: Format | None, encoding: str | None) -> Reading:
    """The format and encoding of files, from the flags. Raises UsageError."""
    import codecs

    from ..ingest.sources import Reading

    if encoding is not None:
        try:
            codecs.lookup(encoding).incrementaldecoder("replace").decode(b"")
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            raise UsageError(
                f"--encoding {encoding}: unknown text encoding. Use utf-8, latin-1, cp1252, utf-16 …"
            ) from error
    return Reading(format_, encoding)


def _say_plan(
    sources: Sequence[str], store: Store, encoders: Encoders, options: IngestOptions, settings: Settings
) -> None:
    """Say what would be made."""
    from ..ingest import layout_of, planned_questions

    planned = planned_questions(sources, store, encoders, options) if encoders.additional is not None else None
    inform(*encoders.notices, f"would be made with {layout_of(encoders).describe()}")
    if planned is not None and encoders.additional is not None:
        each = encoders.additional.questions_each
        documents = (planned.llm_calls + planned.cached) // each
        inform(
            f"would ask the language model {counted(planned.llm_calls, 'question')} "
            f"({each} for each of {counted(documents, 'new document')}) of about "
            f"{planned.prompt_tokens:,} + {planned.completion_tokens:,} tokens"
            f"{cost_said(settings, planned.prompt_tokens, planned.completion_tokens)}; "
            f"{counted(planned.cached, 'answer')} already in the cache"
        )
    inform(f"nothing was stored. Without --dry-run, the documents go into {store.name}")


def _report(report: Report, store: str, deduped: bool, settings: Settings) -> Iterator[str]:
    """Yields a report of the ingest, in a few lines."""
    yield from report.notices
    yield from usage_said({"additional": report.usage}, settings)
    if not report.read:
        yield f"{store}: nothing to store: no records in {counted(report.files, 'file')}"
        return
    counts = ((name, getattr(report, name)) for name in ("added", "updated", "unchanged", "repeated", "rejected"))
    said = ", ".join(f"{count:,} {name}" for name, count in counts if count)
    rate = per_second(report.read, report.seconds)
    yield f"{store}: {said} in {report.seconds:.1f} s ({rate.replace('/s', ' records/s')})"
    for name, kind in report.kinds.items():
        without = f", {kind.without_text:,} without an abstract" if kind.without_text else ""
        yield f"{name}: {counted(kind.papers, 'paper')}{without}"
    yield from report.remarks(deduped=deduped)


def _show_preview(preview: Preview, *, as_json: bool) -> None:
    console = stdout()
    for i, document in enumerate(preview.documents):
        passages = preview.passages[i] if preview.passages else None
        units = {name: counts[i] for name, counts in preview.units.items()}
        if as_json:
            print_json(asdict(document) | {"metadata": dict(document.metadata), "passages": passages, "units": units})
            continue
        whole = len(document.text) <= 300
        fields: dict[str, str] = {
            "id": document.id,
            "title": document.title,
            "text": document.text if whole else f"{document.text[:300]}… ({len(document.text):,} characters)",
            "published": document.published or "",
            **{f"metadata.{key}": str(value) for key, value in document.metadata.items()},
            "passages": "" if passages is None else str(passages),
            **{f"units.{name}": str(count) for name, count in units.items()},
        }
        print_fields(console, fields)
        console.print()
    for reject in preview.rejects:
        notice(f"would be rejected: {reject.file}:{reject.line}: {reject.reason}")
