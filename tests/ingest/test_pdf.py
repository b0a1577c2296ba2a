"""The text of PDFs, and the pages that its sentences stand on."""

import json
from pathlib import Path

import pytest
from cli_runs import BM25, ccheck, works
from memory_store import MemoryStore
from read_files import documents, parts

from ccheck.core.citation import on_pages
from ccheck.core.errors import InvalidData
from ccheck.core.types import Document, Sentence
from ccheck.ingest import ingest
from ccheck.ingest.documents import clean, make_document
from ccheck.ingest.pdf import PAGE, downward, flowing, joined, notes_apart, placed, readable, without_running

pytest.importorskip("pypdfium2")
pytest.importorskip("reportlab")

from pdf_papers import LAYOUTS, Layout, sentence, write_paper


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_sentence_is_whole_and_has_its_pages(tmp_path: Path, name: str) -> None:
    layouts = [Layout(**LAYOUTS[name]) for _ in range(3)]
    for seed, layout in enumerate(layouts):
        write_paper(tmp_path / f"{seed}.pdf", layout, 200, seed)
    over = 0
    for layout, paper in zip(layouts, documents(tmp_path), strict=True):
        assert paper.title == layout.title and len(paper.pages) == paper.metadata["page_count"] > 3
        for number, pages in layout.pages.items():
            said = layout.sentence(number)
            start = paper.text.index(said)
            one = Sentence(said, "text", start, start + len(said), 1.0).on_pages_of(paper)
            assert (one.page, one.last_page or one.page) == pages, number
            over += one.last_page is not None
    assert over > 3


@pytest.mark.parametrize(
    ("pages", "text"),
    [
        (["Seas rise by twenty centi-", "metres a year."], "Seas rise by twenty centi|metres a year."),
        (["State-of-the-art and state-of-", "the-art."], "State-of-the-art and state-of-|the-art."),
        (["Seas rise", "because ice melts."], "Seas rise |because ice melts."),
        (["Seas rise.", "because."], "Seas rise.\n\n|because."),
        (["A line of the usual length\nand one more that is as long\nA short one", "World Bank."],
         "A line of the usual length and one more that is as long A short one\n\n|World Bank."),
        (["A line of the usual length\nas was shown by people of the", "World Bank."],
         "A line of the usual length as was shown by people of the |World Bank."),
        (["Seas rise", "Introduction\nIce melts."], "Seas rise\n\n|Introduction\nIce melts."),
        (["Seas rise", "", "because."], "Seas rise| |because."),
        (["Seas rise.", ""], "Seas rise.|"),
    ],
)  # fmt: skip
def test_what_goes_on_after_a_page_is_one_sentence(pages: list[str], text: str) -> None:
    assert flowing(joined(pages)).replace(PAGE, "|") == text


def test_where_pages_begin_in_a_text() -> None:
    assert placed(f"Seas rise. {PAGE}Ice melts.{PAGE}", 3) == ("Seas rise. Ice melts.", [0, 11, 21])
    assert placed(f"Ice melts. {PAGE}{PAGE}Seas rise.", 4)[1] == [0, 0, 11, 11]  # one page came before this text
    # An accent that begins a page would join the letter that ends the one before.
    assert placed(f"e{PAGE}\u0301a", 2)[1] == [] and placed(f"e{PAGE}a", 2)[1] == [0, 1]


def test_running_lines_of_few_or_every_other_page() -> None:
    bodies = [f"Line {n * n} of many.\nMore of it.\nAnd more.\nThe end of {n * 7}." for n in range(9)]
    pages = [f"{'Tides' if n % 2 else 'A. Lopez'}\n{body}\n{n + 40}" for n, body in enumerate(bodies)]
    left = "\n".join(without_running(pages))
    assert left.count("Tides") == 0 and left.count("A. Lopez") == 1  # on the first page
    assert not any(f"\n{n + 40}" in left for n in range(9)) and all(body in left for body in bodies)
    assert without_running(pages[:2]) == pages[:2]
    # PDFium gives a header that is drawn after the text at its end, also on the first page.
    bodies = [f"Line {n * n} of many.\nAnd {n * 7 + 1} more." for n in range(3)]
    drawn = [f"{body}\nTides\n{number}" for body, number in zip(bodies, ("viii", "ix", "x"), strict=True)]
    assert [page.strip() for page in without_running(drawn)] == bodies
    mixed = [f"{body}\n{end}" for body, end in zip(bodies, ("mix", "mix", "v"), strict=True)]
    assert without_running(mixed) == mixed
    # Lines that only look alike stay.
    alike = [f"Title\nText.\nIn year {1990 + n * n} we saw {n * 7} storms.\n" for n in range(6)]
    assert "\n".join(without_running(alike)).count("storms") == 6
    inside = ["The end.\nmore\nThe end.\nx\ny\nThe end."] * 6
    assert "\n".join(without_running(inside)).count("The end.") > 6


def test_notes_stand_before_the_sentence_that_goes_on_after_them() -> None:
    lines = ["A line of the text of a page. It goes", "on and ends here. Another one goes on", "1 A note.", "2 More."]
    page, heights = "\n".join(lines), [10.0, 10.0, 8.0, 8.0]
    notes = notes_apart(page, heights).split("\n\n")
    assert [one.strip() for one in notes] == [
        "A line of the text of a page. It goes\non and ends here.", "1 A note.\n2 More.", "Another one goes on"
    ]  # fmt: skip
    on = flowing(joined([notes_apart(page, heights), "after all."])).replace(PAGE, "")
    assert on.endswith("2 More.\n\nAnother one goes on after all.")
    assert notes_apart(page, [10.0] * 4) == notes_apart(page, [8.0] * 4) == page and notes_apart("", [0.0]) == ""


def test_lines_that_are_drawn_in_another_order_and_letters_that_a_font_does_not_name() -> None:
    assert downward([10, 30, 20, 40], [8] * 4) == [3, 1, 2, 0]
    # Columns, one rise, and lines side by side stay as they were drawn.
    for drawn in ([40, 30, 20, 40.5, 30, 20], [40, 30, 20, 10, 50], [10, 30, 20, 40, 38]):
        assert list(downward(drawn, [8] * len(drawn))) == list(range(len(drawn)))
    assert readable("A coe\x1ecient, the \x1crst, o\x1b 2\x153 months \x16 so") == (
        "A coefficient, the first, off 2\N{EN DASH}3 months \N{EM DASH} so"
    )
    assert readable("+ \x1b = \x15 \x10") == "+ \x1b = \x15 \x10"


@pytest.mark.parametrize(
    ("content", "said"), [(b"", "the file is empty"), (b"Seas rise.", "no PDF. Get"), (b"%PDF-1.4 no", "or repair it")]
)
def test_a_file_that_is_no_pdf_says_what_it_is(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "a.pdf").write_bytes(content)
    _, (reject,) = parts(tmp_path / "a.pdf")
    assert said in reject.reason and ".)" not in reject.reason


def test_a_record_says_where_its_pages_begin() -> None:
    record = {"_id": "1", "text": "Seas rise. Ice melts.", "page_starts": [0, 11, 21]}
    made = make_document(record).document
    assert made.pages == (0, 11, 21) and "page_starts" not in made.metadata
    assert [made.page_at(offset) for offset in (0, 10, 11, 20)] == [1, 1, 2, 2]
    # They are those of this very text.
    assert make_document(record | {"text": " Seas rise. Ice melts."}).document.pages == ()
    for wrong in ([1, 2], [0, 11, 5], [0, 99], ["0"], [0, True], "0", [0.0]):
        with pytest.raises(InvalidData, match="page_starts must be offsets"):
            make_document(record | {"page_starts": wrong})
    one = Sentence("Ice melts.", "text", 11, 21, 1.0)
    assert one.on_pages_of(Document("1", "", made.text)) == one
    # Signs alone are on no page: where a sentence's letters end, it ends.
    assert Sentence("rise. I", "text", 5, 12, 1.0).on_pages_of(made).last_page == 2
    over = Document("1", "", "Seas rise (!) now.", pages=(0, 10))
    assert Sentence("Seas rise (!)", "text", 0, 13, 1.0).on_pages_of(over).last_page is None
    assert one.on_pages_of(made).to_dict()["page"] == 2 and "last_page" not in one.on_pages_of(made).to_dict()
    assert "page" not in one.to_dict()


def test_a_text_with_other_pages_is_stored_again(tmp_path: Path) -> None:
    file, store = tmp_path / "a.jsonl", MemoryStore()
    for pages, updated in (({}, 0), ({"page_starts": [0, 11]}, 1), ({"page_starts": [0, 11]}, 0)):
        file.write_text(json.dumps({"_id": "1", "text": "Seas rise. Ice melts.", **pages}))
        assert ingest([str(file)], store).updated == updated


def test_the_pages_of_sentences_are_said_together() -> None:
    def on(page: int | None, last: int | None = None) -> Sentence:
        return Sentence("x", "text", 0, 1, 1.0, None, page, last)

    assert [on_pages(*some) for some in ([], [on(None)], [on(3)], [on(3, 4)], [on(9), on(3), on(4), on(None)])] == [
        *("", "", "p. 3", "pp. 3\N{EN DASH}4", "pp. 3\N{EN DASH}4, 9")
    ]


def test_an_answer_says_on_which_page_it_stands(tmp_path: Path) -> None:
    layout = Layout(header="Tides", numbers=True)
    write_paper(tmp_path / "paper.pdf", layout, 150)
    store = tmp_path / "store"
    assert ccheck("ingest", tmp_path / "paper.pdf", "--store", store, "--no-dense").code == 0
    claim = sentence(140)
    ran = works("query", claim, "--store", store, *BM25, "--verdict", "none", "--json")
    (found,) = [one for one in ran.objects[0]["evidence"][0]["sentences"] if one["text"] == claim]
    assert (found["page"], found.get("last_page", found["page"])) == layout.pages[140] and found["page"] > 1
    said = f"p. {found['page']}"
    assert said in ccheck("query", claim, "--store", store, *BM25, "--verdict", "none").out
    for format_, wanted in (("bibtex", f"Quoted: {said} of the file"), ("csv", f",{said}"), ("md", f"{said})")):
        assert wanted in ccheck("query", claim, "--store", store, *BM25, "--verdict", "none", "--format", format_).out
    # What is exported is ingested again with its pages.
    assert ccheck("index", "export", tmp_path / "all.jsonl", "--store", store).code == 0
    (again,) = documents(tmp_path / "all.jsonl")
    assert len(again.pages) == again.metadata["page_count"] and again.text == clean(again.text)
