"""`ccheck index enrich`: add vectors to an index in Elasticsearch that others use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from more_itertools import map_reduce

from ..core.errors import Incomplete, UsageError
from . import opt
from .common import confirmed, counted, inform, notice, print_json, replacements, settings_from
from .progress import progress_bar, runtime

NAMED = 3
"""How many documents are named that failed for one reason."""

if TYPE_CHECKING:
    from ..pipeline.enrich import EnrichReport


@opt.command
def enrich(
    index: str | None = opt.argument("[INDEX]", required=False),
    *,
    recipe: str | None = opt.recipe("Add everything that this recipe searches, such as sparse vectors and terms."),
    replace: tuple[str, ...] = opt.replace,
    in_place: bool = opt.option("Change the documents themselves. Asks first, and can't be undone."),
    one_vector: bool | None = opt.option(
        "One flat vector per document, which ES|QL and Kibana see, or one per passage, nested.  [default: flat if the "
        "model reads each of 1,000 documents whole]",
        names=("--one-vector/--passages",),
    ),
    dry_run: bool = opt.option("Say what would be done, and change nothing."),
    rate: float | None = opt.option("Most documents to write per second.", "N", least=0.001),
    undo: bool = opt.option("Delete the companion index."),
    yes: bool = opt.yes,
    store: str | None = opt.store,
    model: str | None = opt.model,
    as_json: bool = opt.as_json,
) -> None:
    """Add vectors to an index in Elasticsearch that others use.

    \b
    ccheck index enrich https://host:9200/articles
    ccheck index enrich https://host:9200/articles --undo

    Makes a companion: the index ccheck-companion-articles with the same ids and the vectors of the texts. The index
    itself stays as it is. ccheck then searches both together. Run it again to continue after an interruption, and to
    add what was written since: new documents, changed texts and removals. --undo deletes the companion.

    With --in-place there is no companion. The documents get a field ccheck.vector, which any search can use.
    With --one-vector, a document that is longer than the model reads gets the vector of its beginning.
    """
    from ..pipeline.enrich import open_enricher
    from ..pipeline.enrich import undo as run_undo
    from ..pipeline.ingest import recipe_to_ingest

    if index is not None and store is not None:
        raise UsageError(f"name one index: {index} or --store {store}")
    if replace and recipe is None:
        raise UsageError("--replace changes the models of a recipe. Name the recipe with --recipe")
    settings = settings_from(store=_store(index) or store, embedding_model=model)
    if undo:
        if in_place:
            raise UsageError(
                "--undo deletes a companion. What --in-place added stays until the documents are reindexed into "
                "another index"
            )
        agreed = run_undo(settings, lambda what: confirmed(f"Delete {what}?", yes=yes))
        if not agreed or not opt.is_quiet():
            notice("the companion was deleted" if agreed else "nothing was deleted")
        return
    needed = recipe_to_ingest(settings, recipe, replacements(replace)) if recipe is not None else None
    with (
        runtime(settings) as models,
        open_enricher(models, needed, in_place=in_place, one_vector=one_vector, rate=rate) as enricher,
    ):
        said = enricher.consequences()
        notice(*said)
        if enricher.plan:
            inform(f"{enricher.target.name} gets {enricher.plan}")
        if dry_run:
            return
        if said and not confirmed(f"Change the documents of {enricher.target.name}?", yes=yes):
            notice("nothing was changed")
            return
        try:
            with progress_bar("enriching", unit="documents") as update:
                report = enricher.run(update)
        except KeyboardInterrupt:
            notice(f"what was made stays in {enricher.target.name}. Run the same command again to continue")
            raise
        if as_json:
            print_json(asdict(report))
        inform(*_said(report, in_place))
        if report.failed or report.changed:
            raise Incomplete(_left(report))


def _store(index: str | None) -> str | None:
    """A store's name for the argument: a URL, or an index on the server that the settings name."""
    return index if index is None or ":" in index or "/" in index else f"elasticsearch:{index}"


def _said(report: EnrichReport, in_place: bool) -> Iterator[str]:
    """Yields a report of a few lines."""
    yield from report.notices
    counts = {
        "made": report.made,
        "unchanged": report.unchanged,
        "removed": report.removed,
        "failed": report.failed,
        "changed meanwhile": report.changed,
    }
    said = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count) or "nothing to do"
    rate = f" ({report.made / report.seconds:,.0f} documents/s)" if report.made and report.seconds else ""
    yield f"{report.target}: {said} in {report.seconds:.1f} s{rate}"
    if report.without_text:
        yield f"{counted(report.without_text, 'document')} without a text got no vector"
    if report.cut:
        how = "use a companion (without --in-place)" if in_place else "delete the companion (--undo) and use --passages"
        long = counted(report.cut, "document")
        yield f"{long} longer than the model reads: one vector, of the beginning. For all of it, {how}"
    for why, ids in map_reduce(report.failures, report.failures.__getitem__).items():
        others = f" and {len(ids) - NAMED} more" if len(ids) > NAMED else ""
        yield f"{', '.join(ids[:NAMED])}{others}: {why}"
    if (more := report.failed - len(report.failures)) > 0:
        yield f"and {more:,} more"


def _left(report: EnrichReport) -> str:
    what = []
    if report.failed:
        what.append(f"{counted(report.failed, 'document')} could not be enriched, see above")
    if report.changed:
        what.append(f"{counted(report.changed, 'document')} changed while ccheck read them. Run the same command again")
    return ". ".join(what)
