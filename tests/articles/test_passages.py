"""Passages are the best sentences with their left neighbours, filtered by expressions."""

from __future__ import annotations

from pathlib import Path

import pytest
from article_files import JATS

from ccheck.articles import Article
from ccheck.articles.chunks import Cut
from ccheck.articles.passages import Expressions, PassageRanker, load, packaged
from ccheck.articles.xml import parse_article
from ccheck.core.errors import InvalidData, NotFound
from ccheck.core.grounding_stages import PassagesStage


@pytest.fixture(scope="module")
def article() -> Article:
    return parse_article(JATS.encode(), "snails.xml")


def found(article: Article, claim: str, expressions: Expressions | None = None, **keys: object) -> list[str]:
    ranker = PassageRanker([article], PassagesStage(**keys), expressions=expressions)  # type: ignore[arg-type]
    passages = ranker.find(claim, [article.id])
    for one in passages:
        assert article.text[one.start : one.end] == one.text
    return [one.text for one in passages]


def test_a_sentence_comes_with_its_left_neighbour(article: Article) -> None:
    assert found(article, "thicker in cold water", sentences=1) == [
        "Snails of the coast grew by 4 mm a year (Fig. 1A). Their shells were thicker in cold water."
    ]
    assert found(article, "thicker in cold water", sentences=1, neighbours=0) == [
        "Their shells were thicker in cold water."
    ]


def test_no_neighbour_from_another_paragraph_and_no_heading(article: Article) -> None:
    assert found(article, "moss was eaten at night", sentences=1) == [
        "Moss was eaten at night, and slime dried by day."
    ]
    assert all(text != "Weights" for text in found(article, "weights", sentences=10))


def test_only_sentences_with_an_expression_stay_unless_none_has_one(article: Article) -> None:
    claim = "snails thicker in cold water by day"
    assert found(article, claim, Expressions(("were thicker",)), sentences=5) == [
        "Their shells were thicker in cold water."
    ]
    assert found(article, claim, Expressions(("no such words",)), sentences=5) == found(article, claim, sentences=5)


def test_sections_and_order(article: Article) -> None:
    passages = PassageRanker([article], PassagesStage()).find("heavy snails are rare by night", ["snails"])
    assert passages[0].section == "Weights"
    assert [one.score for one in passages] == sorted((one.score for one in passages), reverse=True)


def test_clauses(article: Article) -> None:
    assert found(article, "slime dried", sentences=1, clauses=True, neighbours=0) == ["and slime dried by day."]
    text = article.text
    assert "".join(text[start:end] for start, end in Cut(article).clauses if "Moss was" in text[start:end]) == (
        "Moss was eaten at night"
    )


def test_expressions_are_found_as_whole_words() -> None:
    listed = Expressions(("in the absence of", "we tested"))
    assert listed.found_in("Grown In the absence of light.")
    assert not listed.found_in("Here we testedly grew.")
    assert "compared with" in packaged().expressions and packaged().found_in("compared with controls")


def test_files_of_expressions(tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_text("we tested\nwe saw\n")
    assert load(tmp_path / "own.txt").expressions == ("we tested", "we saw")
    (tmp_path / "empty.txt").write_text("# nothing yet\n")
    with pytest.raises(InvalidData):
        load(tmp_path / "empty.txt")
    with pytest.raises(NotFound):
        load(tmp_path / "none.txt")
