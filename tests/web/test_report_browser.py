"""The report page in a real browser: Chromium, driven by playwright."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from report_results import MANY, ROSE, piece, result, write_report


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("report") / "page.html"
    write_report(file, MANY, {"Models": "x"})
    return file


class Seen:
    """A page, opened, with what it asked for and what it complained about."""

    def __init__(self, browser: Any, file: Path, **context: Any) -> None:
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page = browser.new_page(**context)
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(file.as_uri())

    def visible(self, selector: str) -> list[str]:
        return [one.inner_text() for one in self.page.locator(selector).all() if one.is_visible()]


@pytest.fixture
def look(browser: Any) -> Iterator[Any]:
    opened: list[Seen] = []

    def open_(file: Path, **context: Any) -> Seen:
        opened.append(Seen(browser, file, **context))
        return opened[-1]

    yield open_
    for seen in opened:
        seen.page.close()


def test_it_renders_without_a_complaint_or_a_request(look, many):
    seen = look(many)
    assert seen.requests == [many.as_uri()] and seen.complaints == []
    assert len(seen.visible("section h2")) == len(MANY)
    mark = seen.page.locator("mark").first
    assert mark.inner_text() == ROSE
    assert mark.evaluate("one => getComputedStyle(one).backgroundColor") == "rgb(255, 240, 163)"  # the styles apply


def test_the_policy_stops_what_is_not_the_pages_own(look, many, tmp_path):
    page = many.read_text(encoding="utf-8")
    bad = "<script>document.title = 'run'</script><img src=http://127.0.0.1:9/x.png onerror=\"document.title = 'run'\">"
    (tmp_path / "bad.html").write_text(page.replace("<footer>", f"{bad}<footer>"), encoding="utf-8")
    seen = look(tmp_path / "bad.html")
    assert seen.page.title() == f"{len(MANY)} claims – ccheck"
    assert len([one for one in seen.complaints if "Content Security Policy" in one]) >= 2


def test_the_filter_shows_one_outcome(look, many):
    seen = look(many)
    assert "hidden" not in seen.page.locator("#filter").evaluate("one => one.outerHTML.split('>')[0]")
    for outcome, count in (("REFUTES", 1), ("NONE", 2), ("ERROR", 1), ("", len(MANY))):
        seen.page.check(f"input[value='{outcome}']")
        assert len(seen.visible("section h2")) == len(seen.visible(".contents li")) == count
        assert seen.visible("#showing") == [f"{count} of {len(MANY)} claims shown"]
    seen.page.check("input[value='REFUTES']")
    seen.page.evaluate("location.hash = 'c1-d1'")  # a link to what is filtered away
    seen.page.wait_for_function("document.querySelector('#c1').checkVisibility()")
    assert len(seen.visible("section h2")) == len(MANY)


def test_the_filter_works_by_keyboard(look, many):
    seen = look(many)
    seen.page.keyboard.press("Tab")
    assert seen.page.evaluate("document.activeElement.className") == "skip" and seen.visible(".skip")
    seen.page.keyboard.press("Tab")
    seen.page.keyboard.press("ArrowRight")
    assert seen.visible("#showing") == [f"1 of {len(MANY)} claims shown"]


def test_without_javascript_all_is_there(look, many):
    seen = look(many, java_script_enabled=False)
    assert seen.visible("#filter") == [] and len(seen.visible("#counts li")) == 6
    assert len(seen.visible("section h2")) == len(MANY)


def test_the_whole_text_takes_the_place_of_the_excerpt(look, many):
    seen = look(many)
    assert seen.visible("#c1-d1 .excerpt") and not seen.visible("#c1-d1 .whole p")
    seen.page.click("#c1-d1 .whole summary")
    assert not seen.visible("#c1-d1 .excerpt") and seen.visible("#c1-d1 .whole p")


@pytest.mark.parametrize("width", [320, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone(look, tmp_path, width, scheme):
    long = piece("x" * 300, text="x" * 300, title="y" * 300, metadata={"doi": "10.1000/" + "z" * 300}, id="i" * 300)
    write_report(tmp_path / "page.html", [result(long, text="w" * 300), *MANY], {"Models": "m" * 300})
    seen = look(tmp_path / "page.html", viewport={"width": width, "height": 700}, color_scheme=scheme)
    seen.page.locator("details").evaluate_all("all => all.forEach(one => one.open = true)")
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
    assert (scheme == "dark") == (
        seen.page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    )


@pytest.mark.parametrize("scripts", [True, False])
def test_it_prints(look, many, scripts):
    seen = look(many, java_script_enabled=scripts, color_scheme="dark")
    pdf = seen.page.pdf(format="A4")
    assert pdf.startswith(b"%PDF-") and len(re.findall(rb"/Type\s*/Page\b", pdf)) >= 3
    seen.page.emulate_media(media="print")
    # No colours are needed: dark mode prints on white, evidence is underlined.
    assert seen.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert "underline" in seen.page.locator("mark").first.evaluate("one => getComputedStyle(one).textDecorationLine")
    assert len(seen.visible("#counts li")) == 6 and seen.visible("#filter") == [] and seen.visible("summary") == []
    # Folded on the screen, and wanted on paper.
    assert len(seen.visible(".way table")) == 6
