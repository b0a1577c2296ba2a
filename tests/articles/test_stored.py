"""Articles come back from every store as they went in, and rank as from files. Queries show what grounds them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from article_files import JATS
from cli_runs import ccheck
from question_llm import kind_of
from scripted_llm import ScriptedLlm, say, scripted, user_text

from ccheck.articles.types import FULL_TEXT, article_of, is_article, record_of
from ccheck.articles.xml import parse_article
from ccheck.core.errors import InvalidData
from ccheck.core.layout import Layout
from ccheck.core.types import Document, Entry
from ccheck.ingest.documents import make_document

OTHER = JATS.replace("snails", "limpets").replace("Snails", "Limpets")


def test_nothing_is_lost_in_a_store(make_store):
    article = parse_article(JATS.encode(), "snails.xml")
    document = make_document(json.loads(json.dumps(record_of(article)))).document
    store = make_store()
    store.prepare(Layout())
    assert store.upsert([Entry(document, "1"), Entry(Document("plain", "", "An abstract."), "2")]) == {}
    store.publish()
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
    (folder / "claims.jsonl").write_text(
        '{"claim_id": "1", "article": "snails", "claim": "The moss was eaten at night."}\n'
        '{"claim_id": "2", "article": "gone", "claim": "The moss was eaten at night."}\n'
        '{"claim_id": "3", "article": "broken", "claim": "The moss was eaten at night."}\n'
    )
    return folder


def test_figures_of_a_file_of_claims(papers):
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


def test_figures_and_passages_of_one_claim(papers):
    [found] = ccheck("figures", papers / "snails.xml", "The moss was eaten at night.", "--json", "-k", "1").objects
    assert [(one["task_id"], one["rank"]) for one in found] == [("FIG 2", 1)]
    assert set(found[0]) == {"id", "task_id", "label", "rank", "score", "why"}
    [passages] = ccheck("passages", papers / "snails.xml", "The moss was eaten at night.", "--json").objects
    assert set(passages[0]) == {"text", "start", "end", "section", "score"} and passages[0]["section"] == "Results"
    shown = ccheck("figures", papers / "snails.xml", "The moss was eaten at night.", "-k", "1")
    assert "Fig 2" in shown.out and "Moss left after each night." in shown.out
    [several] = ccheck("figures", papers, "The moss was eaten at night.", "--json", "-q").objects
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
    lines = [
        json.dumps(record_of(parse_article(text.encode(), name)))
        for name, text in (("snails", JATS), ("limpets", OTHER))
    ]
    (papers / "corpus.jsonl").write_text("\n".join([*lines, '{"_id": "plain", "text": "Moss was eaten at night."}']))
    assert ccheck("ingest", papers / "corpus.jsonl", "--store", papers / "store", "--no-dense", "-q").code == 0
    return papers / "store"


def test_a_store_answers_as_the_files_do(papers, stored):
    claim = "The moss was eaten at night."
    [of_files] = ccheck("figures", papers / "snails.xml", claim, "--json").objects
    [of_store] = ccheck("figures", "--store", stored, "--article", "snails", claim, "--json").objects
    assert of_store == of_files
    [of_all] = ccheck("figures", "--store", stored, claim, "--json").objects
    assert {one["article"] for one in of_all} == {"snails", "limpets"}
    assert "not a full text" in ccheck("figures", "--store", stored, "--article", "plain", claim).err
    assert ccheck("figures", "--store", papers / "none", claim).code == 4


def test_a_query_goes_deep(stored, tmp_path):
    asked = ("query", "Moss was eaten at night.", "--store", stored, "--recipe", "bm25", "--verdict", "none", "--deep")
    ran = ccheck(*asked, "--json", "--report", tmp_path / "report.html")
    [result] = ran.objects
    by_id = {one["doc_id"]: one for one in result["evidence"]}
    assert "grounding" not in by_id["plain"]
    grounding = by_id["snails"]["grounding"]
    assert grounding["figures"][0]["label"] == "Fig 2"
    assert grounding["figures"][0]["caption"] == "Moss left after each night."
    assert grounding["passages"][0]["section"] == "Results"
    page = (tmp_path / "report.html").read_text()
    assert "Moss left after each night." in page
    assert "Fig 2  Moss left after each night." in ccheck(*asked).out


def test_a_query_says_why_it_can_not_go_deep(tmp_path):
    (tmp_path / "c.jsonl").write_text('{"_id": "plain", "text": "Moss was eaten at night."}')
    assert ccheck("ingest", tmp_path / "c.jsonl", "--store", tmp_path / "s", "--no-dense", "-q").code == 0
    given = ("--store", tmp_path / "s", "--recipe", "bm25", "--verdict", "none")
    ran = ccheck("query", "moss", *given, "--deep", "--json")
    assert "none of these papers is stored with its full text" in ran.objects[0]["warnings"][0]


def test_full_texts_are_ingested_as_they_are(papers, tmp_path):
    files, given = (papers / "snails.xml", papers / "broken.xml"), ("--store", tmp_path / "s", "--no-dense")
    ran = ccheck("ingest", *files, *given, "--rejects", tmp_path / "r.jsonl")
    assert ran.code == 7 and "not well-formed XML" in (tmp_path / "r.jsonl").read_text()
    claim = "The moss was eaten at night."
    [of_store] = ccheck("figures", "--store", tmp_path / "s", "--article", "snails", claim, "--json").objects
    assert of_store == ccheck("figures", papers / "snails.xml", claim, "--json").objects[0]


def test_recipes_are_measured_on_articles(papers):
    """One command for a row of the paper's tables; a claim of an article that is not there is named and left out."""
    gold = papers / "gold.jsonl"
    gold.write_text(
        '{"claim_id": "1", "article": "snails", "claim": "The moss was eaten at night.", "element_ids": ["g2"], '
        '"passages": ["Moss was eaten at night, and slime dried by day."]}\n'
    )

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


def test_expressions_of_ones_own(papers, tmp_path):
    (tmp_path / "own.txt").write_text("was eaten\n")
    asked = ("passages", papers / "snails.xml", "The moss was eaten at night.", "--json", "--expressions")
    assert ccheck(*asked, tmp_path / "own.txt").code == 0
    assert ccheck(*asked, tmp_path / "gone.txt").code == 4


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


@contextmanager
def model(monkeypatch: pytest.MonkeyPatch, *replies: Any) -> Iterator[ScriptedLlm]:
    """Answers each request with the next reply, the last one again and again."""
    left = list(replies)
    with scripted(lambda request: say(left.pop(0) if len(left) > 1 else left[0])) as llm:
        monkeypatch.setenv("OPENAI_BASE_URL", llm.url)
        yield llm


def test_a_model_orders_the_elements_from_the_best_sentences(paper, monkeypatch):
    with model(monkeypatch, {"order": [2, 3]}) as llm:
        ran = ccheck("figures", paper, CLAIM, "--recipe", paper.with_name("ask.toml"), "--llm", "m", "--json")
    assert ran.code == 0, ran.err
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
        ran = ccheck("passages", paper, CLAIM, *arguments)
    assert ran.code == 0, ran.err
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
        assert "9 is not one of the numbers 1 to 3" in json.dumps(llm.requests[1]["messages"])
    with model(monkeypatch, {"order": [9]}) as llm:
        ran = ccheck(*arguments, "--llm", "another")
        assert ran.code == 6 and "neither reply is valid: 9 is not one of the numbers" in ran.err and not ran.out


def test_a_model_says_what_each_element_presents(paper, monkeypatch):
    """BM25 then has the model's words alone."""
    replies = [{"description": "Growth."}, {"description": "The weights of heavy snails."}, {"description": "Tables."}]
    with model(monkeypatch, *replies) as llm:
        arguments = ("--recipe", "context24-figures:bm25-rephrased", "--llm", "m", "--json")
        ran = ccheck("figures", paper, CLAIM, *arguments)
    assert ran.code == 0, ran.err
    assert [one["task_id"] for one in json.loads(ran.out)] == ["FIG 2", "FIG 1", "TAB 1"]
    assert [kind_of(request) for request in llm.requests] == ["Description"] * 3
    assert {request["model"] for request in llm.requests} == {"m"}, "--llm wins over the recipe's model"
    assert not any("temperature" in request for request in llm.requests), "the recipe leaves it to the server"
    assert 'Label: "FIG 1"' in user_text(llm.requests[0]) and "Snails of the coast grew" in user_text(llm.requests[0])
