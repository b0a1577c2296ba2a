"""The service's pages in a real browser: streaming, keyboard, phone, dark, and what axe finds."""

import threading
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

import pytest
from scripted_llm import say, scripted, user_text
from web_servers import CLAIM, Web

RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]


@pytest.fixture(scope="session")
def axe() -> str:
    """axe-core's script (MPL-2.0), which a package of the tests carries."""
    package = files(pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed"))
    return package.joinpath("axe.min.js").read_text(encoding="utf-8")


def ask(page: Any, claim: str = CLAIM) -> None:
    page.fill("#claim", claim)
    page.click("button.main")


def test_from_the_first_visit_to_a_verdict_a_correction_and_the_history(look, web: Web):
    page = look(web.url)
    ask(page)
    page.wait_for_selector("#verdict")
    assert page.inner_text("h1") == CLAIM and "Conflicting evidence" in page.inner_text("#verdict")
    assert page.locator("mark").first.evaluate("one => getComputedStyle(one).backgroundColor") == "rgb(255, 240, 163)"
    page.click("#c1-d1 .correct summary")
    page.fill("#c1-d1 input[name=note]", "lakes")
    page.press("#c1-d1 input[name=note]", "Enter")
    page.wait_for_timeout(500)
    assert page.input_value("#c1-d1 input[name=note]") == "lakes", "nothing was sent"
    page.click("#c1-d1 .correct button[value=REFUTES]")
    page.wait_for_selector("#c1-d1 .correction >> text=lakes")
    page.select_option("select[name=stance]", "REFUTES")
    page.click(".filters button")
    page.wait_for_url("**stance=REFUTES**")
    assert page.locator(".document").count() == 1
    page.click("text=History")
    page.wait_for_selector("ol.list")
    assert CLAIM in page.inner_text("ol.list")


def test_what_happens_is_told_while_the_language_models_server_answers_goes_and_comes_back(look, serve_web, tmp_path):
    go = threading.Event()
    go.set()

    def answer(request: Any) -> Any:
        assert "Sea ice melts" not in user_text(request) or go.wait(60)
        return say({"rationale": "r", "quote": "", "label": "NOT_ENOUGH_INFO", "confidence": 0.9})

    with scripted(answer) as llm:
        model = {"llm_model": "m", "llm_base_url": llm.url, "llm_api_key": "k", "llm_retry_seconds": 0}
        web = serve_web(settings={**model, "rerank": "none", "cache_dir": tmp_path / "cache"})
        page = look(web.url)
        go.clear()
        ask(page)  # the answer about one paper waits: the others are told
        page.wait_for_selector("[role=log] li >> text=Sea level: leaves it open")
        said = page.inner_text("[role=log]")
        assert "Found 3 papers." in said and "Reading them for the sentences" in said
        assert page.locator("#verdict").count() == 0
        go.set()
        page.wait_for_selector("#verdict >> text=Not enough information")
    page.goto(web.url)
    ask(page, "Sea ice melts.")
    page.wait_for_selector("#verdict >> text=No verdict")
    assert "127.0.0.1" in page.inner_text("#verdict") and "Not enough" not in page.inner_text("#verdict")
    with scripted(answer, urlsplit(llm.url).port):
        page.click("text=Check again")
        page.wait_for_selector("#verdict >> text=Not enough information")


def test_a_file_of_claims_fills_its_table(look, serve_web, tmp_path):
    web = serve_web()
    web.judge.go.clear()
    file = tmp_path / "claims.csv"
    file.write_text(f'id,text\n1,"{CLAIM}"\n2,...\n', encoding="utf-8")
    page = look(web.url)
    page.set_input_files("input[type=file]", file)
    page.click("text=Check the file")
    page.wait_for_selector("text=1 of 2 claims done, 1 failed")
    web.judge.go.set()
    page.wait_for_selector("text=2 of 2 claims done, 1 failed")
    assert "Conflicting evidence" in page.inner_text("tbody") and "only marks" in page.inner_text("tbody")


def test_a_page_that_waits_for_what_the_server_has_forgotten_waits_no_longer(look, serve_web, tmp_path):
    web = serve_web(record=False)
    web.judge.go.clear()
    page = look(web.url)
    page.route("**/events", lambda route: route.fulfill(status=404))
    ask(page)
    page.wait_for_selector("[role=log]")
    web.judge.go.set()
    page.wait_for_selector("#verdict")
    web.judge.go.clear()
    page.goto(web.url)
    page.set_input_files("input[type=file]", {"name": "c.txt", "mimeType": "text/plain", "buffer": b"Ice rose."})
    page.click("text=Check the file")
    page.wait_for_selector("text=0 of 1 claim done")
    web.web.jobs.files.clear()
    page.wait_for_selector("h1 >> text=This can't be done")


def test_all_of_it_works_by_keyboard(look, web: Web):
    page = look(web.url)
    page.keyboard.type(CLAIM)  # the box has the focus
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Check"
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#verdict")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('.correct summary')"):
            break
    assert page.evaluate("getComputedStyle(document.activeElement).outlineWidth") == "3px"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.parentElement.open")


def axe_finds(page: Any, axe: str) -> dict[str, list[str]]:
    """What axe finds on a page of a phone's width, with all of it opened."""
    page.locator("details").evaluate_all("all => all.forEach(one => one.open = true)")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390, page.url
    page.evaluate(axe)
    said = page.evaluate("rules => axe.run({runOnly: rules})", RULES)
    assert len(said["passes"]) > 5
    return {one["id"]: [node["html"][:200] for node in one["nodes"][:3]] for one in said["violations"]}


PHONE = {"viewport": {"width": 390, "height": 800}, "reduced_motion": "reduce", "bypass_csp": True}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_and_all_fits_a_phone(look, web: Web, axe: str, scheme: str):
    check = f"/checks/{web.check()['id']}"
    file = web.send("/files", {}, files={"file": ("c.csv", "id,text\n1,Ice is cold.\n2,...\n")}).url.path
    page = look(web.url, color_scheme=scheme, **PHONE)
    found = {}
    for path in ("/", check, "/history", "/papers", "/documents/sea", file, "/no-such-page"):
        page.goto(web.url + path)
        found[path] = axe_finds(page, axe)
    assert not any(found.values()), found


def test_without_javascript_a_card_leads_to_the_sentence_marked_in_its_pdf(look, serve_web, tmp_path, axe: str):
    pytest.importorskip("pypdfium2")
    papers = pytest.importorskip("pdf_papers", reason="reportlab is not installed")
    papers.write_paper(tmp_path / "tides.pdf", papers.Layout(columns=2), 60)
    web = serve_web(papers=None, pdfs=tmp_path)
    web.web.service.checker.ingest(str(tmp_path / "tides.pdf"), dense=False)
    page = look(web.url, java_script_enabled=False)
    ask(page, papers.sentence(30))
    page.wait_for_selector("#verdict")
    assert page.locator("[data-print]").is_hidden()
    page.click(".document a[href^='/pdf-pages/']")
    page.wait_for_selector("img.sheet")
    sheet = page.locator("img.sheet").first
    # The policy lets the image load.
    assert sheet.evaluate("one => [one.naturalWidth, one.naturalHeight]") == [1132, 1600]
    assert papers.sentence(30) in sheet.get_attribute("alt")
    for scheme in ("light", "dark"):
        assert axe_finds(look(page.url, color_scheme=scheme, **PHONE), axe) == {}
