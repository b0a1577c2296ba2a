"""The page of an evaluation: what it says, and that nothing on it is from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from evaluation_data import ScriptedChecker
from html_page import HOSTILE, Element, parse

from ccheck.core.errors import ServerError, UsageError
from ccheck.core.recipe import load_recipe
from ccheck.core.types import Claim, Stance, Verdict
from ccheck.lab.measure import plots
from ccheck.lab.measure.evaluate import Evaluation, evaluate
from ccheck.lab.measure.report import MAX_WAYS, write_report
from ccheck.lab.measure.types import Gold
from ccheck.lab.papers import published
from ccheck.lab.papers.published import Row, Table

IDS = [str(n) for n in range(6)]
CLAIMS = [Claim(f"the claim {n}", n) for n in IDS]
QRELS = {n: {f"right {n}": 1, f"other {n}": 1} for n in IDS}
STAGES = {
    n: {
        "bm25": [f"right {n}", "x", "y"],
        "dense": ["y", f"right {n}"],
        "rrf": ["y", *(f"filler {i}" for i in range(10)), f"right {n}"],
    }
    for n in IDS
}
METRICS = ("nDCG@10", "R@100")
TABLES: dict[str, Table] = {}
"""The published table of each recipe that a test made."""


@pytest.fixture(autouse=True)
def tables(monkeypatch: pytest.MonkeyPatch) -> None:
    def of(name: str) -> dict[str, Table]:
        return {"2": table for word, table in TABLES.items() if word.partition(":")[0] == name}  # noqa: B035

    monkeypatch.setattr(published, "tables_of", of)


def made(word: str = "default", **told: Any) -> Evaluation:
    TABLES[word] = Table(
        title=word,
        on=f"{word} claims",
        split=word,
        metrics=("nDCG@10", word),
        rows={word: Row(published=(0.5, 0.7), note=word)},
    )
    recipe = load_recipe("default").model_copy(
        update={"name": word, "description": word, "replace": {f"{word} big": word}}
    )
    final: dict[str, Any] = {n: STAGES[n]["rrf"] for n in IDS}
    final |= {"4": [], "5": ServerError(word)}
    stances = {("0", "y"): Stance("SUPPORTS", 0.8), ("1", "y"): Stance("REFUTES", 0.3), ("2", "y"): Stance(None)}
    verdicts = {n: Verdict("SUPPORTS", 0.7) for n in IDS[:4]}
    gold = Gold(
        {("0", "y"): "SUPPORTS", ("1", "y"): "SUPPORTS", ("2", "y"): "REFUTES"}, dict.fromkeys(IDS[:4], "SUPPORTS")
    )
    checker = ScriptedChecker(final, STAGES, stances, verdicts, {"0": (word,)}, recipe)
    for name, value in told.items():
        setattr(checker, name, value)
    return evaluate(checker, CLAIMS, QRELS, gold, METRICS, verdicts=True)


def better() -> Evaluation:
    return made(final={n: [f"right {n}", f"other {n}", "y"] if n < "3" else STAGES[n]["rrf"] for n in IDS})


def page(tmp_path: Path, evaluations: dict[str, Evaluation], word: str = "") -> Element:
    texts = {claim.id or "": f"{claim.text} {word}" for claim in CLAIMS}
    write_report(tmp_path / "page.html", evaluations, QRELS, texts)
    return parse((tmp_path / "page.html").read_text(encoding="utf-8"))


def rows(table: Element) -> list[list[str]]:
    return [[cell.words for cell in row.all() if cell.tag in ("th", "td")] for row in table.one("tbody").all("tr")]


def test_the_recipes_with_their_figures(tmp_path):
    evaluations = {"first": made(), "second": better()}
    html = page(tmp_path, evaluations)
    table = html.all("table")[0]
    assert [cell.words for cell in table.one("thead").all("th")] == [
        *("Recipe", "nDCG@10", "R@100", "Claims", "A claim took", "Tokens a claim")
    ]
    # One of the six claims of the first failed: what all cost is shared by those that were answered.
    tokens = {"first": "144 rewrite 66, verdict 78", "second": "120 rewrite 55, verdict 65"}
    for name, one in evaluations.items():
        (row,) = [row for row in rows(table) if row[0] == name]
        low, high = one.measured.intervals["nDCG@10"]
        assert row[1] == f"{one.measured.mean['nDCG@10']:.4f} [{low:.3f}, {high:.3f}]"
        assert row[3] == f"{one.judged_claims}" and row[5] == tokens[name]
    published = [row for row in rows(table) if row[0].startswith("published:")]
    assert published[0][
        0
    ] == "published: default claims, default (table 2, default; default); default 0.7" and published[0][1:3] == [
        "0.5",
        "",
    ]
    said = html.all("ul", class_="warnings")[0].words
    for part in ("default stands in for default big", "1 of 5 claims: default", "Claim 5 failed and is in no mean"):
        assert part in said
    assert "Nothing was found for 1 of the claims" in said and "1 stances and verdicts could not be made" in said


@pytest.mark.slow
def test_the_second_recipe_against_the_first(tmp_path):
    html = page(tmp_path, {"first": made(), "second": better()})
    section = html.one("section", **{"aria-labelledby": "against"})
    assert section.one("h2").words == "second against first"
    tables = section.all("table")
    # Five claims are in both; three won, none lost.
    assert rows(tables[0])[0][0] == "nDCG@10" and rows(tables[0])[0][5:] == ["3", "0", "2"]
    assert [row[0] for row in rows(tables[1])] == ["0", "1", "2"] and len(tables) == 2
    assert rows(tables[1])[0][4] == "the claim 0"
    assert page(tmp_path, {"alone": made()}).all("section", **{"aria-labelledby": "against"}) == []


def test_where_each_stage_lost_a_relevant_document(tmp_path):
    html = page(tmp_path, {"first": made()})
    section = html.all("section")[-1]
    (table,) = [table for table in section.all("table") if table.all("caption")]
    found = {row[1]: row for row in rows(table)}
    assert found["right 0"][2:6] == ["#1", "#2", "#12", "lost by rrf"]
    assert found["other 0"][2:6] == ["–not there", "–not there", "–not there", "never found"]
    assert "Of 10 relevant documents 0 are among the first 10 in the end, 5 were found by no stage." in section.words
    stages = next(table for table in section.all("table") if not table.all("caption"))
    assert [row[0] for row in rows(stages)] == ["bm25", "dense", "rrf"]
    assert rows(stages)[2][-2:] == ["+0", "−5"] and rows(stages)[0][-2:] == ["", ""]


def test_stances_and_verdicts(tmp_path):
    html = page(tmp_path, {"first": made()})
    section = html.all("section")[-1]
    assert [one.words for one in section.all("h3")][:2] == ["Stances", "Verdicts"]
    assert "1 could not be made" in section.words
    captions = [one.words for one in section.all("figcaption")]
    assert "Stances: true labels (rows) and predicted ones (columns)" in captions
    assert "Verdicts: the share that is right, by confidence" in captions


def test_a_page_holds_no_more_ways_than_it_says(tmp_path):
    qrels = {"0": {f"right {n}": 1 for n in range(MAX_WAYS + 9)}}
    one = evaluate(ScriptedChecker({"0": ["x"]}, {"0": {"bm25": ["x"]}}), CLAIMS[:1], qrels, metrics=METRICS)
    write_report(tmp_path / "page.html", {"one": one}, qrels, {})
    html = parse((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert f"{MAX_WAYS} of {MAX_WAYS + 9} that" in html.words
    assert len(html.all("section")[-1].one("tbody").all("tr")) == MAX_WAYS


@pytest.mark.slow
def test_the_page_fetches_nothing(tmp_path):
    html = page(tmp_path, {"first": made(), "second": better()})
    policy = html.one("meta", **{"http-equiv": "Content-Security-Policy"}).attributes["content"]
    digest = base64.b64encode(hashlib.sha256(html.one("style").text.encode()).digest()).decode()
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}'; ") and "unsafe" not in policy
    assert not html.all("script") and not re.search(r"url\(|@import|https?:|//\w", html.one("style").text)
    assert html.all("img")
    for one in html:
        assert not {"srcset", "action", "style", "background", "ping"} & set(one.attributes)
        assert not [name for name in one.attributes if name.startswith("on")]
        assert "src" not in one.attributes or one.attributes["src"].startswith("data:image/svg+xml;base64,")
    for image in html.all("img"):
        assert image.attributes["alt"]
        drawn = ElementTree.fromstring(base64.b64decode(image.attributes["src"].partition(",")[2]))
        for element in drawn.iter():
            assert not element.tag.endswith("script")
            for name, value in element.attrib.items():
                assert not name.endswith("href") or value.startswith("#")


def skeleton(element: Element) -> list[object]:
    """Tags and attributes without any text."""
    other = ("src", "content", "datetime", "alt", "aria-label")
    return [(one.tag, {k: v for k, v in one.attributes.items() if k not in other}) for one in element]


@pytest.mark.slow
def test_hostile_text_is_text(tmp_path):
    def hostile(word: str) -> Element:
        return page(tmp_path, {word: made(word), f"{word} 2": better()}, word)

    html = hostile(HOSTILE)
    assert skeleton(html) == skeleton(hostile("x" * len(HOSTILE)))
    assert not re.search("[\u202e\u2066\u200f\x00\x1b\x9b\ud800\ufffe]", html.text)
    assert "alert(1)" in html.words


def test_a_page_that_can_not_be_written_says_so(tmp_path):
    for path in (tmp_path, tmp_path / "no" / "page.html", "-"):
        with pytest.raises(UsageError, match="can't be written"):
            write_report(path, {"one": made()}, QRELS, {})
    assert list(tmp_path.iterdir()) == []


def test_plots_are_the_same_for_the_same_figures():
    curve = {1: 0.2, 10: 0.5}
    assert plots.recall_by_depth({"a": curve}) == plots.recall_by_depth({"a": curve})
    assert plots.recall_by_depth({"$a_b$ <&": curve}).startswith("<?xml")
    assert plots.depths(100) == [1, 2, 5, 10, 20, 50, 100] and plots.depths(7) == [1, 2, 5] and plots.depths(1) == [1]


@pytest.fixture
def seen(browser: Any, tmp_path: Path) -> Iterator[Any]:
    page(tmp_path, {"first": made("w" * 300), "second": better()}, "z" * 300)
    opened = browser.new_page(viewport={"width": 320, "height": 700})
    opened.asked, opened.complaints = [], []
    opened.on("request", lambda request: opened.asked.append(request.url))
    opened.on("console", lambda message: opened.complaints.append(message.text))
    opened.goto((tmp_path / "page.html").as_uri())
    yield opened
    opened.close()


def test_it_renders_on_a_phone_without_a_request(seen):
    seen.wait_for_function("[...document.images].every(one => one.complete)")
    assert [url for url in seen.asked if not url.startswith("data:")] == [seen.url] and seen.complaints == []
    assert all(seen.evaluate("[...document.images].map(one => one.naturalWidth > 300)"))
    seen.locator("details").evaluate_all("all => all.forEach(one => one.open = true)")
    assert seen.evaluate("document.documentElement.scrollWidth") <= 320
