"""`ccheck query --deep`: the figures and passages that ground what each paper says, where its full text is stored."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..articles.stored import articles_of, is_article
from ..core.errors import CcheckError
from ..core.types import Result
from .grounding import default_stages, figures_stage, open_figures, open_passages, passages_stage

if TYPE_CHECKING:
    from ..articles.figures import RankedElement
    from ..core.recipe import Recipe
    from ..core.runtime import Runtime

FIGURES = PASSAGES = 3
"""How many of each a paper shows."""


def ground(result: Result, recipe: Recipe, runtime: Runtime) -> Result:
    """The result with the figures and passages of each paper. A failure is a warning: the rest of the answer stays.

    The recipe's `[figures]` and `[passages]` are used if it has them, else the packaged ones.
    """
    papers = {one.document.id: one.document for one in result.evidence if is_article(one.document)}
    if result.error is not None or not result.evidence:
        return result
    if not papers:
        said = "none of these papers is stored with its full text: ccheck ingest takes JATS and TEI XML"
        return replace(result, warnings=(*result.warnings, f"--deep shows nothing: {said}"))
    figures, passages = default_stages()
    figures = figures_stage(recipe) if recipe.figures is not None else figures
    passages = passages_stage(recipe) if recipe.passages is not None else passages
    try:
        articles, unread = articles_of(papers.values())
        ranker, warnings = open_figures(articles, figures, runtime)
        warnings = [*warnings, *unread]
        finder = open_passages(articles, passages, runtime)
        grounding = {
            one.id: {
                "figures": [_figure(found) for found in ranker.rank(result.claim.text, [one.id])[:FIGURES]],
                "passages": [found.to_dict() for found in finder.find(result.claim.text, [one.id])[:PASSAGES]],
            }
            for one in articles
        }
    except CcheckError as error:
        return replace(result, warnings=(*result.warnings, f"--deep failed: {error}"))
    evidence = tuple(replace(one, grounding=grounding.get(one.document.id)) for one in result.evidence)
    return replace(result, evidence=evidence, warnings=(*result.warnings, *warnings))


def _figure(found: RankedElement) -> dict[str, Any]:
    element = found.element
    return {
        "id": element.id,
        "label": element.label,
        "caption": element.caption,
        "image": element.image,
        "score": found.score,
        "why": [why.to_dict() for why in found.why],
    }
