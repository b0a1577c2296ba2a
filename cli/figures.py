"""`ccheck figures`: the figures and tables of an article that ground a claim."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from . import opt
from .common import notice, print_hanging, print_json, stdout
from .grounding import Asked, AskedClaim, Given, answer_rows, opened
from .opt import given

_NOTHING = "there are no figures or tables"

if TYPE_CHECKING:
    from ..articles.figures import FigureRanker, RankedElement


@dataclass(frozen=True, kw_only=True)
class Figures(Given):
    """What `ccheck figures` is asked."""

    recipe: str = given(opt.recipe("Recipe with a table [figures].", default="context24-figures"))
    images: str | None = given(
        "--images",
        type=click.Path(file_okay=False),
        metavar="FOLDER",
        help="Folder with the articles' images, for recipes that read them.  [default: the folder of the articles]",
    )


@opt.command(Figures)
def figures(asked_for: Figures) -> None:
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

    with opened(asked_for, figures_stage) as (asked, stage, models):
        ranker, warnings = open_figures(asked.articles, stage, models, _folders(asked_for))
        k, quiet = asked_for.k, asked_for.quiet
        if not quiet:
            notice(*warnings)
        if asked.claim is not None:
            _answer(asked, asked.claim, ranker, k, asked_for.as_json, quiet)
            return

        def answer(claim: AskedClaim) -> list[dict[str, Any]]:
            return [_of_row(one, claim.article is None) for one in ranker.rank(claim.text, asked.scope(claim))[:k]]

        answer_rows(asked, "elements", answer, _NOTHING, quiet)


def _folders(asked_for: Figures) -> list[str]:
    """Where images are looked for: beside the articles, if no folder is named. An archive's images are not read."""
    if asked_for.images is not None:
        return [asked_for.images]
    if asked_for.store is not None or not asked_for.arguments:
        return []
    path = Path(asked_for.arguments[0]).expanduser()
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
