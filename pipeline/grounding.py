"""What looks inside articles: the models that a recipe's `[figures]` and `[passages]` need, and what runs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from ..articles import Article
from ..articles.embedding import FindImage, ImageEncoder, Models, TextEncoder, image_finder
from ..articles.figures import FigureRanker, RankedElement
from ..articles.passages import PassageRanker, load, packaged
from ..articles.types import articles_of, is_article
from ..core.errors import CcheckError, MissingExtra, NotFound, UsageError
from ..core.grounding_stages import FiguresStage, ImageRun, MergedRun, PassagesStage
from ..core.recipe import Recipe, load_recipe, with_ways_to_get
from ..core.runtime import Runtime
from ..core.types import Result, Vector
from ..encode import dense as embedders
from ..encode.cache import embedding_cache, encode_once
from ..encode.dense import MINILM
from ..llm.model import open_llm

FIGURES, PASSAGES = "figures", "passages"
"""The recipes that are used where the named one has no such table."""


def figures_stage(recipe: Recipe) -> FiguresStage:
    """The recipe's `[figures]`. Raises UsageError if it has none."""
    if recipe.figures is None:
        raise UsageError(f"the recipe {recipe.name} has no table [figures]. Use --recipe {FIGURES}")
    return recipe.figures


def passages_stage(recipe: Recipe) -> PassagesStage:
    """The recipe's `[passages]`. Raises UsageError if it has none."""
    if recipe.passages is None:
        raise UsageError(f"the recipe {recipe.name} has no table [passages]. Use --recipe {PASSAGES}")
    return recipe.passages


def open_figures(
    articles: Sequence[Article], recipe: Recipe, runtime: Runtime, images: Sequence[str | Path] = ()
) -> tuple[FigureRanker, list[str]]:
    """The ranker of the recipe's `[figures]`, and warnings about what it does without. `images` are folders with the
    articles' images.

    Raises as `figures_stage`, what a required model lacks, and NotFound for a folder that does not exist.
    """
    stage = figures_stage(recipe)
    warnings: list[str] = []
    runs = dict(stage.runs)
    embedders: dict[str | None, TextEncoder] = {}
    pictures: dict[str, ImageEncoder] = {}
    find_image = image_finder(images)
    for name, run in stage.runs.items():
        try:
            for one in run.runs.values() if isinstance(run, MergedRun) else [run]:
                if isinstance(one, ImageRun):
                    from ..encode.clip import load_clip

                    _check_images(articles, find_image, images)
                    if one.model not in pictures:
                        clip = load_clip(one.model, runtime)
                        pictures[one.model] = ImageEncoder(clip.encode_images, clip.encode_texts)
                elif one.retriever != "bm25" and one.model not in embedders:
                    embedders[one.model] = _encoder(one.model, runtime)
        except (NotFound, MissingExtra) as error:
            if run.required or len(runs) == 1:
                raise with_ways_to_get(error, recipe) from error
            del runs[name]
            warnings.append(f"without the run {name}: {error}")
    stage = stage.model_copy(update={"runs": runs})
    return FigureRanker(articles, stage, Models(embedders, pictures, partial(open_llm, runtime), find_image)), warnings


def _check_images(articles: Sequence[Article], find_image: FindImage, folders: Sequence[str | Path]) -> None:
    """Raises NotFound if no element of the articles has an image."""
    if not any(find_image(article.id, one) for article in articles for one in article.elements):
        where = ", ".join(map(str, folders)) or "no folder was named"
        raise NotFound(f"no figure or table has an image here ({where}). Name the folder with --images FOLDER")


def open_passages(articles: Sequence[Article], recipe: Recipe, runtime: Runtime) -> PassageRanker:
    """The ranker of the recipe's `[passages]`. Raises as `passages_stage`, and what a model or the file of expressions
    lacks."""
    stage = passages_stage(recipe)
    try:
        embedders = {} if stage.retriever == "bm25" else {stage.model: _encoder(stage.model, runtime)}
    except NotFound as error:
        raise with_ways_to_get(error, recipe) from error
    own = None if stage.expressions in ("none", "packaged") else load(stage.expressions)
    expressions = packaged() if stage.expressions == "packaged" else own
    return PassageRanker(articles, stage, Models(embedders, llm=partial(open_llm, runtime)), expressions)


def _encoder(model: str | None, runtime: Runtime) -> TextEncoder:
    """The model, with the vectors that it made before."""
    settings = runtime.settings
    embedder = embedders.load_embedder(model or settings.embedding_model or MINILM, runtime)

    def documents(texts: Sequence[str]) -> Sequence[Vector]:
        with embedding_cache(embedder.spec, settings.cache_dir, settings.cache_bytes, embedder.half) as cache:
            return encode_once(texts, embedder.encode_documents, cache)

    return TextEncoder(documents, lambda texts: list(embedder.encode_queries(texts)))


# -- ccheck query --deep

SHOWN = 3
"""How many of each a paper shows."""


def ground(result: Result, recipe: Recipe, runtime: Runtime) -> Result:
    """The result with the figures and passages of each paper. A failure is a warning: the rest of the answer stays.

    The recipe's `[figures]` and `[passages]` are used if it has them, else the packaged ones.
    """
    papers = {one.document.id: one.document for one in result.evidence if is_article(one.document)}
    if result.error is not None or not result.evidence:
        return result
    if not papers:
        said = "none of these papers is stored with its full text: ccheck ingest takes them as JATS or TEI XML"
        return replace(result, warnings=(*result.warnings, f"--deep shows nothing: {said}"))
    figures = recipe if recipe.figures is not None else load_recipe(FIGURES)
    passages = recipe if recipe.passages is not None else load_recipe(PASSAGES)
    try:
        articles, unread = articles_of(papers.values())
        ranker, warnings = open_figures(articles, figures, runtime)
        finder = open_passages(articles, passages, runtime)
        grounding = {
            one.id: {
                "figures": [_figure(found) for found in ranker.rank(result.claim.text, [one.id])[:SHOWN]],
                "passages": [found.to_dict() for found in finder.find(result.claim.text, [one.id])[:SHOWN]],
            }
            for one in articles
        }
    except CcheckError as error:
        return replace(result, warnings=(*result.warnings, f"--deep failed: {error}"))
    evidence = tuple(replace(one, grounding=grounding.get(one.document.id)) for one in result.evidence)
    return replace(result, evidence=evidence, warnings=(*result.warnings, *warnings, *unread))


def _figure(found: RankedElement) -> dict[str, Any]:
    element = {name: getattr(found.element, name) for name in ("id", "label", "caption", "image")}
    return {**element, "score": found.score, "why": [asdict(why) for why in found.why]}
