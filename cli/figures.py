"""`ccheck figures`: the figures and tables of an article that ground a claim."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .common import notice, print_hanging, print_json, stdout
from .grounding import Asked, AskedClaim, answer_rows, grounding_options, opened

_NOTHING = "there are no figures or tables"

if TYPE_CHECKING:
    from ..articles.figures import FigureRanker, RankedElement


@click.command()
@grounding_options(
    "context24-figures",
    "figures",
    "elements",
    click.option(
        "--images",
        type=click.Path(file_okay=False),
        metavar="FOLDER",
        help="Folder with the articles' images, for recipes that read them.  [default: the folder of the articles]",
    ),
)
def figures(*, images: str | None, **given: Any) -> None:
    """Rank the figures and tables of an article for a claim.

    \b
    ccheck figures paper.xml "the slope of the regression line was the worst"
    ccheck figures papers.zip --claims claims.jsonl --json > figures.jsonl
    ccheck figures --store local:papers --article pone.0058242 "the slope fell"

    ARTICLE is JATS XML (PubMed Central, PLOS), GROBID's TEI XML, S2ORC JSON or ccheck's own JSON. With a folder or a
    ZIP archive, all its articles are searched. With --claims, each row names its article by file name without
    the ending; a claim that can't be answered gets an object with its error, and the exit code is 7.
    """
    from ..pipeline.grounding import figures_stage, open_figures

    with opened(given, figures_stage) as (asked, stage, models):
        ranker, warnings = open_figures(
            asked.articles, stage, models, _folders(images, given["arguments"], given["store"])
        )
        k, quiet = given["k"], given["quiet"]
        if not quiet:
            notice(*warnings)
        if asked.claim is not None:
            _answer(asked, asked.claim, ranker, k, given["as_json"], quiet)
            return

        def answer(claim: AskedClaim) -> list[dict[str, Any]]:
            return [_of_row(one, claim.article is None) for one in ranker.rank(claim.text, asked.scope(claim))[:k]]

        answer_rows(asked, "elements", answer, _NOTHING, quiet)


def _folders(images: str | None, arguments: tuple[str, ...], store: str | None) -> list[str]:
    """Where images are looked for: beside the articles, if no folder is named. An archive's images are not read."""
    if images is not None:
        return [images]
    if store is not None or not arguments:
        return []
    path = Path(arguments[0]).expanduser()
    return [] if path.suffix.lower() == ".zip" else [str(path if path.is_dir() else path.parent)]


def _answer(asked: Asked, claim: str, ranker: FigureRanker, k: int | None, as_json: bool, quiet: bool) -> None:
    found = ranker.rank(claim, ranker.articles)[:k]
    several = len(asked.articles) > 1
    if as_json:
        print_json([_own(one, several) for one in found])
    else:
        _show(found, several)
    if not found and not quiet:
        notice(_NOTHING)


def _own(one: RankedElement, several: bool) -> dict[str, Any]:
    """An element of the answer to a single claim."""
    data: dict[str, Any] = {"id": one.element.task_id, "rank": one.rank, "score": one.score}
    return {**data, "why": [why.to_dict() for why in one.why], **({"article": one.article} if several else {})}


def _of_row(one: RankedElement, several: bool) -> dict[str, Any]:
    """An element of the answer to a claim of a file."""
    return {
        "id": one.element.id,
        "task_id": one.element.task_id,
        "label": one.element.label,
        "rank": one.rank,
        "score": one.score,
        "why": [why.to_dict() for why in one.why],
        **({"article": one.article} if several else {}),
    }


def _show(found: list[RankedElement], several: bool) -> None:
    from rich.text import Text

    from ..core.text import printable

    console = stdout()
    for one in found:
        where = f"  {printable(one.article)}" if several else ""
        console.print(
            Text.assemble(f"{one.rank:>3}  ", (printable(one.element.label), "bold"), f"  {one.score:.3f}{where}")
        )
        print_hanging(console, "     ", printable(one.element.caption[:300]), 5)
        if one.element.image:
            console.print(Text(f"     image: {printable(one.element.image)}"), soft_wrap=True)
        for why in one.why:
            print_hanging(console, f"     {why.granularity}: ", printable(why.text), 7)
