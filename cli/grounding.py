"""Shared by `ccheck figures` and `ccheck passages`: options, where articles and claims come from, and answers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..core.errors import CcheckError, InvalidData, NotFound, UsageError, batch_error
from . import opt
from .common import argument_text, counted, notice, print_json, replacements, resolved_from
from .opt import given
from .progress import progress_bar, runtime

if TYPE_CHECKING:
    from ..articles import Article
    from ..core.recipe import Recipe
    from ..core.runtime import Runtime
    from ..core.settings import Settings

Stage = TypeVar("Stage")

FOUND = 20
"""How many articles of a store are searched for a claim that names none."""
CLAIM_IDS = ("claim_id", "id", "_id")
ARTICLES = ("article", "doc_id", "citekey", "cited_doc_id")
CLAIMS = ("claim", "text", "query")


@dataclass(frozen=True, kw_only=True)
class Given:
    """The arguments and options that both commands have."""

    arguments: tuple[str, ...] = given(click.argument("arguments", nargs=-1, metavar="[ARTICLE|FOLDER|ZIP] [CLAIM]"))
    k: int | None = given(
        "-k", by=opt.number, least=1, help="How many to show.  [default: all]", heading="Everyday options"
    )
    claims: str | None = given(
        "--claims",
        by=opt.file,
        help="Claims to answer: rows with claim_id, article and claim. Prints one JSON object per claim.",
    )
    only: tuple[str, ...] = given(
        "--article",
        "only",
        multiple=True,
        metavar="ID",
        help="Look only in this article of the folder, archive or store. Repeatable.",
    )
    store: str | None = given(opt.store)
    as_json: bool = given(opt.json)
    quiet: bool = given(opt.quiet)
    recipe: str
    llm: str | None = given(opt.llm, heading="Advanced")
    model: str | None = given(opt.model)
    device: str | None = given(opt.device, hidden=True)
    replace: tuple[str, ...] = given(opt.replace, hidden=True)


@dataclass(frozen=True, slots=True)
class AskedClaim:
    """A row of the file of claims. `article` is None if the row names none."""

    id: str
    text: str
    article: str | None


@dataclass(slots=True)
class Asked:
    """The input of a command: articles, and one claim or a file of claims. `unread`: files, with the reasons."""

    articles: list[Article]
    unread: list[str]
    claim: str | None = None
    claims: Sequence[AskedClaim] = ()
    found: Mapping[str, list[str]] | None = None
    """For claims that name no article: the articles of the store to search. None: all that were read."""

    def scope(self, claim: AskedClaim) -> list[str]:
        """The articles to search for a claim. Raises NotFound if the one that it names is not here."""
        if claim.article is None:
            here = [one.id for one in self.articles]
            return here if self.found is None else [one for one in self.found[claim.text] if one in here]
        found = next((one.id for one in self.articles if claim.article in (one.id, one.metadata.get("doi"))), None)
        if found is None:
            reason = next((said for said in self.unread if claim.article in said), None)
            raise NotFound(reason or f"there is no article {claim.article!r}")
        return [found]


@contextmanager
def opened(asked_for: Given, stage_of: Callable[[Recipe], Stage]) -> Iterator[tuple[Asked, Stage, Runtime]]:
    """Yields the command's input, the recipe's stage, and the models, which it closes.

    Raises UsageError for options that don't fit together, NotFound or InvalidData for what can't be read.
    """
    from ..core.adjust import Changes, resolved
    from ..core.recipe import load_recipe

    settings = resolved_from(
        store=asked_for.store, embedding_model=asked_for.model, device=asked_for.device, llm_model=asked_for.llm
    ).settings
    recipe = load_recipe(asked_for.recipe, replacements(asked_for.replace))
    recipe = resolved(settings, Changes(llm=asked_for.llm), recipe)
    stage = stage_of(recipe)
    asked = read_asked(asked_for.arguments, asked_for.claims, asked_for.only, settings, asked_for.store is not None)
    if not asked_for.quiet:
        _say_unread(asked.unread)
    with runtime(settings, asked_for.quiet) as models:
        yield asked, stage, models


def read_asked(
    arguments: Sequence[str], claims: str | None, only: Sequence[str], settings: Settings, from_store: bool
) -> Asked:
    """The articles and claims that the arguments name: ARTICLE and CLAIM; with --store only CLAIM.

    Raises UsageError if there are too few or too many, NotFound or InvalidData for what can't be read.
    """
    expected = (not from_store) + (claims is None)
    if len(arguments) != expected:
        parts = ["an article, folder or ZIP archive"] * (not from_store) + ["a claim"] * (claims is None)
        raise click.UsageError(
            f"give {' and '.join(parts) or 'no further arguments'} (got {counted(len(arguments), 'argument')})"
        )
    rows = list(_rows(claims)) if claims is not None else []
    text = argument_text(arguments[-1]).strip() if claims is None else None
    if text == "":
        raise UsageError("the claim is empty")
    wanted = frozenset(only) or None
    if from_store:
        articles, unread, found = _of_store(settings, wanted, rows, text)
    else:
        (articles, unread), found = _of_files(arguments[0], wanted), None
    missing = sorted((wanted or frozenset()) - {one.id for one in articles})
    if missing:
        raise NotFound(f"there is no article {missing[0]!r}" + (f": {unread[0]}" if unread else ""))
    if not articles:
        raise InvalidData(unread[0] if unread else "there are no articles")
    return Asked(articles, unread, text, rows, found)


def _of_files(source: str, only: frozenset[str] | None) -> tuple[list[Article], list[str]]:
    from ..ingest import Reject, full_texts

    articles: dict[str, Article] = {}
    unread: list[str] = []
    for one in full_texts(source, only):
        if isinstance(one, Reject):
            unread.append(f"{one.file}: {one.reason}")
        elif one.id in articles:
            unread.append(f"two files have the article {one.id!r}. The first was kept")
        else:
            articles[one.id] = one
    return list(articles.values()), unread


def _of_store(
    settings: Settings, only: frozenset[str] | None, rows: Sequence[AskedClaim], text: str | None
) -> tuple[list[Article], list[str], dict[str, list[str]]]:
    """The articles of a store that are asked, and why others can't be used.

    Then for each claim that names none those that it is asked of: the `FOUND` that share most words with it, of all or
    of `only`.
    """
    from ..articles.stored import FULL_TEXT, articles_of
    from ..core.stages import Bm25
    from ..core.types import Query
    from ..search import Search, answer, open_store
    from ..search.missing import no_store

    open_claims = [text] if text is not None else [row.text for row in rows if row.article is None]
    named = {row.article for row in rows if row.article is not None}
    with open_store(settings) as store:
        if store.info() is None:
            raise no_store(store.name)
        found: dict[str, list[str]] = {}
        if only is None and open_claims:
            queries, retrievers = [Query(one) for one in open_claims], {"bm25": Bm25(depth=FOUND)}
            search = Search(queries, retrievers, k=FOUND, filters=[FULL_TEXT], details=False)
            for one, ranking in zip(open_claims, answer(store, search), strict=True):
                if isinstance(ranking, CcheckError):
                    raise ranking
                found[one] = [hit.document.id for hit in ranking.hits]
        else:
            found = {one: sorted(only or ()) for one in open_claims}
        wanted = sorted({*named, *(only or ()), *(one for some in found.values() for one in some)})
        documents = store.get(wanted)
        articles, unread = articles_of(documents[one] for one in wanted if one in documents)
        if not articles and not unread:
            other = next((one for one in wanted if one in documents), None)
            raise NotFound(
                f"the document {other!r} of {store.name} is not a full text. Ingest the article itself"
                if other is not None
                else f"the store {store.name} has no full text that fits. Add some with ccheck ingest articles/"
            )
        read = {one.id for one in articles}
        return articles, unread, {one: [id_ for id_ in some if id_ in read] for one, some in found.items()}


def _rows(file: str) -> Iterator[AskedClaim]:
    """The claims of a JSON Lines, JSON or CSV file. Raises InvalidData for a row without a claim."""
    from ..ingest.readers import read
    from ..ingest.records import Reject

    for number, record in enumerate(read([file]), 1):
        if isinstance(record, Reject):
            raise InvalidData(f"{record.file}, line {record.line}: {record.reason}")
        data = record.data
        text = next((data[name] for name in CLAIMS if isinstance(data.get(name), str) and data[name].strip()), None)
        if text is None:
            raise InvalidData(
                f"{record.file}, line {record.line}: the claim is missing. A row needs claim_id, article and claim"
            )
        identifier = next((data[name] for name in CLAIM_IDS if data.get(name) is not None), number)
        article = next((data[name] for name in ARTICLES if data.get(name)), None)
        yield AskedClaim(str(identifier), text.strip(), None if article is None else str(article))


def _say_unread(reasons: Sequence[str]) -> None:
    for reason in reasons[:10]:
        notice(f"skipped {reason}")
    if len(reasons) > 10:
        notice(f"skipped {len(reasons) - 10:,} more files")


def answer_rows(
    asked: Asked, key: str, answer: Callable[[AskedClaim], list[dict[str, Any]]], nothing: str, quiet: bool
) -> None:
    """Print an object for each claim of the file, with what `answer` gives under `key`, else the reason.

    Raises Incomplete if some could not be answered.
    """
    errors: list[CcheckError] = []
    with progress_bar("reading articles", quiet or sys.stdout.isatty(), unit="claims") as update:
        for done, claim in enumerate(asked.claims, 1):
            row: dict[str, Any] = {"claim_id": claim.id, "article": claim.article}
            try:
                found = answer(claim)
                print_json({**row, key: found} if found else {**row, key: found, "reason": nothing})
            except CcheckError as error:
                errors.append(error)
                print_json({**row, key: [], "error": str(error)})
            update(done, len(asked.claims))
    if not asked.claims and not quiet:
        notice("the file has no claims")
    if errors:
        said = f"{len(errors):,} of {counted(len(asked.claims), 'claim')} could not be answered"
        raise batch_error(f"{said}. Their objects have the errors", errors, len(asked.claims))
