"""Articles are read from every format, and strangers' files do no harm."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from article_files import JATS, PMC, TEI

from ccheck.articles import Article
from ccheck.articles.builder import find_citations, resolve
from ccheck.articles.types import Element, Mention
from ccheck.articles.xml import parse_article
from ccheck.core.errors import InvalidData, NotFound
from ccheck.ingest import Reject, full_texts


def read(text: str, name: str = "snails.xml") -> Article:
    return parse_article(text.encode(), name)


def said(article: Article, identifier: str) -> list[str]:
    [element] = [one for one in article.elements if one.id == identifier]
    return [article.text[one.start : one.end] for one in element.mentions]


def test_jats_gives_text_sections_elements_and_mentions() -> None:
    article = read(JATS)
    assert (article.id, article.title) == ("snails", "Moss and snails")
    assert article.metadata == {"doi": "10.1/made.up", "journal": "Made Up Letters", "year": 2011, "authors": ["A Ito"]}
    assert [(one.id, one.kind, one.label, one.image) for one in article.elements] == [
        ("g1", "figure", "Figure 1", "g1.tif"),
        ("g2", "figure", "Fig 2", None),
        ("t1", "table", "Table 1", None),
    ]
    assert [one.task_id for one in article.elements] == ["FIG 1", "FIG 2", "TAB 1"]
    cited = {one.id: said(article, one.id) for one in article.elements}
    assert cited == {"g1": ["Fig. 1A", "Figs. 1B"], "g2": ["2"], "t1": ["Table 1"]}
    assert "grew by 4 mm a year" in article.body  # the entity became a space
    assert "somebody else" not in article.text and "north" not in article.body
    assert article.elements[2].content == "coast grams north 12"
    assert article.section_at(article.text.index("Heavy")) == "Weights"
    assert article.section_at(article.text.index("Moss was")) == "Results"
    for element in article.elements:
        assert article.text[element.start : element.end] == f"{element.label}. {element.caption}"
        assert element.start >= article.captions
    first = article.elements[0]
    assert first.caption == "Growth of shells. (A) Length by year. (B) Width."
    assert article.text[: first.place].endswith("Table 1.")  # after the paragraph that holds it


def test_tei_gives_the_same_article() -> None:
    article = read(TEI, "snails.tei.xml")
    assert (article.id, article.title) == ("snails", "Moss and snails")
    one = article.elements[0]
    assert (one.id, one.label, one.caption, one.task_id) == ("fig_0", "Figure 1", "Growth of shells.", "FIG 1")
    [mention] = one.mentions
    assert "1" in article.text[mention.start : mention.end]
    assert article.section_at(mention.start) == "Results"
    assert [said(article, other.id) for other in article.elements[1:]] == [["Table 1"]]


def test_a_bomb_of_entities_is_not_expanded() -> None:
    levels = "".join(f'<!ENTITY b{n} "{f"&b{n - 1};" * 10}">' for n in range(1, 12))
    bomb = f'<!DOCTYPE article [<!ENTITY b0 "boom">{levels}]><article><body><p>Calm &b11; text.</p></body></article>'
    try:
        text = read(bomb).text
    except InvalidData as error:  # newer versions of libxml2 refuse it
        text = str(error)
    assert "boom" not in text and len(text) < 1000


def test_no_file_of_this_machine_is_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("hidden words")
    entity = f'<!DOCTYPE article [<!ENTITY x SYSTEM "{secret.as_uri()}">]>'
    text = f"{entity}<article><body><p>Open &x; text.</p></body></article>"
    assert read(text).text == "Open text."


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"<article><body><p>unclosed", "not well-formed XML"),
        (b"<html><body>page</body></html>", "unknown kind"),
        (b'{"a": 1}', "not well-formed"),
        (b"<article><body></body></article>", "no text"),
        (b"", "not well-formed"),
        (("<article><body>" + "<sec>" * 5000 + "</sec>" * 5000 + "</body></article>").encode(), "depth"),
    ],
)
def test_what_is_no_article_says_so(data: bytes, reason: str) -> None:
    with pytest.raises(InvalidData, match=reason):
        parse_article(data, "snails.xml")


def test_folders_and_archives_give_their_articles(tmp_path: Path) -> None:
    (tmp_path / "papers" / "deep").mkdir(parents=True)
    (tmp_path / "papers" / "a.xml").write_text(JATS)
    (tmp_path / "papers" / "deep" / "b.xml").write_text(TEI)
    (tmp_path / "papers" / "c.xml").write_text("<article>")
    (tmp_path / "papers" / ".d.xml").write_text(JATS)
    found = list(full_texts(tmp_path / "papers"))
    assert [one.id if isinstance(one, Article) else "unread" for one in found] == ["a", "unread", "b"]
    assert isinstance(found[1], Reject) and "not well-formed" in found[1].reason and found[1].file.endswith("c.xml")
    with zipfile.ZipFile(tmp_path / "papers.zip", "w") as archive:
        archive.writestr("x/a.xml", JATS)
        archive.writestr("x/c.xml", "<article>")
        archive.writestr("x/readme.txt", "no article")
    packed = list(full_texts(tmp_path / "papers.zip"))
    assert [isinstance(one, Article) for one in packed] == [True, False]
    [one] = full_texts(tmp_path / "papers.zip", frozenset(["a"]))
    assert isinstance(one, Article) and one.id == "a"


@pytest.mark.parametrize("name", ["snails.jats", "snails.tei", "snails"])
def test_an_article_is_known_by_another_ending_or_by_how_it_begins(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(JATS)
    [one] = full_texts(tmp_path / name, frozenset(["snails"]))
    assert isinstance(one, Article) and one.id == "snails"


def test_what_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no file"):
        list(full_texts(tmp_path / "none.xml"))
    with pytest.raises(NotFound):
        list(full_texts(tmp_path))
    (tmp_path / "paper.pdf").write_bytes(b"%PDF")
    with pytest.raises(NotFound, match="GROBID"):
        list(full_texts(tmp_path / "paper.pdf"))


def test_other_publishers_jats() -> None:
    """Floats apart from the text, parts of figures, labels in captions, series of their own, ranges of links."""
    article = parse_article(PMC.encode(), "moss.nxml")
    cited = {
        one.id: (one.label, one.task_id, [article.text[m.start : m.end] for m in one.mentions])
        for one in article.elements
    }
    assert cited == {
        "F2": ("FIGURE 2", "FIG 2", ["3", "Figure 2b"]),
        "F3": ("Figure 3", "FIG 3", ["3"]),
        "F1": ("FIG. 1", "FIG 1", ["Figs. 1"]),
        "E1": ("Extended Data Fig. 1", "EXTENDED DATA FIG. 1", ["Extended Data Fig. 1"]),
        "F4": ("Fig. 4", "FIG 4", ["a"]),
        "F4a": ("Fig. 4a", "FIG 4A", ["a"]),
        "F4b": ("Fig. 4b", "FIG 4B", []),
        "T1": ("TABLE I", "TAB I", ["Table I"]),
    }
    assert [one.place for one in article.elements] == [None] * 8
    assert article.elements[1].caption == "Moss by day."


# -- mentions


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see Fig. 2", ["figure 2"]),
        ("FIGURE 3.1 and Tab. IV", ["figure 3.1", "table IV"]),
        ("Figs. 2a\N{EN DASH}c and S4", ["figure 2:ABC", "figure S4"]),
        ("Figures 1, 3 and 5A, B", ["figure 1", "figure 3", "figure 5:AB"]),
        ("Tables 2\N{EN DASH}4", ["table 2", "table 3", "table 4"]),
        ("Figs 2 to 4 show", ["figure 2", "figure 3", "figure 4"]),
        ("Figure 1(A)", ["figure 1:A"]),
        ("Fig. 1 and Table 2", ["figure 1", "table 2"]),
        ("S4 Fig, Table S2", ["table S2"]),
        ("figures of speech; a table for 2; data 3 times", []),
        ("Fig. 2 a mutation; Figure 3 A large effect", ["figure 2", "figure 3"]),
        ("Table 1990", []),
        ("Fig. 1\N{EN DASH}900", ["figure 1", "figure 900"]),
        ("Figure 2A and 2C", ["figure 2:A", "figure 2:C"]),
        ("Figure A1 of the appendix", ["figure A1"]),
        ("Extended Data Fig. 1a and Fig. 2", ["figure ED1:A", "figure 2"]),
        ("Supplementary Figs 1 to 3, Table 3", ["figure S1", "figure S2", "figure S3", "table 3"]),
        ("Supplementary Table S1; Additional file 2", ["table S1"]),
        ("Supporting Figure 2, Additional Table 1", ["figure S2", "table S1"]),
        ("as in S4 Fig. 12 mice were fed", []),
        ("evidence supporting Figure 3", ["figure 3"]),
    ],
)
def test_citations(text: str, expected: list[str]) -> None:
    found = [
        f"{one.kind} {one.number}" + (f":{''.join(one.panels)}" if one.panels else "") for one in find_citations(text)
    ]
    assert found == expected


def element(identifier: str, label: str, parent: str | None = None) -> Element:
    kind = "table" if label.startswith("Tab") else "figure"
    return Element(identifier, kind, label, "", 0, 0, parent=parent)


def texts(text: str, one: Element) -> list[str]:
    return [text[mention.start : mention.end] for mention in one.mentions]


def test_a_part_of_a_figure_has_its_own_mentions_and_the_whole_has_all() -> None:
    text = "Fig. 1A is red, Fig. 1B blue, Fig. 2 is neither, and Fig. 7 is missing."
    whole, part, other = resolve(
        text, [element("w", "Figure 1"), element("a", "Figure 1A", "w"), element("o", "Figure 2")]
    )
    assert texts(text, whole) == ["Fig. 1A", "Fig. 1B"]
    assert texts(text, part) == ["Fig. 1A"]
    assert texts(text, other) == ["Fig. 2"]


def test_the_files_own_links_count_once_and_only_for_known_elements() -> None:
    text = "as in Fig. 1 and the last panel"
    links = [("w", Mention(6, 12)), ("w", Mention(21, 31)), ("gone", Mention(0, 2))]
    [one] = resolve(text, [element("w", "Figure 1")], links)
    assert texts(text, one) == ["Fig. 1", "last panel"]


def test_long_texts_take_time_in_proportion() -> None:
    text = "Fig. 1, " * 20_000 + "Fig." * 20_000 + "1" * 50_000
    assert len(find_citations(text)) == 20_000
