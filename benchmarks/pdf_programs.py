"""PDFs whose text is known page by page, by several programs: for pdf_sentences.py, which says by which."""

from __future__ import annotations

import functools
import html
import os
import random
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pypdfium2

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "ingest"))
from pdf_papers import LAYOUTS, Layout, sentence, write_paper

LIGATURES = {0x1B: "ff", 0x1C: "fi", 0x1D: "fl", 0x1E: "ffi", 0x1F: "ffl"}
"""Of LaTeX's fonts of the Cork encoding, which often name them to no reader."""


class Truth(NamedTuple):
    """The text of each page, in one or more orders; the sentences that should be whole, with their pages."""

    pages: list[tuple[str, ...]]
    sentences: dict[str, tuple[int, int]]


def letters(text: str) -> str:
    return "".join(one for one in unicodedata.normalize("NFKD", text).casefold() if one.isalnum())


def by_poppler(file: Path) -> list[tuple[str, ...]]:
    """The letters of each page, in the order of reading and in that of the file."""
    read_ = [
        subprocess.run(["pdftotext", *how, "-enc", "UTF-8", str(file), "-"], capture_output=True, check=True).stdout
        for how in ((), ("-raw",))
    ]
    texts = [text.decode("utf-8", "replace").translate(LIGATURES) for text in read_]
    each = [list(map(letters, text.split("\f")[:-1])) for text in texts]
    return list(zip(*each, strict=True))


Pages = list[list[str]]
"""The paragraphs of each page. One that begins with `…` goes on the last of the page before."""


def content(pages: int, each: int, seed: int) -> tuple[Pages, dict[str, tuple[int, int]]]:
    """Paragraphs, whose last on a page is cut within a sentence, or within a word of it."""
    draw, number = random.Random(seed), 0
    made: Pages = []
    true: dict[str, tuple[int, int]] = {}
    rest = ""
    for page in range(1, pages + 1):
        some: list[str] = []
        while len(some) < each:
            whole = [sentence(number + more) for more in range(draw.randint(2, 4))]
            number += len(whole)
            true |= dict.fromkeys(whole, (page, page))
            some.append(" ".join(whole))
        if rest:
            some.insert(0, rest)
            rest = ""
        if page < pages:
            cut = sentence(number)
            true[cut], number = (page, page + 1), number + 1
            middle = cut.index("estuarine") + 5 if page % 3 == 0 and "estuarine" in cut else cut.index(" gauges")
            some[-1] += f" {cut[:middle]}{'-' if cut[middle] != ' ' else ''}"
            rest = f"…{cut[middle:].strip()}"
        made.append(some)
    return made, true


HTML = """<!doctype html><meta charset=utf-8><style>
@page {{ size: {size}; margin: 15mm }}
body {{ font: 10pt/1.3 {font}; margin: 0; text-align: justify }}
section {{ break-after: page; position: relative; height: {height}mm }}
section:last-child {{ break-after: auto }}
p {{ margin: 0 0 3pt; text-indent: 8pt }} p.on {{ text-indent: 0 }}
header, footer {{ position: absolute; font-size: 8pt; left: 0 }} header {{ top: 0 }} footer {{ bottom: 0 }}
.text {{ position: relative; top: 8mm; columns: {columns}; column-fill: auto; column-gap: 8mm; height: {high}mm }}
.note {{ position: absolute; bottom: 0; font-size: 7pt }} table {{ font-size: 8pt }} {css}</style>"""


def by_chromium(file: Path, seed: int, **given: Any) -> Truth:
    asked = {
        "size": "A4",
        "font": "DejaVu Serif",
        "columns": 1,
        "css": "",
        "extra": "",
        "header": "",
        "note": "",
    } | given
    height = 178 if "landscape" in asked["size"] else 265
    pages, true = content(5, asked.get("each", 6), seed)
    out = [HTML.format(**asked, height=height, high=height - 22)]
    texts = []
    for number, some in enumerate(pages, 1):
        shown = [f"<p class={'on' if one[0] == '…' else 'new'}>{html.escape(one.lstrip('…'))}</p>" for one in some]
        shown = [
            one.replace("millimetres", "milli&shy;metres").replace("continental", "conti&shy;nental") for one in shown
        ]
        shown.insert(1, asked["extra"].format(n=number))
        about = {name: asked[name].format(n=number, s=number // 2) for name in ("header", "note")}
        footer = f"<footer>{number + 100}</footer>" if asked["header"] else ""
        note = f"<div class=note>{about['note']}</div>" if asked["note"] else ""
        out.append(
            f"<section><header>{about['header']}</header><div class=text>{''.join(shown)}</div>{note}{footer}</section>"
        )
        plain = " ".join(one.lstrip("…") for one in some)
        texts.append("\n".join([plain, _untagged(asked["extra"].format(n=number)), *about.values(), str(number + 100)]))
    (page := file.with_suffix(".html")).write_text("".join(out), encoding="utf-8")
    chrome = os.environ.get("CHROME_PATH") or "chromium"
    called(
        chrome, "--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer", f"--print-to-pdf={file}", page
    )
    return Truth([(letters(one),) for one in texts], true)


def _untagged(markup: str) -> str:
    from lxml.html import fromstring

    return " ".join(fromstring(markup).itertext()) if markup else ""


FLOAT = r"\begin{table}[t]\caption{Rise in part NUMBER.}\begin{tabular}{ll}1&2\end{tabular}\end{table}"
LATEX = r"""\documentclass[10pt,a4paper%s]{article}
\usepackage[utf8]{inputenc}\usepackage{fancyhdr}\usepackage{hyperref}%s
\setlength{\emergencystretch}{3em}\title{Rising seas}\author{A. Lopez}
\begin{document}
"""


def by_latex(file: Path, seed: int, options: str = "", preamble: str = "", extra: str = "", each: int = 5) -> Truth:
    pages, true = content(5, each, seed)
    out, texts = [LATEX % (options, preamble)], []
    for number, some in enumerate(pages, 1):
        shown = [f"\\noindent {one[1:]}" if one[0] == "…" else one for one in some]
        shown.insert(1, extra.replace("NUMBER", str(number)))
        end = "{\\parfillskip=0pt\\par}\\clearpage" if number < len(pages) else "\\end{document}"
        out.append("\n\n".join(shown) + end + "\n")
        texts.append(" ".join(one.lstrip("…") for one in some))
    file.with_suffix(".tex").write_text("".join(out), encoding="utf-8")
    for _ in range(2):
        called("pdflatex", "-interaction=batchmode", f"-output-directory={file.parent}", file.with_suffix(".tex"))
    return Truth([(letters(one), *more) for one, more in zip(texts, by_poppler(file), strict=True)], true)


def by_groff(file: Path, seed: int, width: str = "6i") -> Truth:
    pages, true = content(4, 4, seed)
    out = [f".ps 10\n.vs 12\n.ll {width}\n.po 1i\n.hy 4\n"]
    for number, some in enumerate(pages, 1):
        out += [f"{'.br' if one[0] == '…' else '.sp'}\n{one.lstrip('…')}\n" for one in some]
        out.append(".brp\n.bp\n" if number < len(pages) else "")
    done = subprocess.run(["groff", "-Tps"], input="".join(out).encode(), capture_output=True, check=True)
    file.with_suffix(".ps").write_bytes(done.stdout)
    called("gs", "-q", "-dBATCH", "-dNOPAUSE", "-sDEVICE=pdfwrite", f"-sOutputFile={file}", file.with_suffix(".ps"))
    return Truth([(letters(" ".join(one.lstrip("…") for one in some)),) for some in pages], true)


def by_libreoffice(file: Path, seed: int, columns: int = 1, table: bool = False) -> Truth:
    import docx
    from docx.oxml import OxmlElement
    from docx.oxml.ns import qn

    pages, true = content(5, 4, seed)
    paper = docx.Document()
    if columns > 1:
        held = paper.sections[0]._sectPr.xpath("./w:cols")[0]
        held.set(qn("w:num"), str(columns))
    paper.sections[0].header.paragraphs[0].text = "Journal of Tides"
    texts = []
    for number, some in enumerate(pages):
        for place, one in enumerate(some):
            added = paper.add_paragraph(one.lstrip("…"))
            added.paragraph_format.page_break_before = number > 0 and place == 0
            if one[0] == "…":
                added._p.get_or_add_pPr().append(OxmlElement("w:contextualSpacing"))
            if table and place == 1:
                cells = paper.add_table(2, 3)
                for at in range(6):
                    cells.cell(at // 3, at % 3).text = f"{number}.{at}"
        texts.append(" ".join(one.lstrip("…") for one in some))
    paper.save(word := str(file.with_suffix(".docx")))
    called("soffice", "--headless", "--convert-to", "pdf", "--outdir", file.parent, word)
    return Truth([(letters(one), *more) for one, more in zip(texts, by_poppler(file), strict=True)], true)


def by_matplotlib(file: Path, seed: int, kind: int = 3) -> Truth:
    import textwrap

    import matplotlib
    from matplotlib.backends.backend_pdf import PdfPages
    from matplotlib.figure import Figure

    pages, true = content(5, 5, seed)
    with matplotlib.rc_context({"pdf.fonttype": kind}), PdfPages(file) as book:
        for some in pages:
            figure, row = Figure(figsize=(8.3, 11.7)), 0.95
            for one in some:
                for line in textwrap.wrap(one.lstrip("…"), 85, break_on_hyphens=False):
                    figure.text(0.1, row, line, fontsize=9)
                    row -= 0.016
                row -= 0.01
            book.savefig(figure)
    return Truth([(letters(" ".join(one.lstrip("…") for one in some)),) for some in pages], true)


def by_reportlab(file: Path, seed: int, count: int = 150, **options: Any) -> Truth:
    layout = Layout(**options)
    write_paper(file, layout, count, seed)
    true = {layout.sentence(number): pages for number, pages in layout.pages.items()}
    return Truth([(letters(one),) for one in layout.texts], {} if layout.twice or layout.cited else true)


def rewritten(command: Sequence[str], file: Path, seed: int, **options: Any) -> Truth:
    """What another program wrote of a PDF by ReportLab."""
    truth = by_reportlab(first := file.with_suffix(".first.pdf"), seed, **options)
    called(*(one.format(old=first, new=file) for one in command))
    return truth


def with_pages_twice(file: Path, seed: int) -> Truth:
    """A paper whose second page is there again after its fourth, and whose pages are then in another order."""
    truth = by_reportlab(first := file.with_suffix(".first.pdf"), seed, numbers=True)
    order = [0, 1, 2, 3, 1, *reversed(range(4, len(truth.pages)))]
    with pypdfium2.PdfDocument(first) as old, pypdfium2.PdfDocument.new() as new:
        new.import_pages(old, order)
        new.save(file)
    return Truth([truth.pages[page] for page in order], {})


def called(*command: str | Path) -> None:
    subprocess.run([str(one) for one in command], capture_output=True, check=True, timeout=180)


CAIRO = ("pdftocairo", "-pdf", "{old}", "{new}")
QPDF = ("qpdf", "--linearize", "--object-streams=generate", "{old}", "{new}")
GS = ("gs", "-q", "-dBATCH", "-dNOPAUSE", "-sDEVICE=pdfwrite", "-sOutputFile={new}", "{old}")
TABLE = "<table><caption>Table {n}. Rise in part {n}.</caption><tr><td>{n}.1<td>{n}.2<tr><td>{n}.3<td>{n}.4</table>"
HEBREW = "<p dir=rtl>פני הים עולים בשנה {n} לאורך החוף.</p><p>海面が上昇している{n}。</p>"
MAKERS: dict[str, Callable[[Path, int], Truth]] = {
    **{f"reportlab: {name}": functools.partial(by_reportlab, **given) for name, given in LAYOUTS.items()},
    **{f"reportlab: {name}": functools.partial(by_reportlab, **given) for name, given in {
        "one column": {},
        "small pages": {"size": (300, 420), "numbers": True},
        "landscape, two columns": {"size": (842, 595), "columns": 2, "numbers": True},
        "drawn across columns": {"columns": 2, "header": "Tides", "numbers": True, "cut": 2, "order": "across"},
        "drawn backwards": {"scans": True, "numbers": True, "order": "backwards"},
        "drawn in any order": {"order": "shuffled"},
        "tables": {"notes": True, "numbers": True, "tables": True},
        "raised citations": {"cited": True, "numbers": True},
        "the same sentences again": {"twice": 37, "header": "Page {n}"},
        "references": {"references": 120, "columns": 2, "numbers": True},
        "watermark": {"watermark": True, "cut": 2},
        "forms": {"form": True, "header": "Tides {n}"},
        "long": {"count": 900, "header": "Tides", "numbers": True, "cut": 3},
        "everything": {"columns": 2, "header": "{n} Tides of {s}", "numbers": True, "notes": True, "tables": True,
                       "chinese": True, "cut": 2, "cover": True, "scans": True, "crop": True, "watermark": True},
    }.items()},
    "reportlab: pages twice, in another order": with_pages_twice,
    **{f"chromium: {name}": functools.partial(by_chromium, **given) for name, given in {
        "one column": {},
        "two columns, running heads": {"columns": 2, "header": "{n} Journal of Tides"},
        "three columns, landscape": {"columns": 3, "size": "A4 landscape", "each": 4, "font": "DejaVu Sans"},
        "tables": {"extra": TABLE, "header": "Section {s}"},
        "Hebrew, Japanese": {"extra": HEBREW},
        "notes": {"note": "<sup>{n}</sup> A note on page {n}.", "columns": 2},
        "letters apart, turned": {"css": "p {letter-spacing: 2pt} .text {transform: rotate(1deg)}", "each": 4},
        "right to left columns": {"columns": 2, "css": ".text {direction: rtl} p {direction: ltr}"},
    }.items()},
    **{f"latex: {name}": functools.partial(by_latex, **given) for name, given in {
        "one column": {"preamble": r"\pagestyle{fancy}\rhead{Rising seas}"},
        "two columns": {"options": ",twocolumn"},
        "notes": {"extra": r"A word\footnote{A note about part NUMBER of the data.} has a note."},
        "floats": {"extra": FLOAT},
        "formulas": {"extra": r"So $\sum_{i=1}^n x_i^2 = NUMBER$ and \[ \int_0^1 f(x)\,dx = \frac{1}{NUMBER}. \]"},
        "bitmap fonts, numbers": {"preamble": r"\usepackage[T1]{fontenc}\pagenumbering{roman}"},
    }.items()},
    "groff: one column": by_groff,
    "groff: short lines": functools.partial(by_groff, width="2.6i"),
    "libreoffice: one column": by_libreoffice,
    "libreoffice: two columns": functools.partial(by_libreoffice, columns=2),
    "libreoffice: tables": functools.partial(by_libreoffice, table=True),
    "matplotlib: Type 3 fonts": by_matplotlib,
    "matplotlib: TrueType fonts": functools.partial(by_matplotlib, kind=42),
    "cairo": functools.partial(rewritten, CAIRO, columns=2, numbers=True, cut=2),
    "cairo: accents": functools.partial(rewritten, CAIRO, font="Vera", header="Tides"),
    "ghostscript": functools.partial(rewritten, GS, notes=True, numbers=True, tables=True),
    "qpdf: linearized": functools.partial(rewritten, QPDF, header="Tides", labels=True),
}  # fmt: skip
