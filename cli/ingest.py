"""`ccheck ingest`: papers into a store."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import CcheckError, Incomplete, InvalidData, UsageError
from ..files import check_output
from .common import (
    counted,
    device_option,
    json_option,
    llm_option,
    max_calls_option,
    max_cost_option,
    model_option,
    notice,
    options,
    print_fields,
    print_json,
    quiet_option,
    replace_option,
    replacements,
    settings_from,
    stdout,
    store_option,
    usage_said,
)
from .progress import notifier

if TYPE_CHECKING:
    from ..ingest import Encoders, IngestOptions, PlannedQuestions, Preview, Progress, Report
    from ..pipeline.resources import Resources
    from ..recipe import Recipe
    from ..search import Store
    from ..settings import Settings


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="FILE|FOLDER|GLOB...")
@options(
    store_option,
    click.option("--id-field", metavar="NAME", help="Field with the id, instead of _id."),
    click.option("--title-field", metavar="NAME", help="Field with the title, instead of title."),
    click.option("--text-field", metavar="NAME", help="Field with the text, instead of text."),
    click.option("--date-field", metavar="NAME", help="Field with the date or year of publication."),
    click.option(
        "--recipe",
        metavar="NAME|FILE",
        help="Also compute what this recipe searches: its embeddings, sparse vectors, terms and additional texts.",
    ),
    replace_option,
    click.option("--no-dense", is_flag=True, help="Compute no embeddings; only BM25 can search the documents."),
    model_option,
    device_option,
    click.option(
        "--passage-tokens",
        type=click.IntRange(16),
        metavar="N",
        help="Longest passage, in tokens; longer documents are split.  [default: what the model can read]",
    ),
    click.option(
        "--overlap",
        type=click.IntRange(0),
        metavar="N",
        help="Number of tokens that a passage shares with the one before.  [default: an eighth]",
    ),
    llm_option,
    max_calls_option,
    max_cost_option,
    click.option(
        "--rejects", metavar="FILE", help="File that lists the rejected records.  [default: next to the input]"
    ),
    click.option("--strict", is_flag=True, help="Stop at the first record that is rejected."),
    click.option("--force", is_flag=True, help="Read files again even if they are already stored."),
    click.option(
        "--dry-run",
        is_flag=True,
        help="Show how the first documents would be stored, and what a language model would be asked. Store nothing.",
    ),
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
    ccheck ingest 'dump-*.csv.gz' --id-field doi --text-field abstract --dry-run
    ccheck ingest corpus.jsonl --recipe mine.toml

    Reads JSON Lines, CSV, TSV and Parquet, plain or compressed with gzip or zstd; - is standard input. Fields other
    than id, title and text become metadata that you can filter on. If a run is interrupted, start it again and it
    continues. Records that can't be used are listed in a file (--rejects) with the reason, and the exit code is 7.
    """
    from ..adjust import adjusted
    from ..ingest import IngestOptions
    from ..ingest import ingest as run
    from ..ingest.encoders import chunking_for
    from ..ingest.sources import find_sources
    from ..pipeline.encoders import open_encoders
    from ..pipeline.needs import needs_of

    if replace and recipe is None:
        raise UsageError("--replace changes the models of a recipe. Name the recipe with --recipe")
    needed = _recipe(recipe, replacements(replace), llm) if recipe is not None else None
    found = find_sources(sources)  # what is not there says so before a model is loaded
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
    if recipe is None:  # the settings' recipe counts where it searches in what a store has not by itself, as in Python
        own = adjusted(settings)
        needed = own if needs_of(own).own else None
    with _opened(settings, quiet) as (opened, loaded):
        # Before the progress, which is that of the ingest.
        dense = False if no_dense else True if model is not None else None
        encoders = open_encoders(loaded, opened.info(), needed, dense)
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
            chunking=chunking_for(encoders, passage_tokens, overlap),
        )
        if dry_run:
            _preview(sources, opened, encoders, made_options, settings, as_json=as_json, quiet=quiet)
            return
        try:
            with _progress(quiet) as on_progress:
                report = run(list(sources), opened, encoders, made_options, on_progress)
        except KeyboardInterrupt:
            notice(f"what was stored stays in {opened.name}. Run the same command again to continue")
            raise
        except CcheckError:
            if encoders.additional is not None and not quiet:
                for message in usage_said({"additional": encoders.additional.usage}):
                    notice(message)
            raise
        if as_json:
            rejects = str(report.rejects) if report.rejects else None
            told = {"store": opened.name, "seconds": round(report.seconds, 3), "rejects": rejects}
            print_json(asdict(report) | told)
        if not quiet:
            for message in [*_report(report, opened.name), *loaded.notices]:
                notice(message)
            if not encoders.dense and not no_dense and needed is None:
                notice("only BM25 can search them. For embeddings, pip install 'ccheck[models]' and ingest again")
    if report.exit_code:
        where = (
            f". {report.rejects} lists them with the reasons"
            if report.rejects
            else ". To list them in a file, use --rejects FILE"
        )
        kind = InvalidData if report.rejected == report.read else Incomplete
        raise kind(f"{counted(report.rejected, 'record')} could not be used{where}")


def _recipe(name: str, replace: Mapping[str, str], llm: str | None) -> Recipe:
    """The recipe; a language model that a flag names takes the place of the one that it has for additional texts."""
    from ..recipe import load_recipe

    recipe = load_recipe(name, replace)
    stage = recipe.ingest.additional
    if llm is None or stage is None or stage.llm in (None, llm):
        return recipe
    own = next((old for old, new in recipe.replace.items() if new == stage.llm), stage.llm)
    return load_recipe(name, {**replace, own: llm})


@contextmanager
def _opened(settings: Settings, quiet: bool) -> Iterator[tuple[Store, Resources]]:
    """The store, and what loads models, which says on the terminal what takes long."""
    from ..pipeline.resources import Resources
    from ..search import open_store

    with ExitStack() as stack:
        store = stack.enter_context(open_store(settings))
        loaded = Resources(settings, notify=notifier(quiet))
        stack.callback(loaded.close)
        yield store, loaded


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
    for message in encoders.notices:
        notice(message)
    notice(f"would be made with {layout_of(with_chunking(encoders, options.chunking)).describe()}")
    if planned is not None and encoders.additional is not None:
        notice(_planned(planned, encoders.additional.questions_each, settings))
    notice(f"nothing was stored. Without --dry-run, the documents go into {store.name}")


def _planned(planned: PlannedQuestions, each: int, settings: Settings) -> str:
    cost = ""
    if settings.llm_prompt_price is not None and settings.llm_completion_price is not None:
        spent = planned.prompt_tokens * settings.llm_prompt_price
        spent += planned.completion_tokens * settings.llm_completion_price
        cost = f", at your prices about {spent / 1e6:.4f}"
    return (
        f"would ask the language model {counted(planned.calls, 'question')} ({each} for each of "
        f"{counted(planned.documents, 'new document')}) of about {planned.prompt_tokens:,} + "
        f"{planned.completion_tokens:,} tokens{cost}; {counted(planned.cached, 'answer')} already in the cache"
    )


@contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[Progress], None]]:
    """A bar with the rate, on a terminal."""
    from .progress import progress_bar

    started = time.monotonic()
    with progress_bar("reading", quiet) as update:

        def show(progress: Progress) -> None:
            rate = progress.documents / max(1e-9, time.monotonic() - started)
            facts = f"{progress.documents:,} documents, {rate:,.0f}/s"
            update(progress.bytes_done, progress.bytes_total, facts=facts, name=progress.phase)

        yield show


def _report(report: Report, store: str) -> Iterator[str]:
    """What was done, in a few lines."""
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
    if report.without_id:
        yield f"{report.without_id:,} records without an id got one from their content (see --id-field)"
    if report.dates_unread:
        yield f"{report.dates_unread:,} records have a date that could not be read. --before leaves them out"


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
