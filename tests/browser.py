"""A real browser to look at pages with: Chromium, driven by playwright."""

from __future__ import annotations

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
