"""`ccheck figures` and `ccheck passages`: what in an article grounds a claim."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..core.errors import CcheckError, InvalidData, NotFound, UsageError, batch_error
from . import opt
from .common import (
    argument_text,
    counted,
    inform,
    print_hanging,
    print_json,
    printable,
    replacements,
    settings_from,
    stdout,
)
from .index import opened_store
from .progress import progress_bar, runtime

if TYPE_CHECKING:
    from ..articles import Article
    from ..articles.figures import RankedElement
    from ..articles.passages import GroundingPassage
    from ..core.recipe import Recipe
    from ..core.settings import Settings

FOUND = 20
"""How many articles of a store are searched for a claim that names none."""
MOST_UNREAD = 10
"""How many files that can't be read are named."""
ARTICLES = ("article", "doc_id", "citekey", "cited_doc_id")


@dataclass(frozen=True, kw_only=True)
class Given:
    """The arguments and options that both commands have."""

    arguments: tuple[str, ...] = opt.argument("[ARTICLE|FOLDER|ZIP] [CLAIM]", required=False)
    k: int | None = opt.option("How many to show.  [default: all]", least=1, heading=opt.EVERYDAY)
    claims: str | None = opt.option(
        "Claims to answer: rows with claim_id, article and claim. Prints one JSON object per claim.", "FILE"
    )
    article: tuple[str, ...] = opt.option(
        "Look only in this article of the folder, archive or store. Repeatable.", "ID"
    )
    store: str | None = opt.store
    as_json: bool = opt.as_json
    recipe: str
    llm: str | None = opt.under(opt.ADVANCED, opt.llm)
    model: str | None = opt.model
    replace: tuple[str, ...] = opt.replace


@dataclass(frozen=True, kw_only=True)
class Figures(Given):
    """What `ccheck figures` is asked."""

    recipe: str = opt.recipe("Recipe with a table [figures].", default="figures")
    images: str | None = opt.option(
        "Folder with the articles' images, for recipes that read them.  [default: the folder of the articles]",
        "FOLDER",
        type=click.Path(file_okay=False),
    )


@dataclass(frozen=True, kw_only=True)
class Passages(Given):
    """What `ccheck passages` is asked."""

    recipe: str = opt.recipe("Recipe with a table [passages].", default="passages")


@opt.command
def figures(asked_for: Figures) -> None:
    """Rank the figures and tables of an article for a claim.

    \b
    ccheck figures paper.xml "the slope of the regression line was the worst"
    ccheck figures papers.zip --claims claims.jsonl --json > figures.jsonl
    ccheck figures --store local:papers --article pone.0058242 "the slope fell"

    ARTICLE is JATS XML (PubMed Central, PLOS) or GROBID's TEI XML. With a folder or a ZIP archive,
    all its articles are searched. With --claims, each row names its article by file name without
    the ending; a claim that can't be answered gets an object with its error, and the exit code is 7.
    """
    from ..pipeline.grounding import open_figures

    recipe, settings = _resolved(asked_for)
    asked = read_asked(asked_for)
    with runtime(settings) as models:
        models = models.asking(recipe.language_model)
        ranker, warnings = open_figures(asked.articles, recipe, models, _folders(asked_for))
        inform(*warnings)
        answer_all(asked_for, asked, "elements", ranker.rank, _show_figure, "there are no figures or tables")


@opt.command
def passages(asked_for: Passages) -> None:
    """Find the passages of an article that show how it arrived at a claim.

    \b
    ccheck passages paper.xml "the slope of the regression line was the worst"
    ccheck passages papers.zip --claims claims.jsonl --json > passages.jsonl

    ARTICLE and --claims are as for ccheck figures.
    """
    from ..pipeline.grounding import open_passages

    recipe, settings = _resolved(asked_for)
    asked = read_asked(asked_for)
    with runtime(settings) as models:
        ranker = open_passages(asked.articles, recipe, models.asking(recipe.language_model))
        answer_all(asked_for, asked, "passages", ranker.find, _show_passage, "no sentence shares a word with the claim")


def _resolved(asked_for: Given) -> tuple[Recipe, Settings]:
    from ..core.adjust import Changes, resolved
    from ..core.recipe import load_recipe

    settings = settings_from(store=asked_for.store, embedding_model=asked_for.model, llm_model=asked_for.llm)
    recipe = load_recipe(asked_for.recipe, replacements(asked_for.replace))
    return resolved(settings, Changes(llm=asked_for.llm), recipe), settings


def _folders(asked_for: Figures) -> list[str]:
    """Where images are looked for, if no folder is named."""
    if asked_for.images is not None:
        return [asked_for.images]
    if asked_for.store is not None or not asked_for.arguments:
        return []
    return image_folders(asked_for.arguments[0])


def image_folders(articles: str) -> list[str]:
    """Where the images of articles are looked for: beside them. An archive's images are not read."""
    path = Path(articles).expanduser()
    return [] if path.suffix.lower() == ".zip" else [str(path if path.is_dir() else path.parent)]


# -- what is asked


@dataclass(frozen=True, slots=True)
class AskedClaim:
    """A row of the file of claims. `article` is None if the row names none."""

    id: str
    text: str
    article: str | None


@dataclass(frozen=True, slots=True)
class Asked:
    """The input of a command: articles, and one claim or those of a file. `unread`: files, with the reasons."""

    articles: list[Article]
    unread: list[str]
    claims: Sequence[AskedClaim]
    found: Mapping[str, list[str]] | None = None
    """For claims that name no article: the articles of the store to search. None: all that were read."""

    def scope(self, claim: AskedClaim) -> list[str]:
        """The articles to search for a claim. Raises NotFound if the one that it names is not here."""
        if claim.article is None:
            return [one.id for one in self.articles] if self.found is None else self.found[claim.text]
        found = next((one.id for one in self.articles if claim.article in (one.id, one.metadata.get("doi"))), None)
        if found is None:
            reason = next((said for said in self.unread if claim.article in said), None)
            raise NotFound(reason or f"there is no article {claim.article!r}")
        return [found]


def read_asked(given: Given) -> Asked:
    """The articles and claims that the arguments name: ARTICLE and CLAIM; with --store only CLAIM.

    Raises UsageError if there are too few or too many, NotFound or InvalidData for what can't be read.
    """
    from_store, file = given.store is not None, given.claims
    parts = ["an article, folder or ZIP archive"] * (not from_store) + ["a claim"] * (file is None)
    if len(given.arguments) != len(parts):
        expected = " and ".join(parts) or "no further arguments"
        raise click.UsageError(f"give {expected} (got {counted(len(given.arguments), 'argument')})")
    first = "" if from_store else given.arguments[0]
    if not from_store and not _is_there(first) and (not first or _is_there(given.arguments[-1])):
        raise UsageError("the article, folder or ZIP archive comes first, and then the claim")
    if file is not None:
        claims = _rows(file)
    elif text := argument_text(given.arguments[-1]).strip():
        claims = [AskedClaim("", text, None)]
    else:
        raise UsageError("the claim is empty")
    if from_store:
        asked = _of_store(given, claims)
    else:
        asked = Asked(*read_articles(first, frozenset(given.article) or None), claims)
    missing = sorted(set(given.article) - {one.id for one in asked.articles})
    if missing:
        raise NotFound(f"there is no article {missing[0]!r}" + (f": {asked.unread[0]}" if asked.unread else ""))
    if not asked.articles:
        raise InvalidData(asked.unread[0] if asked.unread else "there are no articles")
    inform(*(f"skipped {reason}" for reason in asked.unread[:MOST_UNREAD]))
    if len(asked.unread) > MOST_UNREAD:
        inform(f"skipped {len(asked.unread) - MOST_UNREAD:,} more files")
    return asked


def _is_there(name: str) -> bool:
    try:
        return bool(name) and Path(name).expanduser().exists()  # an empty name would be the current folder
    except (OSError, RuntimeError, ValueError):  # a claim: too long for a name, or with a tilde
        return False


def read_articles(path: str, only: frozenset[str] | None = None) -> tuple[list[Article], list[str]]:
    """The articles of a file, folder or archive, and what can't be read of it, with the reasons. See `full_texts`."""
    from ..ingest import Reject, full_texts

    articles: dict[str, Article] = {}
    unread: list[str] = []
    for one in full_texts(path, only):
        if isinstance(one, Reject):
            unread.append(f"{one.file}: {one.reason}")
        elif one.id in articles:
            unread.append(f"two files have the article {one.id!r}. The first was kept")
        else:
            articles[one.id] = one
    return list(articles.values()), unread


def _of_store(given: Given, claims: Sequence[AskedClaim]) -> Asked:
    """Claims that name no article are asked of the `FOUND` that share most words with them, or of --article's."""
    from ..articles.types import FULL_TEXT, articles_of
    from ..core.stages import Bm25
    from ..core.types import Query
    from ..search import Search, answer

    found = {one.text: sorted(given.article) for one in claims if one.article is None}
    with opened_store(given.store) as store:
        if found and not given.article:
            queries, retrievers = [Query(one) for one in found], {"bm25": Bm25(depth=FOUND)}
            search = Search(queries, retrievers, k=FOUND, filters=[FULL_TEXT], details=False)
            for one, ranking in zip(list(found), answer(store, search), strict=True):
                if isinstance(ranking, CcheckError):
                    raise ranking
                found[one] = [hit.document.id for hit in ranking.hits]
        named = [one.article for one in claims if one.article is not None]
        wanted = sorted({*named, *given.article, *(one for some in found.values() for one in some)})
        documents = store.get(wanted)
    if absent := [one for one in given.article if one not in documents]:
        raise NotFound(f"the store {store.name} has no document {absent[0]!r} (--article)")
    articles, unread = articles_of(documents[one] for one in wanted if one in documents)
    if not articles and not unread:
        other = next((one for one in wanted if one in documents), None)
        raise NotFound(
            f"the document {other!r} of {store.name} is not a full text. Ingest the article itself"
            if other is not None
            else f"the store {store.name} has no full text that fits. Add some with ccheck ingest articles/"
        )
    read = {one.id for one in articles}
    return Asked(articles, unread, claims, {one: [id_ for id_ in some if id_ in read] for one, some in found.items()})


def _rows(file: str) -> list[AskedClaim]:
    """The claims of a file, as `pipeline/claims.py` reads them. Raises InvalidData for a row without a text."""
    from ..ingest import Record
    from ..ingest.rows import take_all
    from ..pipeline.claims import COLUMNS, TEXTS, claim_id, first_of, text_of

    found: list[AskedClaim] = []

    def take(record: Record, number: int) -> None:
        article, text = first_of(record.data, ARTICLES)[1], text_of(first_of(record.data, TEXTS)[1])
        if not text:
            raise InvalidData("the claim is missing. A row needs claim_id, article and claim")
        found.append(AskedClaim(claim_id(record.data, number), text, None if article is None else str(article)))

    take_all(file, COLUMNS | {*ARTICLES}, take)
    return found


# -- answers


def answer_all(
    given: Given,
    asked: Asked,
    key: str,
    find: Callable[[str, list[str]], Sequence[Any]],
    show: Callable[[int, Any, str], None],
    nothing: str,
) -> None:
    """Print what `find` gives for the claim, or an object for each claim of the file with it under `key`.

    `show` prints one thing found for people to read, and `nothing` says why there is none. Raises Incomplete if some
    claims could not be answered.
    """

    def as_json(one: Any, several: bool) -> dict[str, Any]:
        return {**one.to_dict(), **({"article": one.article} if several else {})}

    if given.claims is None:
        (claim,) = asked.claims
        found, several = find(claim.text, asked.scope(claim))[: given.k], len(asked.articles) > 1
        if given.as_json:
            print_json([as_json(one, several) for one in found])
        else:
            for number, one in enumerate(found, 1):
                show(number, one, one.article if several else "")
        if not found:
            inform(nothing)
        return
    errors: list[CcheckError] = []
    with progress_bar("reading articles", shown=not sys.stdout.isatty(), unit="claims") as update:
        for done, claim in enumerate(asked.claims, 1):
            row: dict[str, Any] = {"claim_id": claim.id, "article": claim.article, key: []}
            try:
                found = find(claim.text, asked.scope(claim))[: given.k]
                row[key] = [as_json(one, claim.article is None) for one in found]
                print_json(row if found else row | {"reason": nothing})
            except CcheckError as error:
                errors.append(error)
                print_json(row | {"error": str(error)})
            update(done, len(asked.claims))
    if errors:
        said = f"{len(errors):,} of {counted(len(asked.claims), 'claim')} could not be answered"
        raise batch_error(f"{said}. Their objects have the errors", errors, len(asked.claims))


def _show_figure(number: int, one: RankedElement, article: str) -> None:
    from rich.text import Text

    where = f"  {printable(article)}" if article else ""
    stdout().print(Text.assemble(f"{number:>3}  ", (printable(one.element.label), "bold"), f"  {one.score:.3f}{where}"))
    print_hanging(stdout(), "     ", printable(one.element.caption[:300]), 5)
    if one.element.image:
        stdout().print(Text(f"     image: {printable(one.element.image)}"), soft_wrap=True)
    for reason in one.why:
        print_hanging(stdout(), f"     {reason.granularity}: ", printable(reason.text), 7)


def _show_passage(number: int, one: GroundingPassage, article: str) -> None:
    where = " · ".join(filter(None, [article, one.section]))
    stdout().print(f"{number:>3}  {one.score:.3f}  {where}")
    print_hanging(stdout(), "     ", one.text, 5)
