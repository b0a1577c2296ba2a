"""Pages of PDFs as images with sentences marked: in all layouts, and what can't be found, drawn or trusted."""

import asyncio
import base64
import hashlib
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from web_servers import KEYS, Web

from ccheck.core.errors import InvalidData, NotFound, StoreChanged, UsageError
from ccheck.core.types import Document
from ccheck.web import pages, pdf_pages
from ccheck.web.pdf_pages import marked_pages, spans_of
from ccheck.web.pdfs import pdf_of

pytest.importorskip("pypdfium2")
pytest.importorskip("reportlab")

import pypdfium2
from pdf_papers import LAYOUTS, Layout, sentence, write_paper
from PIL import Image
from read_files import documents
from reportlab.pdfbase.pdfmetrics import registerFont
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.pdfgen.canvas import Canvas

ENDLESS = """
def drawn(**asked):
    while True:
        pass
    yield
"""


@pytest.fixture
def endless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing never ends, and may take a tenth of a second."""
    (folder := tmp_path / "modules").mkdir()
    (folder / "endless_pages.py").write_text(ENDLESS)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setattr(pdf_pages, "FUNCTION", "endless_pages:drawn")
    monkeypatch.setattr(pdf_pages, "SECONDS", 0.1)


def letters(text: str) -> str:
    return "".join(filter(str.isalnum, text))


def span(paper: Document, text: str) -> tuple[int, int]:
    start = paper.text.index(text)
    return start, start + len(text)


def under(file: Path, page: int, boxes: list[list[float]]) -> str:
    """The letters of what PDFium says stands in boxes of a page."""
    with pypdfium2.PdfDocument(file) as opened:
        text = opened[page - 1].get_textpage()
        return letters("".join(text.get_text_bounded(*(side + d for side, d in zip(box, (-1, -1, 1, 1), strict=True)))
                               for box in boxes))  # fmt: skip


def lines(file: Path, *written: str, **given: Any) -> None:
    canvas = Canvas(str(file), pagesize=given.pop("size", (500, 300)), **given)
    for page in written:
        for row, line in enumerate(page.split("\n")):
            canvas.drawString(40, 250 - 20 * row, line)
        canvas.showPage()
    canvas.save()


def image(page: dict[str, Any]) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(page["png"])), formats=["PNG"]).convert("RGB")


def rows_with(colour: tuple[int, ...], page: dict[str, Any]) -> list[int]:
    """The rows of the image that have a pixel of the colour."""
    found = image(page)
    return [y for y in range(found.height) if bytes(colour) in found.crop((0, y, found.width, y + 1)).tobytes()]


@pytest.mark.parametrize("name", [name for name in LAYOUTS if "by letter" not in name])  # a box for each
def test_what_is_marked_is_the_sentence(tmp_path: Path, name: str) -> None:
    layout, file = Layout(**LAYOUTS[name]), tmp_path / "a.pdf"
    write_paper(file, layout, 200)
    (paper,) = documents(tmp_path)
    over = next(number for number, (first, last) in layout.pages.items() if first != last)
    numbers = range(over - 12, over + 7)
    pages = marked_pages(file, paper, [span(paper, layout.sentence(number)) for number in numbers])
    found = dict.fromkeys(numbers, "")
    for page in pages:
        for one in page["sentences"]:
            (number,) = (number for number in numbers if span(paper, layout.sentence(number))[0] <= one["start"] < span(
                paper, layout.sentence(number))[1])  # fmt: skip
            assert page["page"] in layout.pages[number]
            found[number] += under(file, page["page"], one["boxes"])
            assert len(one["boxes"]) <= 4
    assert found == {number: letters(layout.sentence(number)) for number in numbers}
    assert [page["of"] for page in pages] == [len(paper.pages)] * len(pages) and len(pages) >= 2


def test_the_image_has_the_colour_of_marks_where_the_boxes_are(tmp_path: Path) -> None:
    lines(tmp_path / "a.pdf", "Seas rise by twenty centimetres.\nIce melts in the summer of each year.\nNothing else.")
    (paper,) = documents(tmp_path)
    (page,) = marked_pages(tmp_path / "a.pdf", paper, [span(paper, "Ice melts in the summer of each year.")])
    yellow = rows_with(pdf_pages.MARK, page)
    assert image(page).size == (1000, 600) and rows_with(pdf_pages.LINE, page)
    ((left, bottom, right, top),) = page["sentences"][0]["boxes"]
    assert 0 <= 2 * (300 - top) - yellow[0] <= 6 and 0 <= yellow[-1] - 2 * (300 - bottom) <= 8
    assert 39 < left < 42 and 200 < right < 260 and 225 < bottom < 231 < 236 < top < 241


@pytest.mark.parametrize("turn", [90, 270])
def test_lines_that_run_up_a_page_are_shown_upright(tmp_path: Path, turn: int) -> None:
    canvas = Canvas(str(tmp_path / "a.pdf"), pagesize=(300, 500))
    canvas.rotate(turn)
    canvas.translate(*((0, -300) if turn == 90 else (-500, 0)))
    canvas.drawString(40, 250, "Seas rise by twenty centimetres.")
    canvas.drawString(40, 230, "Ice melts in the summer of each year.")
    canvas.save()
    (paper,) = documents(tmp_path)
    (page,) = marked_pages(tmp_path / "a.pdf", paper, [span(paper, "Ice melts in the summer of each year.")])
    marked = rows_with(pdf_pages.MARK, page)
    assert image(page).size == (1000, 600)
    assert 110 < marked[0] < 130 and 138 < marked[-1] < 155
    ((left, bottom, right, top),) = page["sentences"][0]["boxes"]
    assert right - left < 13 and 150 < top - bottom < 230


def test_ligatures_and_words_that_stand_there_twice(tmp_path: Path) -> None:
    registerFont(TTFont("Vera", "Vera.ttf"))
    lines(
        tmp_path / "a.pdf",
        "The \ufb01rst e\ufb03cient \ufb02ow is na\xefve and de-\n"
        "\ufb01nite. It rises here. It melts now. It rises here. Ends.",
        initialFontName="Vera",
    )
    for same in ("nai\u0308ve \ufb01n-\no\x1ece", "na\xefve finoffice"):
        assert pdf_pages._letters(same)[0] == "naivefinoffice"
    (paper,) = documents(tmp_path)
    quoted = paper.text[: paper.text.index(" It rises")]
    again = paper.text.index("It rises", paper.text.index("It melts"))
    pages = marked_pages(tmp_path / "a.pdf", paper, [span(paper, quoted), (again, again + 14)])
    first, second = (one["boxes"] for one in pages[0]["sentences"])
    assert len(first) == 2 and "owisna" in under(tmp_path / "a.pdf", 1, first)
    melts = marked_pages(tmp_path / "a.pdf", paper, [span(paper, "It melts now.")])[0]["sentences"][0]["boxes"]
    assert second[0][0] > melts[0][2] > first[1][2]


def test_a_sentence_that_is_not_there_is_not_marked(tmp_path: Path) -> None:
    lines(tmp_path / "a.pdf", "Seas rise by twenty centimetres.", "A is it.")
    (paper,) = documents(tmp_path)
    other = replace(paper, text="Glaciers grow in the north. It is.", pages=(0, 28))
    (page,) = marked_pages(tmp_path / "a.pdf", other, [(0, 27)])
    assert page["sentences"][0]["boxes"] == [] and not rows_with(pdf_pages.MARK, page)
    (page,) = marked_pages(tmp_path / "a.pdf", other, [(26, 27)])  # its full stop
    assert page["sentences"] == [{"start": 26, "end": 27, "text": ".", "boxes": []}]
    # A few letters that are there by chance are not the sentence.
    (page,) = marked_pages(tmp_path / "a.pdf", other, [(28, 30)])
    assert page["sentences"][0]["boxes"] == []


def test_what_an_address_names_and_that_a_compressed_pdf_is_not_shown(tmp_path: Path) -> None:
    paper = Document("a", "", "Seas rise. " * 1000, {"file_sha256": "0"})
    assert spans_of(["0-10", "11-21"], paper) == [(0, 10), (11, 21)]
    for wrong in ([], ["0-"], ["5-5"], ["9-5"], ["0-11001"], ["0-5001"], ["-1-5"], ["0-5"] * 21, ["0-5", "x"], ["٠-٥"]):
        with pytest.raises(UsageError, match="names no sentence"):
            spans_of(wrong, paper)
    with pytest.raises(NotFound, match="not known"):
        marked_pages(tmp_path / "a.pdf", paper, [(0, 10)])
    for name, there in (("a.pdf", True), ("a.pdf.gz", False)):
        (tmp_path / name).touch()
        assert (pdf_of(tmp_path, Document(name, "", "Seas rise.", {"file_sha256": "0"})) is not None) == there


def test_a_file_that_is_broken_huge_slow_or_another(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    def asked(content: bytes) -> list[dict[str, Any]]:
        (file := tmp_path / "a.pdf").write_bytes(content)
        paper = Document("a", "", "Seas rise.", {"file_sha256": hashlib.sha256(content).hexdigest()}, pages=(0,))
        return marked_pages(file, paper, [(0, 10)])

    with pytest.raises(InvalidData, match="can't be shown"):
        asked(b"%PDF-1.4 no")
    lines(tmp_path / "b.pdf", "Seas rise.", size=(14_000_000, 3))
    (page,) = asked((tmp_path / "b.pdf").read_bytes())
    assert image(page).size == (1600, 1)
    with pytest.raises(StoreChanged):
        paper = Document("a", "", "Seas rise.", {"file_sha256": "0"}, pages=(0,))
        marked_pages(tmp_path / "a.pdf", paper, [(0, 10)])
    request.getfixturevalue("endless")
    with pytest.raises(InvalidData, match="takes too long"):
        asked((tmp_path / "b.pdf").read_bytes())


@pytest.fixture
def shown(serve_web: Any, tmp_path: Path) -> tuple[Web, str]:
    """A server with a paper of two columns, and the address of its page with a sentence that goes over its end."""
    (folder := tmp_path / "pdfs").mkdir()
    write_paper(folder / "sea paper.pdf", layout := Layout(columns=2), 120)
    web = serve_web(keys=KEYS, papers=None, pdfs=folder)
    web.web.service.checker.ingest(str(folder / "sea paper.pdf"), dense=False)
    web.browser.headers["Authorization"] = "Bearer reader-0123456789"
    paper = web.web.service.document("pdfs/sea paper.pdf")
    start, end = span(paper, sentence(next(one for one, (first, last) in layout.pages.items() if first != last)))
    return web, f"/pdf-pages/pdfs/sea%20paper.pdf?at={start}-{end}"


def test_the_page_of_a_sentence_is_html_and_json(shown: Any) -> None:
    web, address = shown
    page = web.page(address)
    assert [one.words for one in page.all("h2")] == ["Page 1 of 3", "Page 2 of 3"]
    quoted = page.one("blockquote").words
    images = [one.attributes for one in page.all("img")]
    said = [one["alt"].removeprefix(f"Page {number} of the PDF, on which this is marked: ").strip() for number, one in
            enumerate(images, 1)]  # fmt: skip
    assert " ".join(said) == quoted and all(one["src"].startswith("data:image/png;base64,iVBOR") for one in images)
    assert "/pdf/pdfs/sea%20paper.pdf#page=1" in [one.attributes["href"] for one in page.all("a")]
    found = web.browser.get(address.replace("?", ".json?")).json()
    assert found["error"] is None and [one["page"] for one in found["pages"]] == [1, 2]
    assert all(one["sentences"][0]["boxes"] and "png" not in one for one in found["pages"])


def test_who_may_see_a_page_and_when(shown, monkeypatch, request):
    web, address = shown
    for key, status in (("checker-012345678", 403), ("nobody", 401)):
        assert web.browser.get(address, headers={"Authorization": f"Bearer {key}"}).status_code == status
    for wrong in ("/pdf-pages/pdfs/sea%20paper.pdf", "/pdf-pages/pdfs/sea%20paper.pdf?at=0-9999999"):
        assert web.browser.get(wrong).status_code == 400
    assert web.browser.get("/pdf-pages/..%2fa.pdf?at=0-1").status_code == 404
    monkeypatch.setattr(pages, "PATIENCE", 0.1)
    monkeypatch.setattr(web.web, "drawing", asyncio.Semaphore(0))
    busy = web.browser.get(address)
    assert busy.status_code == 503 and "Open the PDF at this page" in busy.text and "some seconds" in busy.text
    monkeypatch.setattr(web.web, "drawing", asyncio.Semaphore(1))
    request.getfixturevalue("endless")
    for _ in range(2):  # the second finds that the first has left its place
        slow = web.browser.get(address)
        assert slow.status_code == 422 and "takes too long" in slow.text and "Open the PDF at this page" in slow.text
    file = web.web.served.pdfs / "sea paper.pdf"
    file.write_bytes(file.read_bytes() + b"%")
    monkeypatch.setattr(pdf_pages, "FUNCTION", "ccheck.web.pdf_pages:drawn")
    monkeypatch.setattr(pdf_pages, "SECONDS", 60.0)
    assert web.browser.get(address).status_code == 409
