"""PDFs of several layouts, of sentences whose pages are known."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from reportlab.lib.pagesizes import A4
from reportlab.lib.pdfencrypt import StandardEncryption
from reportlab.pdfbase.cidfonts import UnicodeCIDFont
from reportlab.pdfbase.pdfmetrics import registerFont, stringWidth
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.pdfgen.canvas import Canvas

MARGIN, LEADING, SIZE, GAP = 70, 14, 10, 20
FONT, ACCENTS, CHINESE = "Times-Roman", "Vera", "STSong-Light"
GAUGES = "coastal harbour estuarine offshore sheltered equatorial subtropical continental".split()

LAYOUTS: dict[str, dict[str, Any]] = {
    "running head": {"header": "Journal of Tides 12 (2011)", "numbers": True},
    "two columns": {"columns": 2, "header": "Tides", "numbers": True, "cut": 2},
    "three columns, notes": {"columns": 3, "notes": True, "numbers": True},
    "cut words, cover": {"cut": 1, "cover": True},
    "scanned pages, drawn backwards": {"scans": True, "numbers": True, "order": "backwards"},
    "turned": {"rotate": 90, "header": "Section {s} of the tides"},
    "upside down": {"rotate": 180, "upside_down": True, "numbers": True},
    "lines that run up, line numbers": {"sideways": True, "line_numbers": True},
    "accents, cropped, unseen": {"font": ACCENTS, "crop": True, "unseen": True, "numbers": True},
    "encrypted, letter by letter": {"encrypted": True, "by_letter": True, "labels": True, "chinese": True},
}


@dataclass
class Layout:
    """How a paper is set. `cut`: every so manieth line end cuts a word."""

    columns: int = 1
    size: tuple[float, float] = A4
    font: str = FONT
    header: str = ""
    """`{n}` is the page's number, `{s}` that of a section of three pages."""
    numbers: bool = False
    notes: bool = False
    tables: bool = False
    """After every third paragraph, with a caption."""
    chinese: bool = False
    """A line of it after every fourth paragraph."""
    cited: bool = False
    """Small raised numbers after the full stop of every third sentence."""
    line_numbers: bool = False
    watermark: bool = False
    rotate: int = 0
    sideways: bool = False
    """Whether the lines of every third page run up it."""
    upside_down: bool = False
    """Whether its text is, in a page that a viewer shows turned."""
    crop: bool = False
    """Whether a line of the printer's stands outside the page that is shown."""
    cover: bool = False
    scans: bool = False
    """Whether every third page is an image."""
    unseen: bool = False
    """Text as a scan has it that was recognised."""
    by_letter: bool = False
    encrypted: bool = False
    labels: bool = False
    form: bool = False
    """Whether each page is a form that the page draws."""
    order: str = ""
    """In which lines are drawn: `across` columns, `backwards`, `shuffled`."""
    twice: int = 0
    """After so many sentences they begin again."""
    references: int = 0
    cut: int = 0
    title: str = "Rising seas along the coasts of the north"
    pages: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Filled in: the first and the last page of each sentence."""
    texts: list[str] = field(default_factory=list)
    """Filled in: the text of each page, as it is to be read, then what is on every page."""

    def sentence(self, number: int) -> str:
        one = sentence(number % self.twice if self.twice else number)
        return one.replace("Observation", "Ångström’s na\xefve finding") if self.font == ACCENTS else one


def sentence(number: int) -> str:
    place = GAUGES[number % len(GAUGES)]
    return f"Observation {number} says that the {place} gauges of region {number * 7} rose by {number * 3} millimetres."


class Piece(NamedTuple):
    x: float
    y: float
    text: str
    size: float = SIZE
    font: str = ""


def write_paper(path: Path, layout: Layout, count: int, seed: int = 0) -> None:
    """A paper of so many sentences, in paragraphs of a few."""
    draw = random.Random(seed)
    registerFont(TTFont(ACCENTS, "Vera.ttf"))
    registerFont(UnicodeCIDFont(CHINESE))
    width, height = layout.size
    rows = int((height - 2 * MARGIN) / LEADING) - (3 if layout.notes else 0)
    column_width = (width - 2 * MARGIN - GAP * (layout.columns - 1)) / layout.columns
    body: list[list[Piece]] = [[]]
    column, row = 0, 0

    def at(text: str, size: float = SIZE, font: str = "", x: float = 0, up: float = 0) -> None:
        left = MARGIN + column * (column_width + GAP)
        body[-1].append(Piece(left + x, height - MARGIN - row * LEADING + up, text, size, font))

    def room(lines: int) -> None:
        nonlocal column, row
        if row + lines > rows:
            column, row = column + 1, 0
            if column == layout.columns:
                column = 0
                body.append([])
                if layout.scans and len(body) % 3 == 2:
                    body.append([])

    if layout.title:
        at(layout.title, 16)
        row = 3
        if layout.cover:
            body.append([])
            row = 0
    for place, numbers in enumerate(_paragraphs(count, draw)):
        for line, owners in _lines(numbers, column_width, layout):
            room(1)
            plain, *cited = line.split("^")
            at(plain)
            x = stringWidth(plain, layout.font, SIZE)
            for one in cited:
                raised, after = one.partition(" ")[::2]
                at(raised, 6, x=x, up=4)
                at(after, x=x + 14)
                x += 14 + stringWidth(after, layout.font, SIZE)
            for number in owners:
                layout.pages[number] = layout.pages.get(number, (len(body), 0))[0], len(body)
            row += 1
        if layout.tables and place % 3 == 2:
            room(6)
            at(f"Table {place}. Rise of the gauges of part {place}, in millimetres.", 9)
            for record in range(3):
                row += 1
                for cell in range(3):
                    at(f"{place}.{record}{cell}", 8, x=cell * 40)
            row += 2
        if layout.chinese and place % 4 == 1:
            room(2)
            at("海平面上升。", font=CHINESE)
            row += 2
        row += 1
    for number in range(layout.references):
        room(1)
        at(f"{number + 1}. Lopez A, Meyer B. On gauge {number}. J Tides {number + 3}, {number * 9}.", 8)
        row += 1
    _written(path, layout, body, draw)


def _written(path: Path, layout: Layout, pages: list[list[Piece]], draw: random.Random) -> None:
    width, height = layout.size
    beyond = 50 if layout.crop else 0
    paper = (width + 2 * beyond, height + 2 * beyond)
    locked = StandardEncryption("", ownerPassword="owner", canPrint=0) if layout.encrypted else None
    canvas = Canvas(str(path), pagesize=paper, encrypt=locked)
    for number, pieces in enumerate(pages, 1):
        fixed = list(_every_page(layout, number))
        layout.texts.append("\n".join(one.text for one in (*pieces, *fixed)))
        if layout.order == "across":
            pieces = sorted(pieces, key=lambda one: -one.y)
        elif layout.order == "backwards":
            pieces = pieces[::-1]
        elif layout.order == "shuffled":
            draw.shuffle(pieces)
        if layout.labels:
            canvas.addPageLabel(
                number - 1, "ROMAN_LOWER" if number < 3 else "ARABIC", number if number < 3 else number - 2
            )
        canvas.setPageRotation(layout.rotate)
        if layout.crop:
            canvas.setCropBox((beyond, beyond, beyond + width, beyond + height))
        if layout.form:
            canvas.beginForm(f"page{number}")
        canvas.translate(beyond, beyond)
        if layout.sideways and number % 3 == 0:
            canvas.setPageSize((height, width))
            canvas.translate(height, 0)
            canvas.rotate(90)
        elif layout.sideways:
            canvas.setPageSize(paper)
        if layout.upside_down:
            canvas.rotate(180)
            canvas.translate(-width, -height)
        if not pieces or layout.unseen:
            canvas.setFillGray(0.9)
            canvas.rect(MARGIN, MARGIN, width - 2 * MARGIN, height - 2 * MARGIN, fill=1)
            canvas.setFillGray(0)
        for piece in (*pieces, *fixed):
            _set(canvas, piece, layout)
        if layout.watermark:
            canvas.saveState()
            canvas.rotate(45)
            canvas.setFont(FONT, 60)
            canvas.drawString(300, 0, "PREPRINT")
            canvas.restoreState()
        if layout.form:
            canvas.endForm()
            canvas.doForm(f"page{number}")
        canvas.showPage()
    canvas.save()


def _every_page(layout: Layout, page: int) -> Iterator[Piece]:
    width, height = layout.size
    if layout.header:
        yield Piece(MARGIN, height - 40, layout.header.format(n=page, s=page // 3))
    if layout.notes:
        yield Piece(MARGIN, MARGIN - 10, f"{page} A note at the foot of this page about how its data were made.", 7)
    if layout.numbers:
        yield Piece(width / 2, 30, str(page + 100))
    if layout.crop:
        yield Piece(0, -30, f"tides_{page}.indd  12.03.2011  18:0{page % 10}", 7)
    if layout.line_numbers:
        for row in range(int((height - 2 * MARGIN) / LEADING)):
            yield Piece(MARGIN - 30, height - MARGIN - row * LEADING, str(row + 1), 7)


def _set(canvas: Canvas, piece: Piece, layout: Layout) -> None:
    text = canvas.beginText(piece.x, piece.y)
    text.setFont(font := piece.font or layout.font, piece.size)
    if layout.unseen:
        text.setTextRenderMode(3)
    if layout.by_letter:
        x = piece.x
        for letter in piece.text:
            text.setTextOrigin(x, piece.y)
            text.textOut(letter)
            x += stringWidth(letter, font, piece.size)
    else:
        text.textOut(piece.text)
    canvas.drawText(text)


def _paragraphs(count: int, draw: random.Random) -> Iterator[range]:
    at = 0
    while at < count:
        end = min(count, at + draw.randint(2, 9))
        yield range(at, end)
        at = end


def _lines(numbers: range, width: float, layout: Layout) -> Iterator[tuple[str, set[int]]]:
    """The lines of a paragraph, each with the sentences that have words on it. `^` stands before what is raised."""
    words = [(word, number) for number in numbers for word in layout.sentence(number).split()]
    if layout.font == ACCENTS:
        words = [(word.replace("fi", "\ufb01"), number) for word, number in words]
    if layout.cited:
        words = [
            (f"{word}^{n % 50 + 1},{n % 50 + 2}" if word[-1] == "." and n % 3 == 2 else word, n) for word, n in words
        ]
    line: list[str] = []
    owners: set[int] = set()
    made = 0
    for place, (word, number) in enumerate(words):
        if line and stringWidth(" ".join([*line, word]), layout.font, SIZE) > width:
            made += 1
            if layout.cut and made % layout.cut == 0 and word.isalpha() and len(word) > 6:
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
