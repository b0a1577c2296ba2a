"""PDF files, by PDFium: their text, and where in it pages begin. Only the other process of `apart.py` reads them."""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from ctypes import byref, c_double
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core.text import TEXT_CHARS, whole_number
from .documents import FILE_HASH, PAGE_STARTS, clean
from .office import DOI, NOBODY, one_document, people
from .records import Record, Reject
from .sources import Source

if TYPE_CHECKING:
    from pypdfium2 import PdfPage, PdfTextPage

TITLE_WITHIN = 2_000
RUNNING = 3
PAGE = "\ufdd0"
"""Stands where a page begins while a text is put together: a character that Unicode gives no meaning."""
_CUT = "\ufffe"
"""PDFium's sign for a hyphen at the end of a line, which it joins with the next one."""
_SAMPLED = 50
"""Characters of a page whose angle is looked at."""
_CORK = dict(zip(map(chr, (0x15, 0x16, *range(0x1B, 0x20))), "– — ff fi fl ffi ffl".split(), strict=True))
"""What control characters stand for in LaTeX's fonts of the Cork encoding, which often tell it to no reader."""
_OF_CORK = re.compile(r"(?<=[^\W_])[\x15\x1b-\x1f]|[\x1b-\x1f](?=[a-z])|(?<=\s)\x16(?=\s)")
_ABSTRACT = re.compile(r"^\s*(?:a\s?b\s?s\s?t\s?r\s?a\s?c\s?t|summary)\b\s*[:.—-]?\s*", re.IGNORECASE | re.MULTILINE)
_HEADING = re.compile(
    r"(?=.{1,39}$)(?:\d+\.?\s+)?(?:a\s?b\s?s\s?t\s?r\s?a\s?c\s?t|summary|introduction|methods?|results?|references|"
    r"materials and methods|discussion|conclusions?|acknowledge?ments?|keywords)\s*[:.]?",
    re.IGNORECASE,
)
"""A line that is a heading by itself."""
_NOT_TITLES = re.compile(
    r"\.(?:docx?|tex|dvi|indd|pdf|qxd)\b|^(?:untitled|microsoft word|pii:?|doi:?)|^\W*$", re.IGNORECASE
)
_SENTENCE_END = re.compile(r"[.!?:;][\"'”’)\]]*\s*$")
_ROMAN = re.compile(r"(?=.)c{0,3}(?:xc|xl|l?x{0,3})(?:ix|iv|v?i{0,3})")
_LONG = 20
"""Characters of a line whose letters say how large those of the page's text are."""
_SMALL = 0.92
"""Letters of less than this share of that height are those of notes."""
_FULL_LINE = 0.8
"""A last line of at least this share of a page's usual length goes on, if nothing ends its sentence."""


def read_pdf(source: Source, on_bytes: Callable[[int], None]) -> Iterator[Record | Reject]:
    import pypdfium2
    from pypdfium2.raw import FPDF_ERR_FORMAT, FPDF_ERR_PASSWORD, FPDFText_GetUnicode

    assert source.path is not None
    try:
        opened = pypdfium2.PdfDocument(source.path)
    except pypdfium2.PdfiumError as error:
        why = f"the file can't be read as a PDF ({str(error).rstrip('.')}). Get it again, or repair it: qpdf IN OUT"
        if error.err_code == FPDF_ERR_FORMAT and not _says_pdf(source.path):
            why = "the file is empty" if not source.size else "the file is no PDF"
            why += ". Get it again, or give it the ending of what it is, such as .txt or .html"
        if error.err_code == FPDF_ERR_PASSWORD:
            why = "the PDF needs a password. Save it without one first: qpdf --decrypt --password=… IN OUT"
        yield Reject(source.name, 1, why)
        return
    with opened as document:
        pages: list[str] = []
        heights: list[list[float]] = []
        letters: list[tuple[float, str]] = []
        usual = Counter[float]()
        for number in range(len(document)):
            text = upright(document[number])
            found = lines_of(text)
            said = (readable(one.text.replace(PAGE, "").replace("\n", " ")) + "-" * one.cut for one in found)
            pages.append("\n".join(said))
            heights.append([one.height for one in found])
            for one in found:
                usual[one.height] += len(one.text)
            if number == 0:
                letters = [(_height(text, at), chr(FPDFText_GetUnicode(text, at))) for at in range(text.count_chars())]
            if sum(map(len, pages)) > TEXT_CHARS:
                break
        info, count = document.get_metadata_dict(), len(document)
    apart = (notes_apart(page, sizes) for page, sizes in zip(without_running(pages), heights, strict=True))
    whole = flowing(joined(list(apart)))
    if len(re.findall(r"\w", whole)) < 20:
        why = "the PDF has no text: it is probably a scan. Recognise its text first: ocrmypdf IN.pdf OUT.pdf"
        yield Reject(source.name, 1, why)
        return
    title = known = " ".join(info["Title"].split())
    poor = _NOT_TITLES.search(title) or NOBODY.fullmatch(title)
    if len(title) < 8 or poor:
        known = _largest(letters, usual.most_common(1)[0][0])
        title = known or _first_line(pages[0]) or ("" if poor else title)
    start = _ABSTRACT.search(whole[:5_000])
    doi = DOI.search("\n".join(pages[:2])) or DOI.search(" ".join(info.values()))
    year = re.search(r"D:(\d{4})", info["CreationDate"])
    body, starts = placed(whole[start.end() :] if start else _after(whole, known), len(pages))
    with source.path.open("rb") as stream:
        file_hash = hashlib.file_digest(stream, "sha256").hexdigest()
    data: dict[str, Any] = {
        "title": title,
        "text": body,
        PAGE_STARTS: starts,
        "doi": doi[0].rstrip(".,;)]").lower() if doi else None,
        "authors": people(re.split(r"[;]| and ", info["Author"])),
        "file_year": whole_number(year[1]) if year else None,
        "page_count": count,
        FILE_HASH: file_hash,
    }
    yield one_document(source, data, "PDF files")


def _says_pdf(file: Path) -> bool:
    with file.open("rb") as stream:
        return b"%PDF-" in stream.read(1024)


def spelled(text: str) -> list[str]:
    """A text's characters, with letters and dashes in place of the control characters that stand for them."""
    characters = list(text)
    for found in _OF_CORK.finditer(text):
        characters[found.start()] = _CORK[found[0]]
    return characters


def readable(text: str) -> str:
    return "".join(spelled(text))


def upright(page: PdfPage) -> PdfTextPage:
    """The text of a page, turned so that most of it stands upright: PDFium takes lines as they are seen."""
    from pypdfium2.raw import FPDFText_GetCharAngle

    text = page.get_textpage()
    count = text.count_chars()
    quarters = Counter(
        round(FPDFText_GetCharAngle(text, place) / (math.pi / 2)) % 4
        for place in range(0, count, max(1, count // _SAMPLED))
    )
    turned = -90 * quarters.most_common(1)[0][0] % 360 if quarters else page.get_rotation()
    if turned == page.get_rotation():
        return text
    page.set_rotation(turned)
    return page.get_textpage()


class Line(NamedTuple):
    """A line of a page: its place in the text that PDFium gives, and the height and baseline of its letters."""

    start: int
    text: str
    height: float
    baseline: float
    cut: bool
    """Whether it ends in a hyphen that PDFium left out."""


def lines_of(page: PdfTextPage) -> list[Line]:
    """The lines of a page as they are to be read."""
    from pypdfium2.raw import FPDFText_GetCharIndexFromTextIndex as index

    found: list[Line] = []
    begin = start = 0  # in PDFium's units, and in characters
    for line in page.get_text_range().split("\r\n"):
        pieces = line.split(_CUT)
        letters = [place for place, one in enumerate(line) if not one.isspace()] or [0]
        places = (begin + _units(line[: letters[len(letters) * part // 6]]) for part in range(1, 6))
        height = median(_height(page, index(page, place)) for place in places)
        for number, piece in enumerate(pieces, 1):
            baseline = _baseline(page, index(page, begin + len(piece) - len(piece.lstrip())))
            found.append(Line(start, piece, height, baseline, number < len(pieces)))
            begin, start = begin + _units(piece) + 1, start + len(piece) + 1
        begin, start = begin + 1, start + 1
    order = downward([one.baseline for one in found], [one.height for one in found])
    return [found[at] for at in order]


def downward(baselines: Sequence[float], heights: Sequence[float]) -> Sequence[int]:
    """The order of lines from the top of a page, if many were drawn in another one and none stands beside another."""
    as_drawn = range(len(baselines))
    order = sorted(as_drawn, key=lambda at: -baselines[at])
    rises = sum(after > before for before, after in itertools.pairwise(baselines))
    beside = any(baselines[one] - baselines[other] < heights[other] / 2 for one, other in itertools.pairwise(order))
    return order if 3 * rises > len(order) and not beside else as_drawn


def _baseline(page: PdfTextPage, place: int) -> float:
    """How high a character stands in the page as it is turned, from anywhere, in points."""
    from pypdfium2.raw import FPDFText_GetCharOrigin

    x, y = c_double(), c_double()
    FPDFText_GetCharOrigin(page, place, byref(x), byref(y))
    return (y.value, -x.value, -y.value, x.value)[page.page.get_rotation() // 90]


def _units(text: str) -> int:
    """A text's length as PDFium counts it: in units of UTF-16."""
    return len(text.encode("utf-16-le", "replace")) // 2


def _height(page: PdfTextPage, place: int) -> float:
    """The height of a character in points; 0 for what PDFium adds: spaces, line ends, a ligature's second letter."""
    from pypdfium2.raw import FS_MATRIX, FPDFText_GetFontSize, FPDFText_GetMatrix

    matrix = FS_MATRIX()
    FPDFText_GetMatrix(page, place, byref(matrix))
    return round(float(FPDFText_GetFontSize(page, place) * (abs(matrix.d) or abs(matrix.b))), 1)


def _largest(letters: list[tuple[float, str]], usual: float) -> str:
    """The text in the largest letters of the first page, if they are larger than usual and it looks like a title."""
    sizes: list[tuple[float, str]] = []
    for height, character in letters:
        sizes.append((sizes[-1][0] if sizes and (not height or character.isspace()) else height, character))
    by_size = Counter(size for size, character in sizes if not character.isspace())
    for size in sorted((size for size, count in by_size.items() if count >= 12 and size > usual), reverse=True)[:2]:
        title = " ".join(readable("".join(character for one, character in sizes if one == size)).split())
        if 12 <= len(title) <= 400 and len(title.split()) > 1:
            return title
    return ""


def _first_line(page: str) -> str:
    """The first line of a page, if it looks like a title and does not go on in the next one."""
    found = re.match(r"\s*(\S.{7,299}?)\s*\n(?!\s*[a-z])", page)
    return found[1] if found and not _NOT_TITLES.search(found[1]) else ""


def without_running(pages: list[str]) -> list[str]:
    """Pages without headers and footers: a first or last line that at least `RUNNING` pages have, which follow each
    other or alternate with others, stays at the top of the first page only; a page's number stays nowhere.

    A number in such a line may count the pages. Any other must be the same, or the line stays.
    """
    lines = [page.split("\n") for page in pages]
    runs: dict[tuple[str, bool], list[list[tuple[int, int]]]] = {}
    for page, some in enumerate(lines):
        for at, top in _edges(some):
            found = runs.setdefault((re.sub("[0-9]+", "#", _in_digits(some[at])).strip(), top), [[]])
            last = found[-1][-1] if found[-1] else None
            if last is not None and not _counts(page - last[0], lines[last[0]][last[1]], some[at]):
                found.append([])
            found[-1].append((page, at))
    for (bare, top), found in runs.items():
        for run in found:
            for page, at in run if len(run) >= RUNNING else ():
                if page > 0 or not top or bare == "#":
                    lines[page][at] = ""
    return ["\n".join(some) for some in lines]


def _edges(lines: list[str]) -> list[tuple[int, bool]]:
    """The first two and last two lines with text, and whether they are the first. The lines of a page with few are
    both."""
    full = [number for number, line in enumerate(lines) if line.strip()]
    return [(at, True) for at in full[:2]] + [(at, False) for at in full[-2:]]


def _in_digits(line: str) -> str:
    """A line that is a number in Roman numerals, in digits."""
    if not _ROMAN.fullmatch(bare := line.strip().lower()):
        return line
    values = [{"i": 1, "v": 5, "x": 10, "l": 50, "c": 100}[one] for one in bare]
    return str(sum(-one if one < after else one for one, after in zip(values, [*values[1:], 0], strict=True)))


def _counts(pages: int, before: str, line: str) -> bool:
    """Whether a line goes on one that stood so many pages before: its numbers are the same, or count the pages."""
    numbers = [[whole_number(one) or 0 for one in re.findall("[0-9]+", _in_digits(text))] for text in (before, line)]
    return 0 < pages <= 2 and all(new - old in (0, pages) for old, new in zip(*numbers, strict=True))


def notes_apart(page: str, heights: Sequence[float]) -> str:
    """A page whose notes, its last lines in smaller letters, are a paragraph, before the sentence that goes on after
    them."""
    lines = page.split("\n")
    usual = [height for line, height in zip(lines, heights, strict=True) if len(line) > _LONG]
    small = _SMALL * median(usual) if usual else 0
    full = [at for at, line in enumerate(lines) if line.strip() and heights[at] >= small]
    body, notes = lines[: full[-1] + 1] if full else [], lines[full[-1] + 1 :] if full else lines
    if not body or not any(map(str.strip, notes)):
        return page
    text = "\n".join(body)
    end = max((found.end() for found in re.finditer(r"[.!?][\"”’)\]]*\s", f"{text}\n")), default=len(text))
    rest = text[end:] and " " * (end - text.rfind("\n", 0, end) - 1) + text[end:]  # as long as its line was
    return "\n\n".join(filter(str.strip, (text[:end], "\n".join(notes), rest)))


def joined(pages: Sequence[str]) -> str:
    """Pages as one text, with `PAGE` where each but the first begins: a paragraph, unless its first sentence began on
    the page before."""
    parts, before = [pages[0].strip()] if pages else [], 0
    for page in map(str.strip, pages[1:]):
        goes_on = bool(page) and _goes_on(parts[before], page)
        parts += ["\n" if goes_on else "\n\n" if page else "", f"{PAGE}{page}"]
        before = len(parts) - 1 if page else before
    return "".join(parts)


def _goes_on(before: str, page: str) -> bool:
    lines = before.removeprefix(PAGE).splitlines() or [""]
    last, first = lines[-1].rstrip(), page.split("\n", 1)[0]
    if not last or _SENTENCE_END.search(last) or _HEADING.fullmatch(first.strip()):
        return False
    if first[0].islower() or last[-1] in "-\u00ad,":
        return True
    return last[-1].islower() and len(last) >= _FULL_LINE * median(len(line) for line in lines if line.strip())


def flowing(text: str) -> str:
    """Lines as paragraphs: words that were cut at line ends are whole again, blank lines stay."""
    compound = set(re.findall(r"\b(?=(\w+-\w+))", text.lower()))

    def whole(cut: re.Match[str]) -> str:
        before, page, after = cut.groups()
        return f"{before}{'-' if f'{before}-{after}'.lower() in compound else ''}{page}{after}"

    text = re.sub(rf"(\w+)[-\u00ad]\n({PAGE}?)(?=[a-z])(\w+)", whole, text)
    kept = []
    for paragraph in re.split(r"\n\s*\n", text):
        # A heading of its own line is kept apart: "Abstract", "1 Introduction".
        lines: list[str] = []
        for line in paragraph.split("\n"):
            bare = " ".join(line.split())
            if not bare:
                continue
            if lines and not any(map(_stands_alone, (lines[-1], bare))) and not _ABSTRACT.match(bare):
                lines[-1] = f"{lines[-1]} {bare}"
            else:
                lines.append(bare)
        kept.append("\n".join(lines))
    return "\n\n".join(one for one in kept if one)


def _stands_alone(line: str) -> bool:
    return _HEADING.fullmatch(line.replace(PAGE, "")) is not None


def _after(text: str, title: str) -> str:
    """The text without the title, which stands at its beginning, perhaps after a header."""
    flat = re.sub(r"\s+", r"\\s+", re.escape(title).replace("\\ ", " "))
    match = re.search(rf"\s*{flat}\s*", text[:TITLE_WITHIN]) if title else None
    return f"{text[: match.start()]}\n\n{text[match.end() :]}".strip() if match and match.end() < len(text) else text


def placed(marked: str, pages: int) -> tuple[str, list[int]]:
    """A text without its `PAGE`s, as stores keep it, and the offsets in it at which its pages begin.

    Pages that begin before it begin with it. There are no offsets if they can't be told.
    """
    *before, last = clean(marked).split(PAGE)
    text = "".join((*before, last))
    begins = list(itertools.accumulate(map(len, before)))
    if clean(text) != text:  # what stands on two sides of a page's end makes one character, say
        return text, []
    return text, [*[0] * (pages - len(begins)), *begins]
