"""`ccheck passages`: the passages of an article that show how it arrived at a claim."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import opt
from .common import notice, print_hanging, print_json, stdout
from .grounding import AskedClaim, Given, answer_rows, opened
from .opt import given

if TYPE_CHECKING:
    from ..articles.passages import GroundingPassage
    from ..core.grounding_stages import PassagesStage
    from ..core.recipe import Recipe

_NOTHING = "no sentence shares a word with the claim"


@dataclass(frozen=True, kw_only=True)
class Passages(Given):
    """What `ccheck passages` is asked."""

    recipe: str = given(opt.recipe("Recipe with a table [passages].", default="context24-passages"))
    expressions: str | None = given(
        "--expressions",
        metavar="FILE|none",
        help="Expressions that passages must contain: a file from ccheck train expressions.",
    )


@opt.command(Passages)
def passages(asked_for: Passages) -> None:
    """Find the passages of an article that show how it arrived at a claim.

    \b
    ccheck passages paper.xml "the slope of the regression line was the worst"
    ccheck passages papers.zip --claims claims.jsonl --json > passages.jsonl

    ARTICLE and --claims are as for ccheck figures.
    """
    from ..pipeline.grounding import open_passages, passages_stage

    def stage_of(recipe: Recipe) -> PassagesStage:
        stage, expressions = passages_stage(recipe), asked_for.expressions
        return stage if expressions is None else stage.model_copy(update={"expressions": expressions})

    with opened(asked_for, stage_of) as (asked, stage, models):
        ranker = open_passages(asked.articles, stage, models)
        k, quiet = asked_for.k, asked_for.quiet
        if asked.claim is not None:
            found = ranker.find(asked.claim, ranker.articles)[:k]
            _show(found, len(asked.articles) > 1, asked_for.as_json)
            if not found and not quiet:
                notice(_NOTHING)
            return

        def answer(claim: AskedClaim) -> list[dict[str, Any]]:
            found = ranker.find(claim.text, asked.scope(claim))[:k]
            return [_as_data(one, claim.article is None) for one in found]

        answer_rows(asked, "passages", answer, _NOTHING, quiet)


def _show(found: list[GroundingPassage], several: bool, as_json: bool) -> None:
    if as_json:
        print_json([_as_data(one, several) for one in found])
        return
    console = stdout()
    for number, one in enumerate(found, 1):
        where = " · ".join(filter(None, [one.article if several else "", one.section]))
        console.print(f"{number:>3}  {one.score:.3f}  {where}", markup=False)
        print_hanging(console, "     ", one.text, 5)


def _as_data(one: GroundingPassage, several: bool) -> dict[str, Any]:
    return {**one.to_dict(), **({"article": one.article} if several else {})}
