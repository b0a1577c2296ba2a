"""Pages of a PDF as images with sentences marked. PDFium reads the file in another process (`core/child.py`)."""

from __future__ import annotations

import base64
import os
import re
import struct
import unicodedata
import zlib
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ..core.child import Child, Ended
from ..core.errors import InvalidData, NotFound, StoreChanged, UsageError, require
from ..core.types import Document
from ..ingest.documents import FILE_HASH
from ..ingest.pdf import lines_of, spelled, upright
from .pdfs import CHANGED, unchanged

if TYPE_CHECKING:
    import numpy
    from pypdfium2 import PdfPage, PdfTextPage

FUNCTION = "ccheck.web.pdf_pages:drawn"
SECONDS = 15.0
"""What one page may take."""
MOST_PAGES, MOST_MARKED, MOST_CHARS = 4, 20, 5_000
"""Pages in one answer; sentences marked on them, and characters of one."""
SCALE, MOST_SIDE = 2.0, 1_600
"""Pixels of a point, and of a page's longer side, if that would be larger."""
CONTEXT, NEAR, ENOUGH = 40, 80, 20
"""Letters before and after a sentence that tell its place from others; characters that have as many; letters that must
agree, the sentence's own included."""
MARK, LINE, GAP = (255, 232, 120), (120, 80, 0), 40
"""The colours behind and below marked words; pixels between those of one line, at most."""
Box: TypeAlias = tuple[float, float, float, float]
"""Left, bottom, right and top, in points of the PDF's own coordinates."""
Part: TypeAlias = tuple[str, str, str]
"""What comes before a part of the text, the part, and what comes after it."""


def spans_of(given: Sequence[str], document: Document) -> list[tuple[int, int]]:
    """The sentences that an address names, as `START-END`: offsets in the document's text. Raises UsageError."""
    spans = [tuple(map(int, one.split("-"))) for one in given if re.fullmatch("[0-9]{1,9}-[0-9]{1,9}", one)]
    right = all(start < end <= min(len(document.text), start + MOST_CHARS) for start, end in spans)
    if not spans or not right or len(spans) != len(given) or len(spans) > MOST_MARKED:
        raise UsageError("the address names no sentence of this paper. Follow a link from its evidence")
    return spans  # type: ignore[return-value]


def marked_pages(path: Path, document: Document, spans: Sequence[tuple[int, int]]) -> list[dict[str, Any]]:
    """The pages on which sentences stand, each with its `png` in Base64, and for each sentence its `boxes`.

    Raises NotFound if the pages are not known, StoreChanged if the file is not the one that was read, InvalidData if it
    can't be drawn within limits, and MissingExtra without PDFium.
    """
    marked: dict[int, list[dict[str, Any]]] = {}
    text, pages = document.text, document.pages
    for start, end in spans:
        first, last = document.page_at(start), document.page_at(end - 1)
        if first is None or last is None:
            raise NotFound("the pages of this paper are not known")
        for number in range(first, last + 1):
            begin, stop = max(start, pages[number - 1]), min([end, *pages[number : number + 1]])
            if number == first or any(map(str.isalnum, text[begin:stop])):
                marked.setdefault(number, []).append({"start": begin, "end": stop, "text": text[begin:stop]})
    require("showing pages of PDFs", "documents", "pypdfium2")
    shown = sorted(marked.items())[:MOST_PAGES]

    def around(one: dict[str, Any]) -> Part:
        start, end = one["start"], one["end"]
        return text[max(start - NEAR, 0) : start], text[start:end], text[end : end + NEAR]

    asked = [(number, list(map(around, parts))) for number, parts in shown]
    try:
        with Child(FUNCTION, SECONDS) as child:
            answers = list(child.ask(0, file=os.fspath(path), file_hash=document.metadata[FILE_HASH], pages=asked))
    except Ended as error:
        raise InvalidData(f"the page can't be shown ({error})") from error
    if not answers:
        raise StoreChanged(CHANGED)
    for (number, parts), answer in zip(shown, answers, strict=True):
        boxes = answer.pop("boxes")
        answer |= {"page": number, "sentences": [one | {"boxes": some} for one, some in zip(parts, boxes, strict=True)]}
    return answers


# -- in the other process


def drawn(*, file: str, file_hash: str, pages: Sequence[tuple[int, Sequence[Part]]]) -> Iterator[dict[str, Any]]:
    """Pages of a file, each with the parts of its text to mark in it. Nothing if the file has another hash."""
    import pypdfium2

    content = unchanged(Path(file), file_hash)
    if content is None:
        return
    with pypdfium2.PdfDocument(content) as document:
        for number, parts in pages:
            page = document[number - 1]
            text = upright(page)
            raw = text.get_text_range()
            letters, places = text_of(text)
            units = [0, *accumulate(1 + (one > "\uffff") for one in raw)]  # as PDFium counts: UTF-16's
            boxes = []
            for part in parts:
                start, end = _found(letters, *(_letters(one)[0] for one in part))
                runs = _runs(raw, places[start:end])
                boxes.append([box for one, other in runs for box in _boxes(text, units[one], units[other])])
            width, height = page.get_size()
            png = base64.b64encode(_png(_marked(page, [box for some in boxes for box in some]))).decode()
            yield {"of": len(document), "width": width, "height": height, "boxes": boxes, "png": png}


def text_of(page: PdfTextPage) -> tuple[str, list[int]]:
    """The letters of a page as it is read, see `_letters`, and the place of each in the text that PDFium gives."""
    lines = lines_of(page)
    own = [place for one in lines for place in range(one.start, one.start + len(one.text) + 1)]
    letters, places = _letters("\n".join(one.text for one in lines))
    return letters, [own[place] for place in places]


def _runs(raw: str, places: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The first and last place of each run of letters that follow each other in PDFium's text."""
    first = 0
    for at in range(1, len(places) + 1):
        before, after = places[at - 1], places[at] if at < len(places) else -1
        if after < before or any(map(str.isalnum, raw[before + 1 : after])):
            yield places[first], before
            first = at


def _letters(text: str) -> tuple[str, list[int]]:
    """The letters and digits of a text as they compare, and the place of each: without hyphens, ligatures, accents."""
    kept = [
        (letter, place)
        for place, one in enumerate(spelled(text))
        for letter in unicodedata.normalize("NFKD", one).casefold()
        if letter.isalnum()
    ]
    return "".join(letter for letter, _ in kept), [place for _, place in kept]


def _found(page: str, before: str, part: str, after: str) -> tuple[int, int]:
    """Where a part of the text stands among a page's letters: where most agrees around it. An empty span if nowhere."""
    from more_itertools import longest_common_prefix

    before, after = before[-CONTEXT:], after[:CONTEXT]

    def agrees(start: int) -> int:
        end = start + len(part)
        around = (page[max(start - CONTEXT, 0) : start][::-1], before[::-1]), (page[end : end + CONTEXT], after)
        return sum(len(list(longest_common_prefix(pair))) for pair in around)

    starts = [found.start() for found in re.finditer(f"(?={re.escape(part)})", page)] if part else []
    best = max(starts, key=agrees, default=0)
    enough = min(ENOUGH, len(before) + len(part) + len(after))
    return (best, best + len(part)) if starts and agrees(best) + len(part) >= enough else (0, 0)


def _boxes(page: PdfTextPage, first: int, last: int) -> list[Box]:
    """The boxes of a page's text from one character to another, which PDFium counts as UTF-16 does."""
    from pypdfium2.raw import FPDFText_GetCharIndexFromTextIndex as index

    start, end = index(page, first), index(page, last)
    rects = map(page.get_rect, range(page.count_rects(start, end - start + 1) if 0 <= start <= end else 0))
    return [(round(a, 2), round(b, 2), round(c, 2), round(d, 2)) for a, b, c, d in rects]


def _marked(page: PdfPage, boxes: Sequence[Box]) -> numpy.ndarray:
    """The page's pixels (height, width, 3), with what is in the boxes on the colour of `MARK` and underlined."""
    import numpy

    bitmap = page.render(scale=min(SCALE, MOST_SIDE / max(page.get_size())), rev_byteorder=True, may_draw_forms=False)
    pixels: numpy.ndarray = bitmap.to_numpy()
    on = bitmap.get_posconv(page)
    marks: list[tuple[int, int, int, int]] = []
    for left, bottom, right, top in boxes:
        (x0, x1), (y0, y1) = map(sorted, zip(on.to_bitmap(left, bottom), on.to_bitmap(right, top), strict=True))
        if (
            marks
            and 0 < x0 - marks[-1][0] < marks[-1][2] - marks[-1][0] + GAP
            and y0 < marks[-1][3]
            and marks[-1][1] < y1
        ):
            x0, above, _, below = marks.pop()  # the same line in another font
            y0, y1 = min(y0, above), max(y1, below)
        marks.append((x0, y0, x1, y1))
    for x0, y0, x1, y1 in marks:
        part = pixels[max(y0 - 3, 0) : max(y1 + 5, 0), max(x0 - 2, 0) : max(x1 + 3, 0)]
        numpy.minimum(part, numpy.array(MARK, numpy.uint8), out=part)
        part[-2:] = LINE
    return pixels


def _png(pixels: numpy.ndarray) -> bytes:
    """An image of 8-bit red, green and blue (height, width, 3) as a PNG file."""
    height, width = pixels.shape[:2]
    rows = b"".join(b"\0%b" % row.tobytes() for row in pixels)  # each begins with the name of its filter: none
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = (b"IHDR" + head, b"IDAT" + zlib.compress(rows), b"IEND")
    framed = (struct.pack(">I", len(one) - 4) + one + struct.pack(">I", zlib.crc32(one)) for one in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)
