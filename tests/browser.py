"""A real browser to look at pages with: Chromium, driven by playwright."""

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from needs import absent

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    path = os.environ.get("CHROME_PATH") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        absent("browser", "no Chromium here: install one (Debian: apt-get install chromium), or set CHROME_PATH")
    with playwright.sync_playwright() as running:
        started = running.chromium.launch(executable_path=path)
        yield started
        started.close()


@pytest.fixture
def look(browser: Any) -> Iterator[Any]:
    """Opens pages of a context of their own, with what they `asked` for and their `complaints`: none at the end."""
    contexts, pages = [], []

    def open_(address: str, **context: Any) -> Any:
        contexts.append(browser.new_context(**context))
        contexts[-1].set_default_timeout(120_000)
        pages.append(page := contexts[-1].new_page())
        page.asked, page.complaints = [], []
        page.on("request", lambda request: page.asked.append(request.url))
        page.on("console", lambda message: page.complaints.append(message.text))
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.goto(address)
        return page

    yield open_
    for context in contexts:
        context.close()
    complaints = [one for page in pages for one in page.complaints]
    assert [one for one in complaints if "Failed to load resource" not in one] == []
