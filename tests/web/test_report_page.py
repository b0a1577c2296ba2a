"""The report page, as a file and in a browser."""

import base64
import hashlib
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from html_page import HOSTILE, Element, parse
from report_results import MANY, RATE, ROSE, TEXT, document, piece, result, sentence, write_report

from ccheck.core.citation import doi_url
from ccheck.core.errors import InvalidData
from ccheck.core.recipe import load_recipe
from ccheck.core.settings import resolve
from ccheck.core.stages import ModelStage
from ccheck.core.types import Claim, Document, Evidence, Hit, Part, Result, Sentence, Stance, Usage, Verdict
from ccheck.web.report import about_run, placeless, writing_report
from ccheck.web.views import MAX_TEXT

ABOUT = {"Models": ["embeddings: all-MiniLM-L6-v2"], "Store": "local:papers"}


def page(tmp_path: Path, *results: Result, about: object = ABOUT) -> Element:
    write_report(tmp_path / "page.html", results, about)
    return parse((tmp_path / "page.html").read_text(encoding="utf-8"))


def test_a_claim_with_all_that_is_known_of_it(tmp_path):
    evidence = piece(ROSE, stance=Stance("SUPPORTS", 0.9, "It says so.", None, {"SUPPORTS": 0.9, "REFUTES": 0.1}))
    usage = {"rewrite": Usage(1, 200, 10), "verdict": Usage(2, 1000, 30, 1)}
    html = page(tmp_path, result(evidence, timings_ms={"retrieve": 4.1, "verdict": 2300.0}, usage_by_stage=usage))
    claim = html.one("section", id="c1")
    assert claim.one("h2").text == "Seas rise"
    said = "✓ Supported confidence 0.81, moderate ✓ 1 supporting Both papers say so. Judged by llm:x (one-step)"
    assert claim.one(class_="verdict").words == said
    assert claim.one("h4").words == "1 Sea level"
    assert claim.one(class_="facts").words == "2011 · doi:10.1007/s10712-011-9119-1 · d1"
    (link,) = [one for one in claim.all("a") if one.text.startswith("doi:")]
    assert link.attributes == {"href": "https://doi.org/10.1007/s10712-011-9119-1", "rel": "noopener noreferrer"}
    stance = claim.one(class_="stance").words
    assert stance == "✓ supports confidence 0.90, high" and "It says so." in claim.words
    assert "Probabilities: supports 0.90, refutes 0.10." in claim.one("details", class_="why").words
    assert [mark.text for mark in claim.one("p", class_="excerpt").all("mark")] == [ROSE]
    way = claim.one("details", class_="way").words
    assert "Time: retrieve 4.1 ms · verdict 2.3 s" in way
    assert "3 calls, 1,200 prompt tokens, 40 completion tokens, 1 answer from the cache" in way
    assert "embeddings: all-MiniLM-L6-v2" in html.one("footer").words and "ccheck 0." in html.one("footer").words
    assert html.one("title").text == "Seas rise – ccheck" and not html.all("nav")


def test_how_the_documents_ranked_in_the_order_of_the_stages(tmp_path):
    first = piece()
    found_by_one = replace(first.hit, rank=2, scores={"rrf": 0.01, "bm25": 2.0}, ranks={"rrf": 1, "bm25": 1}, cut=())
    table = page(tmp_path, result(Evidence(found_by_one), first)).one("table")
    rows = [[cell.words for cell in row if cell.tag in ("th", "td")] for row in table.all("tr")]
    assert rows == [
        ["Rank", "Document", "Score", "bm25", "dense", "rrf", "rerank"],
        ["2", "d1", "3.4", "#1 2", "–not found", "#1 0.01", "–not found"],
        ["1", "d1", "3.4", "#3 12.5", "#7 0.61", "#5 0.0325", "3.4 (cut to fit)"],
    ]


def test_an_error_is_never_a_label_and_the_contents_count_the_verdicts(tmp_path):
    html = page(tmp_path, *MANY)
    no_answer, empty = html.one(id="c6"), html.one(id="c7")
    assert no_answer.one(class_="verdict").words == "– No verdict Error: no language model answered"
    assert empty.one(class_="verdict").words == "! Not checked Error: the claim is empty"
    assert html.one(id="c2").one(class_="stance").words == "! no stance · Error: timed out"
    outcomes = {one.attributes["data-outcome"] for one in (no_answer, empty)}
    assert outcomes == {"NONE", "ERROR"}
    assert html.one(id="c5").one(class_="verdict").words == "– No verdict None was asked for."
    assert "(empty)" in empty.one("h2").words
    counts = [one.words for one in html.one("ul", id="counts").all("li")]
    assert counts == [
        *("✓ Supported: 1", "✗ Refuted: 1", "⇄ Conflicting evidence: 1", "○ Not enough information: 1"),
        *("– No verdict: 2", "! Not checked: 1"),
    ]
    entries = html.one("ol", class_="contents").all("li")
    sections = html.all("section")
    assert len(entries) == len(sections) == 7
    for entry, section in zip(entries, sections, strict=True):
        assert entry.one("a").attributes["href"] == f"#{section.attributes['id']}"
        assert entry.attributes["data-outcome"] == section.attributes["data-outcome"]
    assert "hidden" in html.one("fieldset").attributes  # without a script there is no filter
    assert html.one("title").text == "7 claims – ccheck" and "id c7" in html.one(id="c3").words


def test_relevance_and_evidence_in_the_title_are_shown(tmp_path):
    said = "Probability that something below bears on the claim: 0.07"
    found = result(piece(), relevance=0.071)
    assert said in page(tmp_path, found).one("main").words
    assert "Probability" not in page(tmp_path, result(relevance=0.0)).one("main").words
    made = document(title="On the sea. It rises. The end")
    sentences = (sentence(made, "It rises.", "title"),)
    html = page(tmp_path, result(Evidence(Hit(1, made, 1.0), sentences)))
    assert html.one("h4").words == "1 On the sea. It rises. The end" and html.one("h4").one("mark").text == "It rises."


def shown(tmp_path: Path, evidence: Evidence) -> tuple[str, list[str]]:
    """The whole text as the page has it, and what is highlighted in it."""
    html = page(tmp_path, result(evidence)).one(class_="document")
    folded = html.all("details", class_="whole")
    (whole,) = folded[0].all("p") if folded else html.all("p", class_="text")
    return whole.text, [mark.text for mark in whole.all("mark")]


CODE_POINTS = "🌊𝔸 & <b>é e\u0301</b> 👩\u200d🔬. The 🌊 rises. אבג."


@pytest.mark.parametrize(
    ("text", "chosen"),
    [(TEXT, (RATE, ROSE)), (TEXT, ("The oldest part of the record",)), (TEXT, (TEXT,)), (TEXT, ()),
     (CODE_POINTS, ("The 🌊 rises.",))],
)  # fmt: skip
def test_evidence_is_highlighted_where_it_stands(tmp_path, text, chosen):
    assert shown(tmp_path, piece(*chosen, text=text)) == (text, sorted(chosen, key=text.index))


def test_sentences_that_overlap_are_one_highlight(tmp_path):
    made = document()
    spans = [(50, 80), (37, 60), (100, 110), (37, 60), (52, 55), (110, 120)]
    sentences = tuple(Sentence(TEXT[start:end], "text", start, end, 0.1) for start, end in spans)
    text, marks = shown(tmp_path, Evidence(Hit(1, made, 1.0), sentences))
    assert (text, marks) == (TEXT, [TEXT[37:80], TEXT[100:110], TEXT[110:120]])


@pytest.mark.parametrize(("start", "end"), [(-5, 3), (5, 5), (9, 2), (len(TEXT) - 2, len(TEXT) + 9), (0, 9)])
def test_a_sentence_that_is_not_where_it_should_be_says_so(tmp_path, start, end):
    lost = Sentence("nowhere to be found", "text", start, end, 0.1)
    html = page(tmp_path, result(Evidence(Hit(1, document(), 1.0), (lost,)))).one(class_="document")
    assert [mark.text for mark in html.all("mark")] == ["nowhere to be found"]
    assert f"not found in the document at characters {start} to {end} of its text" in html.words


def test_what_is_far_from_the_evidence_is_folded_away_and_a_book_does_not_fill_the_page(tmp_path):
    html = page(tmp_path, result(piece(ROSE))).one(class_="document")
    assert html.one("p", class_="excerpt").words == f"{TEXT[: TEXT.index(RATE) + len(RATE)]} …"
    assert html.one("details", class_="whole").one("summary").words == f"The whole text ({len(TEXT)} characters)"
    text = "Seas rise. Why? Ice melts. So it goes. The end."
    short = page(tmp_path, result(piece("Seas rise.", text=text))).one(class_="document")
    assert short.one("p", class_="text").text == text
    text = "The sea is deep. " * 20_000 + "It rises by 3 mm. " + "The sea is wide. " * 20_000
    html = page(tmp_path, result(piece("It rises by 3 mm.", text=text))).one(class_="document")
    assert html.one("p", class_="excerpt").one("mark").text == "It rises by 3 mm."
    assert MAX_TEXT - 10 < len(html.one("details", class_="whole").one("p", class_="text").text) <= MAX_TEXT
    assert html.one("details", class_="whole").all("mark") == []
    assert "Cut here" in html.words and (tmp_path / "page.html").stat().st_size < 3 * MAX_TEXT
    one_word = page(tmp_path, result(piece("yyy", text="x" * 300_000 + "yyy" + "x" * 300_000)))
    assert one_word.one("p", class_="excerpt").one("mark").text == "yyy" and len(one_word.words) < 2 * MAX_TEXT


@pytest.mark.parametrize(
    ("written", "url"),
    [
        ("10.1000/182", "https://doi.org/10.1000/182"),
        ("https://doi.org/10.1000/182", "https://doi.org/10.1000/182"),
        ("10.1002/(SICI)1096<1::AID-X>3.0.CO;2-#", "https://doi.org/10.1002/(SICI)1096%3C1::AID-X%3E3.0.CO;2-%23"),
        ('10.1000/"onmouseover=x', "https://doi.org/10.1000/%22onmouseover=x"),
        ("javascript:alert(1)", None),
        ("10.1000/182\njavascript:x", None),
        ("10.1000/1\u202e82", None),
        ("https://doi.org.evil.example/10.1000/182", None),
        ("10.1000/" + "1" * 600, None),
        (10.1000, None),
        (None, None),
    ],
)
def test_only_well_formed_dois_are_links(tmp_path, written, url):
    assert doi_url(written) == url
    links = [a.attributes["href"] for a in page(tmp_path, result(piece(metadata={"doi": written}))).all("a")]
    assert [link for link in links if not link.startswith("#")] == [url] * bool(url)


def test_the_page_fetches_nothing(tmp_path):
    html = page(tmp_path, *MANY)
    policy = html.one("meta", **{"http-equiv": "Content-Security-Policy"}).attributes["content"]
    for tag in ("style", "script"):
        digest = base64.b64encode(hashlib.sha256(html.one(tag).text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}';" in policy
    assert policy.startswith("default-src 'none'; ") and "unsafe" not in policy and "http" not in policy
    assert not re.search(r"url\(|@import|https?:|//\w", html.one("style").text)
    assert not re.search(r"fetch|XMLHttp|import|https?:|innerHTML|eval", html.one("script").text)
    for one in html:
        assert not {"src", "srcset", "action", "style", "background", "ping"} & set(one.attributes)
        assert not [name for name in one.attributes if name.startswith("on")]
        href = one.attributes.get("href")
        assert href is None or href.startswith("#") or one.tag == "a" or (one.tag, href) == ("link", "data:,")


def skeleton(element: Element) -> list[object]:
    """Tags and attributes without any text."""
    other = ("href", "content", "datetime")
    return [(one.tag, {k: v for k, v in one.attributes.items() if k not in other}) for one in element]


def page_of(tmp_path: Path, word: str) -> Element:
    made = Document(word, f"{word} title", f"{word} and more.", {"year": word, "doi": word})
    sentences = (
        Sentence(made.text, "text", 0, len(made.text), 0.5),
        Sentence(word, "title", 0, len(word), 0.5),
        Sentence(f"{word}?", "text", 3, 4, 0.5),
    )
    hit = Hit(1, made, 1.0, {word: 1.0}, {word: 1}, (word,))
    figure, passage = dict.fromkeys(("label", "caption", "image"), word), {"text": word, "section": word}
    grounding = {"figures": [figure], "passages": [passage]}
    evidence = [
        Evidence(hit, sentences, Stance("SUPPORTS", 0.5, word, None, {word: 0.5}), grounding),
        Evidence(replace(hit, rank=2), (), Stance(None, error=word)),
    ]
    common = {"recipe": word, "store": word, "warnings": (word,), "timings_ms": {word: 1.0}}
    results = [
        Result(Claim(word, word), tuple(evidence), Verdict("REFUTES", 0.5, word, word), **common),
        Result(Claim(word, word), (), Verdict(None, error=word), **common),
        Result(Claim(word * 40, word), (), None, error=InvalidData(word), **common),
    ]
    return page(tmp_path, *results, about={word: [word, word], f"{word}2": word})


def test_hostile_text_is_text(tmp_path):
    harmless = "x" * len(HOSTILE)
    html = page_of(tmp_path, HOSTILE)
    assert skeleton(html) == skeleton(page_of(tmp_path, harmless))
    raw = page_of(tmp_path, HOSTILE) and (tmp_path / "page.html").read_bytes().decode()
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufffe]", raw)
    seen = HOSTILE.translate(dict.fromkeys(map(ord, "\u202e\u2066\u200f\x00\x1b\x9b"))).replace("\r", "\n")
    seen = seen.replace("\ud800", "\ufffd").replace("\ufffe", "\ufffd")
    assert html.one(id="c1").one("h2").text == seen
    assert html.one("li", id="c1-d1").all("mark")[1].text == f"{seen} and more."
    assert not [one for one in html.all("a") if not one.attributes["href"].startswith("#")]


def test_the_page_is_one_that_a_screen_reader_can_use(tmp_path):
    html = page(tmp_path, *MANY)
    assert html.attributes["lang"] == "en" and html.one("title").text
    assert [html.all(tag) != [] for tag in ("header", "nav", "main", "footer")] == [True] * 4
    levels = [int(one.tag[1]) for one in html if re.fullmatch(r"h[1-6]", one.tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(next_ <= level + 1 for level, next_ in pairwise(levels))
    ids = [one.attributes["id"] for one in html if "id" in one.attributes]
    assert len(ids) == len(set(ids))
    for one in html:
        for named in (one.attributes.get("aria-labelledby"), (one.attributes.get("href") or "").partition("#")[2]):
            assert not named or named in ids
    assert all(one.attributes.get("aria-hidden") == "true" for one in html.all(class_="symbol"))  # words say it, too
    assert all(one.attributes.get("scope") for one in html.all("th")) and html.all("caption")


def test_results_are_put_down_as_they_come(tmp_path):
    with writing_report(tmp_path / "page.html", about := {}) as add:
        for one in MANY:
            add(one)
        assert not (tmp_path / "page.html").exists()
        about["Models"] = "known at the end"
    html = parse((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert len(html.all("section")) == len(MANY) and "known at the end" in html.one("footer").words


def test_about_a_run_without_secrets_and_paths_of_this_machine(monkeypatch, tmp_path):
    monkeypatch.setenv("OPENAI_API_KEY", "s3cret")
    monkeypatch.setenv("ELASTICSEARCH_URL", "https://user:s3cret@host:9200")
    resolved = resolve({"rerank": "auto"})
    recipe = load_recipe("default").model_copy(update={"rerankers": {"rerank": ModelStage(model="m")}})
    about = about_run(resolved, recipe, ["embeddings: x"])
    assert list(about) == ["Models", "Recipe default", "Settings"]
    assert any(line.startswith("retrievers: bm25 (kind bm25, depth ") for line in about["Recipe default"])
    assert any(line.startswith("rerankers: rerank (kind model, model m") for line in about["Recipe default"])
    assert not [line for line in about["Recipe default"] if re.match("ingest|rewriting", line)]  # it does neither
    assert "rerank = auto (from flag)" in about["Settings"]
    assert not [line for line in about["Settings"] if re.match("llm_api_key|data_dir|cache_dir", line)]
    footer = page(tmp_path, about=about).one("footer").words
    assert "s3cret" not in footer and "https://***@host:9200" in footer
    assert "Models" not in about_run(resolved, recipe)
    resolved = resolve({"stance_model": "/home/me/models/nli", "store": "/home/me/papers"})
    recipe = load_recipe("default").model_copy(update={"rerankers": {"rerank": ModelStage(model="/home/me/rr")}})
    about = about_run(resolved, recipe, ["embeddings: /home/me/mini", "reranker: late:/home/me/late", "stances: x/y"])
    assert about["Models"] == ["embeddings: mini", "reranker: late:late", "stances: x/y"]
    words = page(tmp_path, result(store="/home/me/papers"), about=about).one("body").words
    assert "/home" not in words and "model rr" in words and "stance_model = nli" in words
    assert placeless("https://h:9200/a/b") == "https://h:9200/a/b" and placeless("local:papers") == "local:papers"


@pytest.mark.parametrize(
    ("label", "confidence", "said"),
    [
        ("SUPPORTS", 0.07, "Weakly supported"),
        ("REFUTES", 0.49, "Weakly refuted"),
        ("SUPPORTS", 0.5, "Supported"),
        ("NOT_ENOUGH_INFO", 0.07, "Not enough information"),
        ("SUPPORTS", None, "Supported"),
    ],
)
def test_a_side_with_little_confidence_is_told_apart(tmp_path, label, confidence, said):
    weak = [piece(stance=Stance("SUPPORTS", 0.6), rank=rank) for rank in (2, 3)]
    made = result(piece(ROSE, stance=Stance("SUPPORTS", 0.9)), *weak, verdict=Verdict(label, confidence))
    html = page(tmp_path, made, made)
    shown = html.all("div", class_="verdict")[0]
    assert said in html.one("ol", class_="contents").all("li")[0].words
    assert "✓ 1 supporting ✓ 2 leaning to supporting it" in shown.words
    assert shown.one("strong").words == said and ("Read both sides" in shown.words) == said.startswith("Weakly")


def test_a_paper_that_decides_a_part_of_the_claim_is_shown_as_what_decides(tmp_path):
    open_, leaning = Stance("NOT_ENOUGH_INFO", 0.9), Stance("REFUTES", 0.6, decides=False)
    found = [piece(ROSE, stance=leaning), piece(ROSE, stance=open_, rank=2, id="d2")]
    parts = (Part("Sea level rose", "SUPPORTS", 0.8), Part("ice melts", "REFUTES", 0.9, None, ("d2", "far")))
    html = page(tmp_path, result(*found, verdict=Verdict("REFUTES", 0.9, parts=parts)))
    side = html.all("div", class_="side")[1].words
    assert "✗ Strongest objection" in side and 'refutes "ice melts" · confidence 0.90, high' in side
    assert 'refutes "ice melts"' in html.one("li", id="c1-d2").words
    assert "✗ 1 refuting ✗ 1 leaning" in html.all("div", class_="verdict")[0].words
    said = html.one("div", class_="gaps").words
    assert 'decides "ice melts" is not among the papers shown: far' in said and "supports the claim" not in said


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("report") / "page.html"
    write_report(file, MANY, {"Models": "x"})
    return file.as_uri()


def visible(page: Any, selector: str) -> list[str]:
    return page.locator(selector).filter(visible=True).all_inner_texts()


def test_it_renders_without_a_complaint_or_a_request_and_unfolds(look, many):
    page = look(many)
    assert page.asked == [many] and page.complaints == []
    assert len(visible(page, "section h2")) == len(MANY)
    mark = page.locator("mark").first
    assert mark.inner_text() == ROSE
    assert mark.evaluate("one => getComputedStyle(one).backgroundColor") == "rgb(255, 240, 163)"  # the styles apply
    assert visible(page, "#c1-d1 .excerpt") and not visible(page, "#c1-d1 .whole p")
    page.click("#c1-d1 .whole summary")
    assert not visible(page, "#c1-d1 .excerpt") and visible(page, "#c1-d1 .whole p")


def test_the_policy_stops_what_is_not_the_pages_own(look, many, tmp_path):
    write_report(tmp_path / "page.html", MANY, {})
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    bad = "<script>document.title = 'run'</script><img src=http://127.0.0.1:9/x.png onerror=\"document.title = 'run'\">"
    (tmp_path / "bad.html").write_text(text.replace("<footer>", f"{bad}<footer>"), encoding="utf-8")
    page = look((tmp_path / "bad.html").as_uri())
    assert page.title() == f"{len(MANY)} claims – ccheck"
    assert len([one for one in page.complaints if "Content Security Policy" in one]) >= 2
    page.complaints.clear()


def test_the_filter_shows_one_outcome(look, many):
    page = look(many)
    assert "hidden" not in page.locator("#filter").evaluate("one => one.outerHTML.split('>')[0]")
    for outcome, count in (("REFUTES", 1), ("NONE", 2), ("ERROR", 1), ("", len(MANY))):
        page.check(f"input[value='{outcome}']")
        assert len(visible(page, "section h2")) == len(visible(page, ".contents li")) == count
        assert visible(page, "#showing") == [f"{count} of {len(MANY)} claims shown"]
    page.check("input[value='REFUTES']")
    page.evaluate("location.hash = 'c1-d1'")  # a link to what is filtered away
    page.wait_for_function("document.querySelector('#c1').checkVisibility()")
    assert len(visible(page, "section h2")) == len(MANY)
    page = look(many)  # by keyboard
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip" and visible(page, ".skip")
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    assert visible(page, "#showing") == [f"1 of {len(MANY)} claims shown"]


@pytest.mark.parametrize("width", [320, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone(look, tmp_path, width, scheme):
    long = piece("x" * 300, text="x" * 300, title="y" * 300, metadata={"doi": "10.1000/" + "z" * 300}, id="i" * 300)
    write_report(tmp_path / "page.html", [result(long, text="w" * 300), *MANY], {"Models": "m" * 300})
    page = look((tmp_path / "page.html").as_uri(), viewport={"width": width, "height": 700}, color_scheme=scheme)
    page.locator("details").evaluate_all("all => all.forEach(one => one.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (scheme == "dark") == (colour != "rgb(255, 255, 255)")


@pytest.mark.parametrize("scripts", [True, False])
def test_it_prints(look, many, scripts):
    page = look(many, java_script_enabled=scripts, color_scheme="dark")
    pdf = page.pdf(format="A4")
    assert pdf.startswith(b"%PDF-") and len(re.findall(rb"/Type\s*/Page\b", pdf)) >= 3
    page.emulate_media(media="print")
    # No colours are needed: dark mode prints on white, evidence is underlined.
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert "underline" in page.locator("mark").first.evaluate("one => getComputedStyle(one).textDecorationLine")
    assert len(visible(page, "#counts li")) == 6 and visible(page, "#filter") == [] and visible(page, "summary") == []
    # Folded on the screen, and wanted on paper.
    assert len(visible(page, ".way table")) == 6
