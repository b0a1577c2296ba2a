"""Articles are read from every format and come back from every store; strangers' files do no harm."""

import json
import zipfile
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from article_files import JATS, PMC, TEI
from cli_runs import ccheck, jsonl, works
from question_llm import kind_of
from scripted_llm import ScriptedLlm, say, scripted, user_text
from searching import fill

from ccheck.articles import Article
from ccheck.articles.builder import find_citations, resolve
from ccheck.articles.types import FULL_TEXT, Element, Mention, article_of, is_article, record_of
from ccheck.articles.xml import parse_article
from ccheck.core.errors import InvalidData, NotFound
from ccheck.core.layout import Layout
from ccheck.core.types import Document, Entry
from ccheck.ingest import Reject, full_texts
from ccheck.ingest.documents import make_document


def read(text: str, name: str = "snails.xml") -> Article:
    return parse_article(text.encode(), name)


def texts(text: str, one: Element) -> list[str]:
    return [text[mention.start : mention.end] for mention in one.mentions]


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
    cited = {one.id: texts(article.text, one) for one in article.elements}
    assert cited == {"g1": ["Fig. 1A", "Figs. 1B"], "g2": ["2"], "t1": ["Table 1"]}
    assert "grew by 4 mm a year" in article.body  # the entity became a space
    assert "somebody else" not in article.text and "north" not in article.body
    assert article.elements[2].content == "coast grams north 12"
    assert article.section_at(article.text.index("Heavy")) == "Weights"
    assert article.section_at(article.text.index("Moss was")) == "Results"
    for element in article.elements:
        assert article.text[element.start : element.end] == f"{element.label}. {element.caption}"
        assert element.start >= article.captions
    (first, *_) = article.elements
    assert first.caption == "Growth of shells. (A) Length by year. (B) Width."
    assert article.text[: first.place].endswith("Table 1.")  # after the paragraph that holds it


def test_tei_gives_the_same_article_and_other_publishers_jats_is_read() -> None:
    article = read(TEI, "snails.tei.xml")
    assert (article.id, article.title) == ("snails", "Moss and snails")
    one = article.elements[0]
    assert (one.id, one.label, one.caption, one.task_id) == ("fig_0", "Figure 1", "Growth of shells.", "FIG 1")
    [mention] = one.mentions
    assert "1" in article.text[mention.start : mention.end]
    assert article.section_at(mention.start) == "Results"
    assert [texts(article.text, other) for other in article.elements[1:]] == [["Table 1"]]
    # Floats apart from the text, parts of figures, labels in captions, series of their own, ranges of links.
    article = read(PMC, "moss.nxml")
    cited = {one.id: (one.label, one.task_id, texts(article.text, one)) for one in article.elements}
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


def test_no_bomb_of_entities_is_expanded_and_no_file_of_this_machine_read(tmp_path: Path) -> None:
    levels = "".join(f'<!ENTITY b{n} "{f"&b{n - 1};" * 10}">' for n in range(1, 12))
    bomb = f'<!DOCTYPE article [<!ENTITY b0 "boom">{levels}]><article><body><p>Calm &b11; text.</p></body></article>'
    try:
        text = read(bomb).text
    except InvalidData as error:  # newer versions of libxml2 refuse it
        text = str(error)
    assert "boom" not in text and len(text) < 1000
    (secret := tmp_path / "secret.txt").write_text("hidden words")
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
    (tmp_path / "paper.pdf").write_bytes(b"%PDF")
    for name, said in (("none.xml", "there is no file"), (".", None), ("paper.pdf", "GROBID")):
        with pytest.raises(NotFound, match=said):
            list(full_texts(tmp_path / name))


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
    found = [(f"{one.kind} {one.number}", "".join(one.panels)) for one in find_citations(text)]
    assert [f"{number}:{panels}".removesuffix(":") for number, panels in found] == expected


def element(identifier: str, label: str, parent: str | None = None) -> Element:
    kind = "table" if label.startswith("Tab") else "figure"
    return Element(identifier, kind, label, "", 0, 0, parent=parent)


def test_parts_have_their_own_mentions_and_the_files_links_count_once() -> None:
    text = "Fig. 1A is red, Fig. 1B blue, Fig. 2 is neither, and Fig. 7 is missing."
    elements = element("w", "Figure 1"), element("a", "Figure 1A", "w"), element("o", "Figure 2")
    whole, part, other = resolve(text, elements)
    assert texts(text, whole) == ["Fig. 1A", "Fig. 1B"]
    assert texts(text, part) == ["Fig. 1A"]
    assert texts(text, other) == ["Fig. 2"]
    text = "as in Fig. 1 and the last panel"
    links = [("w", Mention(6, 12)), ("w", Mention(21, 31)), ("gone", Mention(0, 2))]
    [one] = resolve(text, [element("w", "Figure 1")], links)
    assert texts(text, one) == ["Fig. 1", "last panel"]


def test_long_texts_take_time_in_proportion() -> None:
    text = "Fig. 1, " * 20_000 + "Fig." * 20_000 + "1" * 50_000
    assert len(find_citations(text)) == 20_000


# -- articles come back from every store as they went in, and rank as from files. Queries show what grounds them


OTHER = JATS.replace("snails", "limpets").replace("Snails", "Limpets")
EATEN = "The moss was eaten at night."


def test_nothing_is_lost_in_a_store(make_store):
    article = parse_article(JATS.encode(), "snails.xml")
    document = make_document(json.loads(json.dumps(record_of(article)))).document
    store = make_store()
    fill(store, Layout(), [Entry(document, "1"), Entry(Document("plain", "", "An abstract."), "2")])
    stored = store.get(["snails", "plain"])
    assert article_of(stored["snails"]) == article
    assert is_article(stored["snails"]) and not is_article(stored["plain"])
    assert store.count([FULL_TEXT]) == 1
    with pytest.raises(InvalidData, match="is not a full text"):
        article_of(stored["plain"])


@pytest.fixture(scope="module")
def papers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("papers")
    (folder / "snails.xml").write_text(JATS)
    (folder / "limpets.xml").write_text(OTHER)
    (folder / "broken.xml").write_text("<article>")
    articles = enumerate(("snails", "gone", "broken"), 1)
    rows = [{"claim_id": str(n), "article": article, "claim": EATEN} for n, article in articles]
    jsonl(folder / "claims.jsonl", *rows)
    return folder


def test_figures_of_a_file_of_claims_and_passages_of_one(papers):
    ran = ccheck("figures", papers, "--claims", papers / "claims.jsonl", "--json")
    first, second, third = ran.objects
    assert ran.code == 7 and "2 of 3 claims could not be answered" in ran.err
    assert (first["claim_id"], first["article"]) == ("1", "snails")
    assert first["elements"][0]["label"] == "Fig 2"
    assert set(first["elements"][0]) == {"id", "task_id", "label", "rank", "score", "why"}
    why = first["elements"][0]["why"][0]
    text = parse_article(JATS.encode(), "snails.xml").text
    assert set(why) == {"text", "start", "end", "granularity"} and text[why["start"] : why["end"]] == why["text"]
    assert second["elements"] == [] and second["error"] == "there is no article 'gone'"
    assert "broken.xml: not well-formed XML" in third["error"]
    [found] = ccheck("figures", papers / "snails.xml", EATEN, "--json", "-k", "1").objects
    assert [(one["task_id"], one["rank"]) for one in found] == [("FIG 2", 1)]
    assert set(found[0]) == {"id", "task_id", "label", "rank", "score", "why"}
    [passages] = ccheck("passages", papers / "snails.xml", EATEN, "--json").objects
    assert set(passages[0]) == {"text", "start", "end", "section", "score"} and passages[0]["section"] == "Results"
    shown = ccheck("figures", papers / "snails.xml", EATEN, "-k", "1")
    assert "Fig 2" in shown.out and "Moss left after each night." in shown.out
    [several] = ccheck("figures", papers, EATEN, "--json", "-q").objects
    assert {one["article"] for one in several} == {"snails", "limpets"}


def test_wrong_use_says_so(papers):
    assert ccheck("figures", "only-one").code == 2
    assert ccheck("figures", papers / "none.xml", "x").code == 4
    assert ccheck("figures", papers / "broken.xml", "x").code == 5
    for first in ("The moss was eaten", ""):
        ran = ccheck("passages", first, papers / "snails.xml")
        assert ran.code == 2 and "comes first" in ran.err
    assert "no table [figures]" in ccheck("figures", papers / "snails.xml", "x", "--recipe", "bm25").err
    assert "'gone'" in ccheck("figures", papers, "x", "--article", "gone").err


@pytest.fixture(scope="module")
def stored(papers: Path) -> Path:
    """The full texts as they are, one of which can't be read, and a paper without one."""
    files = [papers / f"{name}.xml" for name in ("snails", "limpets", "broken")]
    plain = jsonl(papers / "plain.jsonl", {"_id": "plain", "text": "Moss was eaten at night."})
    given = ("--store", papers / "store", "--rejects", papers / "mine.rejects.jsonl", "--no-dense", "-q")
    assert ccheck("ingest", *files, plain, *given).code == 7
    assert "not well-formed XML" in (papers / "mine.rejects.jsonl").read_text()
    return papers / "store"


def test_a_store_answers_as_the_files_do(papers, stored):
    [of_files] = ccheck("figures", papers / "snails.xml", EATEN, "--json").objects
    [of_store] = ccheck("figures", "--store", stored, "--article", "snails", EATEN, "--json").objects
    assert of_store == of_files
    [of_all] = ccheck("figures", "--store", stored, EATEN, "--json").objects
    assert {one["article"] for one in of_all} == {"snails", "limpets"}
    assert "not a full text" in ccheck("figures", "--store", stored, "--article", "plain", EATEN).err
    assert "no document 'nope'" in ccheck("figures", "--store", stored, "--article", "nope", EATEN).err
    assert ccheck("figures", "--store", papers / "none", EATEN).code == 4


def test_a_query_goes_deep_or_says_why_it_can_not(stored, tmp_path):
    asked = ("query", "Moss was eaten at night.", "--store", stored, "--recipe", "bm25", "--verdict", "none", "--deep")
    ran = ccheck(*asked, "--json", "--report", tmp_path / "report.html")
    [result] = ran.objects
    by_id = {one["doc_id"]: one for one in result["evidence"]}
    assert "grounding" not in by_id["plain"]
    figure, passage = (by_id["snails"]["grounding"][kind][0] for kind in ("figures", "passages"))
    assert (figure["label"], figure["caption"]) == ("Fig 2", "Moss left after each night.")
    assert passage["section"] == "Results"
    assert "Moss left after each night." in (tmp_path / "report.html").read_text()
    assert "Fig 2  Moss left after each night." in ccheck(*asked).out
    plain = jsonl(tmp_path / "c.jsonl", {"_id": "plain", "text": "Moss was eaten at night."})
    assert ccheck("ingest", plain, "--store", tmp_path / "s", "--no-dense", "-q").code == 0
    given = ("--store", tmp_path / "s", "--recipe", "bm25", "--verdict", "none")
    ran = ccheck("query", "moss", *given, "--deep", "--json")
    assert "none of these papers is stored with its full text" in ran.objects[0]["warnings"][0]


def test_recipes_are_measured_on_articles(papers):
    """One command for a row of the paper's tables; a claim of an article that is not there is named and left out."""
    true = {"element_ids": ["g2"], "passages": ["Moss was eaten at night, and slime dried by day."]}
    gold = jsonl(papers / "gold.jsonl", {"claim_id": "1", "article": "snails", "claim": EATEN} | true)

    def measured(recipe: str, gold: Path, *more: object, code: int = 0) -> dict[str, Any]:
        ran = ccheck("evaluate", recipe, "--articles", papers, "--claims", gold, "--json", *more)
        assert ran.code == code, ran.err
        (found,) = ran.objects
        assert found["claims"] == 1 and found["cost"] is None and found["seconds_per_claim"]["total"] > 0
        return found

    assert measured("figures", gold)["metrics"] == {"nDCG@5": 1, "nDCG@10": 1, "hit@1": 1}
    task = '[{"id": "1", "citekey": "snails", "claim": "moss eaten at night", "findings": ["FIG 2"]}%s]'
    (papers / "task.json").write_text(task % "")
    run = measured("context24-figures:bm25-100", papers / "task.json")
    assert run["metrics"]["nDCG@10"] > 0 and run["published"][0]["row"] == "Plain BM25 100 word chunks"
    assert measured("figures", papers / "task.json")["metrics"]["hit@1"] == 1
    other = ', {"id": "2", "citekey": "slugs", "claim": "eaten", "findings": ["FIG 1"]}'
    (papers / "task.json").write_text(task % other)
    run = measured("figures", papers / "task.json", code=7)
    assert run["errors"] == [{"claim": "2", "error": "there is no article 'slugs'"}]
    assert 0 < measured("context24-passages:simple", gold)["metrics"]["rouge1"] < 1
    told = ccheck("evaluate", "context24-passages", "--articles", papers, "--claims", gold).out
    assert "published: table 5, rule-based" in told and "0.3485" in told
    assert ccheck("evaluate", "bm25", "--articles", papers, "--claims", gold).code == 2
    ran = ccheck("evaluate", "figures", "passages", "--articles", papers, "--claims", papers / "task.json")
    assert (ran.code, ran.out) == (5, "") and "the recipe passages can't be measured: no claim has passages" in ran.err


# -- language models that order figures and select passages


FIGURES = """
[retrievers.bm25]
[verdict]
method = "none"
[figures.runs.asked]
kind = "chunk-guided"
granularity = "sentence"
order = "llm"
"""
CLAIM = "weights of heavy snails"


@pytest.fixture
def paper(tmp_path: Path) -> Path:
    (tmp_path / "snails.xml").write_text(JATS)
    (tmp_path / "ask.toml").write_text(FIGURES)
    return tmp_path / "snails.xml"


def model(monkeypatch: pytest.MonkeyPatch, *replies: Any) -> AbstractContextManager[ScriptedLlm]:
    return scripted([say(one) for one in replies], user=monkeypatch)


def test_a_model_orders_the_elements_from_the_best_sentences(paper, monkeypatch):
    with model(monkeypatch, {"order": [2, 3]}) as llm:
        ran = works("figures", paper, CLAIM, "--recipe", paper.with_name("ask.toml"), "--llm", "m", "--json")
    assert [one["task_id"] for one in json.loads(ran.out)] == ["FIG 2", "TAB 1", "FIG 1"]
    (request,) = llm.requests
    assert kind_of(request) == "ElementOrder"
    asked = user_text(request)
    assert json.dumps(CLAIM) in asked and '{"number": 3, "label": "TAB 1"}' in asked
    assert "Weights are listed in Table 1." in asked and "thicker in cold water" not in asked


@pytest.mark.parametrize("way", ["bm25-claude", "claude-article"])
def test_a_model_selects_passages(paper, monkeypatch, way):
    """From what was retrieved, or from the whole article. The answer is text of the article, whatever it says."""
    with model(monkeypatch, {"selected": [2]}) as llm:
        arguments = ("--recipe", f"context24-passages:{way}", "--llm", "m", "--json")
        ran = works("passages", paper, CLAIM, *arguments)
    (found,) = json.loads(ran.out)
    (request,) = llm.requests
    assert kind_of(request) == "Selection"
    numbered = [json.loads(line) for line in user_text(request).splitlines() if line.startswith('{"number"')]
    assert found["text"] == numbered[1]["sentence"]
    assert ("Moss was eaten" in user_text(request)) == (way == "claude-article")


def test_numbers_that_are_not_there_are_asked_for_again_and_then_an_error(paper, monkeypatch):
    arguments = ("figures", paper, CLAIM, "--recipe", paper.with_name("ask.toml"), "--llm", "m", "--json")
    with model(monkeypatch, {"order": [9]}, {"order": [1]}) as llm:
        assert json.loads(ccheck(*arguments).out)[0]["task_id"] == "FIG 1"
        assert "the number 9, and the elements are numbered 1 to 3" in json.dumps(llm.requests[1]["messages"])
    with model(monkeypatch, {"order": [0]}) as llm:
        ran = ccheck(*arguments, "--llm", "another")
        assert ran.code == 6 and "neither reply is valid: order has the number 0" in ran.err and not ran.out


def test_a_model_says_what_each_element_presents(paper, monkeypatch):
    """BM25 then has the model's words alone."""
    replies = [{"description": "Growth."}, {"description": "The weights of heavy snails."}, {"description": "Tables."}]
    with model(monkeypatch, *replies) as llm:
        arguments = ("--recipe", "context24-figures:bm25-rephrased", "--llm", "m", "--json")
        ran = works("figures", paper, CLAIM, *arguments)
    assert [one["task_id"] for one in json.loads(ran.out)] == ["FIG 2", "FIG 1", "TAB 1"]
    assert [kind_of(request) for request in llm.requests] == ["Description"] * 3
    assert {request["model"] for request in llm.requests} == {"m"}, "--llm wins over the recipe's model"
    assert not any("temperature" in request for request in llm.requests), "the recipe leaves it to the server"
    assert 'Label: "FIG 1"' in user_text(llm.requests[0]) and "Snails of the coast grew" in user_text(llm.requests[0])
