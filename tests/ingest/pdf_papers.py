"""PDFs of several layouts, of sentences whose pages are known."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reportlab.lib.pagesizes import A4
from reportlab.pdfbase.pdfmetrics import stringWidth
from reportlab.pdfgen.canvas import Canvas

WIDTH, HEIGHT = A4
MARGIN, LEADING, SIZE = 70, 14, 10
FONT = "Times-Roman"
GAUGES = "coastal harbour estuarine offshore sheltered equatorial subtropical continental".split()

LAYOUTS: dict[str, dict[str, Any]] = {
    "one column": {},
    "running head": {"header": "Journal of Tides 12 (2011)", "numbers": True},
    "two columns": {"columns": 2, "header": "Tides", "numbers": True, "cut": 2},
    "three columns": {"columns": 3},
    "cut words": {"cut": 1},
    "cover": {"cover": True},
    "scanned pages": {"scans": True, "numbers": True},
    "turned": {"rotate": 90},
    "upside down": {"rotate": 180, "upside_down": True, "numbers": True},
    "footnotes": {"footnotes": True, "numbers": True},
}


@dataclass
class Layout:
    """How a paper is set. `cut`: every so manieth line end cuts a word."""

    columns: int = 1
    header: str = ""
    numbers: bool = False
    footnotes: bool = False
    rotate: int = 0
    upside_down: bool = False
    """Whether its text is, in a page that a viewer shows turned."""
    cover: bool = False
    scans: bool = False
    """Whether every third page is an image."""
    cut: int = 0
    title: str = "Rising seas along the coasts of the north"
    pages: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Filled in: the first and the last page of each sentence."""


def sentence(number: int) -> str:
    place = GAUGES[number % len(GAUGES)]
    return f"Observation {number} says that the {place} gauges of region {number * 7} rose by {number * 3} millimetres."


def write_paper(path: Path, layout: Layout, count: int, seed: int = 0) -> None:
    """A paper of so many sentences, in paragraphs of a few."""
    draw = random.Random(seed)
    canvas = Canvas(str(path), pagesize=A4[::-1] if layout.rotate % 180 else A4)
    gap = 20
    width = (WIDTH - 2 * MARGIN - gap * (layout.columns - 1)) / layout.columns
    rows = int((HEIGHT - 2 * MARGIN) / LEADING) - (3 if layout.footnotes else 0)
    page, column, row = 0, 0, rows

    def begin() -> None:
        nonlocal page, column, row
        if page:
            end()
            canvas.showPage()
        page, column, row = page + 1, 0, 0
        canvas.setPageRotation(layout.rotate)
        if layout.upside_down:
            canvas.rotate(180)
            canvas.translate(-WIDTH, -HEIGHT)
        canvas.setFont(FONT, SIZE)
        if layout.header:
            canvas.drawString(MARGIN, HEIGHT - 40, layout.header)

    def end() -> None:
        if layout.footnotes:
            canvas.setFont(FONT, 7)
            canvas.drawString(
                MARGIN, MARGIN - 10, f"{page} A note at the foot of this page about how its data were made."
            )
            canvas.setFont(FONT, SIZE)
        if layout.numbers:
            canvas.drawString(WIDTH / 2, 30, str(page + 100))

    begin()
    if layout.cover:
        canvas.setFont(FONT, 20)
        canvas.drawString(MARGIN, HEIGHT - 200, layout.title)
        begin()
    elif layout.title:
        canvas.setFont(FONT, 16)
        canvas.drawString(MARGIN, HEIGHT - MARGIN, layout.title)
        canvas.setFont(FONT, SIZE)
        row = 3
    for numbers in _paragraphs(count, draw):
        for line, owners in _lines(numbers, width, layout.cut):
            if row >= rows:
                column, row = column + 1, 0
                if column == layout.columns:
                    begin()
                    if layout.scans and page % 3 == 0:
                        canvas.rect(MARGIN, MARGIN, 200, 200, fill=1)
                        begin()
            x = MARGIN + column * (width + gap)
            canvas.drawString(x, HEIGHT - MARGIN - row * LEADING, line)
            for number in owners:
                layout.pages[number] = layout.pages.get(number, (page, page))[0], page
            row += 1
        row += 1
    end()
    canvas.save()


def _paragraphs(count: int, draw: random.Random) -> Iterator[range]:
    at = 0
    while at < count:
        end = min(count, at + draw.randint(2, 9))
        yield range(at, end)
        at = end


def _lines(numbers: range, width: float, cut: int) -> Iterator[tuple[str, set[int]]]:
    """The lines of a paragraph, each with the sentences that have words on it."""
    words = [(word, number) for number in numbers for word in sentence(number).split()]
    line: list[str] = []
    owners: set[int] = set()
    made = 0
    for place, (word, number) in enumerate(words):
        if line and stringWidth(" ".join([*line, word]), FONT, SIZE) > width:
            made += 1
            if cut and made % cut == 0 and word.isalpha() and len(word) > 6:
                half = len(word) // 2
                yield " ".join([*line, f"{word[:half]}-"]), {*owners, number}
                word = word[half:]
            else:
                yield " ".join(line), owners
            line, owners = [], set()
        line.append(word)
        owners.add(number)
        if place == len(words) - 1:
            yield " ".join(line), owners
