"""Is it the page that the evidence stands on? Every sentence that ccheck keeps of 50 made PDFs and of real ones.

    python benchmarks/pdf_sentences.py FOLDER [--only made | --only real] [--name PART]

`made`: layouts by ReportLab (tests/ingest/pdf_papers.py), Chromium, LaTeX, LibreOffice, groff and Matplotlib, some
written again by cairo, Ghostscript or qpdf: each program sets text in its own way. Each page is set by itself, so its
text is known. `real`: PDFs in Debian's packages, by apt-get; poppler's pdftotext says what stands on a page. What this
machine lacks is left out and named. FOLDER keeps the files.

A sentence is right if its letters stand on the page that a card names, or from the first to the last of several. Where
their order differs (columns, formulas), no other page may have them in fewer pieces; `unchecked` are those whose pieces
are tiny. Equal sentences must be as often on a page as they are said to be. `marked` says how many have marks in the
image of their page, and `whole` how many true sentences of made PDFs are ccheck's, with their pages.
"""

from __future__ import annotations

import functools
import gzip
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

import click
import common
import pypdfium2
from pdf_programs import MAKERS, Truth, by_poppler, called, letters

from ccheck.core.analysis import sentence_spans
from ccheck.core.types import Document, Sentence
from ccheck.ingest import Reject, read
from ccheck.ingest.documents import make_document
from ccheck.ingest.pdf import upright
from ccheck.web import pdf_pages

ROWS = ()
"""The page has a table of its own for these."""
PIECE = 4
"""Letters that pieces of a sentence must have on average, where these stand in another order."""

Made = Iterator[tuple[str, Path, Callable[[], Truth]]]
"""The name of each PDF, its file, and what makes it, if it has to be made, and says what is true."""


def judged(pages: Sequence[tuple[str, ...]], found: Sequence[Sentence]) -> Iterator[tuple[str, Sentence]]:
    """`right`, `unknown`, `wrong` or `unchecked` (no reader has these letters) of each sentence."""
    said = Counter[tuple[str, int]]()
    for one in found:
        own, last = letters(one.text), one.last_page or one.page
        if not own:
            continue
        if one.page is None or last is None:
            yield "unknown", one
            continue
        first = one.page
        if first == last:
            said[own, last] += 1
            there, *elsewhere = (
                max(order.count(own) for order in pages[page - 1]) - said[own, page]
                for page in (last, *(page for page in range(1, len(pages) + 1) if page != last))
            )
            if there >= 0:
                yield "right", one
            elif len(own) < 3 * PIECE:
                yield "unchecked", one
            elif max(elsewhere, default=0) > 0 or _beyond(own, first, pages):
                yield "wrong", one
            else:
                yield _by_pieces(own, first, last, pages), one
        else:
            yield "right" if _over(own, pages[first - 1], pages[last - 1]) else _by_pieces(own, first, last, pages), one


def _over(own: str, first: tuple[str, ...], last: tuple[str, ...]) -> bool:
    """Whether letters begin on one page and end on another, each part oftener than the whole stands there."""

    def oftener(part: str, page: tuple[str, ...]) -> bool:
        return any(order.count(part) > order.count(own) for order in page)

    return any(oftener(own[:cut], first) and oftener(own[cut:], last) for cut in range(1, len(own)))


def _beyond(own: str, page: int, pages: Sequence[tuple[str, ...]]) -> bool:
    """Whether the rest of letters that begin or end on a page is not on it, but on the page after or before it.

    It is not if the page has the letters in two pieces, too.
    """
    if min(_pieces(own, order) for order in pages[page - 1]) <= 2:
        return False
    beside = [pages[at] for at in (page - 2, page) if 0 <= at < len(pages)]
    for cut in range(1, len(own)):
        parts = own[:cut], own[cut:]
        here = [any(part in one for one in pages[page - 1]) for part in parts]
        if here[0] != here[1] and any(parts[here[0]] in one for orders in beside for one in orders):
            return True
    return False


def _by_pieces(own: str, first: int, last: int, pages: Sequence[tuple[str, ...]]) -> str:
    """What is true of letters that stand in another order: their pages are those that have them in the fewest pieces.
    Of two pages, both must be needed."""

    def least(begin: int, end: int) -> int:
        return min(_pieces(own, order) for order in map("".join, zip(*pages[begin - 1 : end], strict=True)))

    here, beyond = least(first, last), last - first
    if any(least(page, page + beyond) < here for page in range(1, len(pages) - beyond + 1)):
        return "wrong"
    if beyond and here >= min(least(first, last - 1), least(first + 1, last)):
        return "wrong"
    return "right" if here * PIECE <= len(own) else "unchecked"


def _pieces(own: str, text: str) -> int:
    """In how many pieces letters stand in a text, each as long as can be; one that has no place is a letter long."""
    count = start = 0
    while start < len(own):
        end = start + 1
        while end < len(own) and own[start : end + 1] in text:
            end += 1
        count, start = count + 1, end
    return count


# -- what ccheck says


def kept(file: Path) -> tuple[Document | None, str]:
    """The document of a PDF, or why there is none."""
    for one in read([str(file)]):
        if isinstance(one, Reject):
            return None, one.reason
        return make_document(one.data).document, ""
    return None, "nothing"


def sentences(document: Document) -> list[Sentence]:
    spans = sentence_spans(document.text)
    some = [Sentence(document.text[start:end], "text", start, end, 1.0) for start, end in spans]
    return [one.on_pages_of(document) for one in some]


def marked(file: Path, document: Document, found: Sequence[Sentence]) -> int:
    """How many sentences have marks with exactly their letters in the image of their page."""
    parts: dict[int, list[tuple[int, pdf_pages.Part]]] = defaultdict(list)
    text, pages = document.text, document.pages
    for number, one in enumerate(found):
        for page in range(one.page or 1, (one.last_page or one.page or 0) + 1):
            start, end = max(one.start, pages[page - 1]), min([one.end, *pages[page : page + 1]])
            if letters(text[start:end]):
                around = text[max(start - pdf_pages.NEAR, 0) : start], text[end : end + pdf_pages.NEAR]
                parts[page].append((number, (around[0], text[start:end], around[1])))
    seen = defaultdict[int, list[bool]](list)
    with pypdfium2.PdfDocument(file) as opened:
        for page, some in parts.items():
            have, _ = pdf_pages.text_of(upright(opened[page - 1]))
            for number, part in some:
                start, end = pdf_pages._found(have, *(pdf_pages._letters(one)[0] for one in part))
                seen[number].append(start < end)
    return sum(all(one) for one in seen.values())


# -- real ones


REAL = {
    "r-cran-rcpp": "Rcpp-introduction", "r-cran-rcpparmadillo": "RcppArmadillo-intro",
    "r-cran-rcppgsl": "RcppGSL-intro", "r-cran-rprotobuf": "RProtoBuf-intro",
    "r-cran-mvtnorm": "MVT_Rnews", "npm:angular-pdfjs-viewer": "example",
    "pypi:pdfminer==20191125": "naacl06-shinyama", "r-cran-lme4": "lmer", "r-cran-fitdistrplus": "paper2JSS",
    "r-cran-flexmix": "flexmix-intro", "r-cran-kernlab": "kernlab", "r-cran-coin": "Implementation",
    "r-cran-multcomp": "generalsiminf", "r-cran-party": "MOB", "r-cran-pscl": "countreg", "r-cran-quantreg": "rq",
    "r-cran-sandwich": "sandwich", "r-cran-strucchange": "strucchange-intro", "r-cran-vcd": "strucplot",
    "r-cran-zoo": "zoo", "r-cran-vegan": "diversity-vegan", "r-cran-ape": "MoranI", "r-cran-survival": "compete",
    "r-cran-actuar": "risk", "hmmer-doc": "Userguide", "mrbayes-doc": "Manual_MrBayes_v3.2", "phyml": "phyml_manual",
    "raxml": "NewManual", "nauty-doc": "nug28", "pari-doc": "tutorial-mf",
}  # fmt: skip
"""By package, Debian's if nothing else is said: seven articles in two columns, others in one, manuals."""


def real(folder: Path, part: str) -> Made:
    """The PDFs of packages, downloaded once."""
    for package, name in REAL.items():
        if part not in (told := f"{package}: {name}"):
            continue
        file = folder / f"{package.replace(':', '-')}.pdf"
        if not file.exists():
            with tempfile.TemporaryDirectory() as scratch:
                _unpacked(package, Path(scratch))
                for found in itertools.islice(Path(scratch).rglob(f"{name}.pdf*"), 1):
                    opened = gzip.open if found.suffix == ".gz" else open
                    with opened(found, "rb") as whole:
                        file.write_bytes(whole.read())
        if file.exists():
            yield told, file, functools.partial(_of_poppler, file)
        else:
            click.echo(f"left out: {told} is not to be had here")


def _of_poppler(file: Path) -> Truth:
    return Truth(by_poppler(file), {})


def _unpacked(package: str, folder: Path) -> None:
    kind, _, name = package.rpartition(":")
    pip = (sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary=:all:", name)
    command = {"npm": ("npm", "pack", "--silent", name), "pypi": pip}.get(kind, ("apt-get", "download", "-q", name))
    subprocess.run(command, cwd=folder, capture_output=True)
    for archive in folder.glob("*.deb"):
        called("dpkg-deb", "-x", archive, folder)
    for archive in folder.glob("*gz"):
        shutil.unpack_archive(archive, folder, "gztar", filter="data")


def made(folder: Path, part: str) -> Made:
    programs = {
        "latex": "pdflatex",
        "libreoffice": "soffice",
        "groff": "gs",
        "ghostscript": "gs",
        "cairo": "pdftocairo",
    }
    for seed, (name, maker) in enumerate(MAKERS.items()):
        program = programs.get(first := name.split(":")[0], first)
        chromium = first == "chromium" and os.environ.get("CHROME_PATH")
        if first not in ("reportlab", "matplotlib") and not chromium and shutil.which(program) is None:
            click.echo(f"left out: {name} ({program} is not installed)")
        elif part in name:
            file = folder / f"{''.join(one if one.isalnum() else '-' for one in name)}.pdf"
            yield name, file, functools.partial(maker, file, seed)


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--only", type=click.Choice(["made", "real"]))
@click.option("--name", "part", default="", help="Only PDFs whose name has this in it; their sentences are printed.")
def main(folder: Path, only: str | None, part: str) -> None:
    """Compare the page of each sentence with what is known of made and real PDFs."""
    table = ["| PDFs | page right | wrong | unknown | unchecked | marked | whole |", f"|{'---|' * 7}"]
    for kind in [only] if only else ["made", "real"]:
        (place := folder / kind).mkdir(parents=True, exist_ok=True)
        total, files = Counter[str](), 0
        for name, file, truth_of in (made if kind == "made" else real)(place, part):
            truth = truth_of()
            paper, why = kept(file)
            if paper is None:
                click.echo(f"{name}: {why}")
                continue
            found = sentences(paper)
            results = list(judged(truth.pages, found))
            one = Counter(result for result, _ in results)
            one["sentences"], one["marked"] = len(results), marked(file, paper, [at for _, at in results])
            have = {letters(at.text): (at.page, at.last_page or at.page) for at in found}
            one["whole"] = sum(have.get(letters(text)) == pages for text, pages in truth.sentences.items())
            one["true"] = len(truth.sentences)
            total, files = total + one, files + 1
            click.echo(f"{name}: {len(truth.pages)} pages, {', '.join(f'{a} {b}' for a, b in one.items())}")
            for result, at in results:
                if result in ("wrong", "unchecked", "unknown") or part:
                    click.echo(f"  {result}: p. {at.page}-{at.last_page or at.page}: {at.text[:300]!r}")
            if part:
                missed = [text for text, pages in truth.sentences.items() if have.get(letters(text)) != pages]
                click.echo(
                    "".join(
                        f"  not whole: {have.get(letters(text))}, {truth.sentences[text]}: {text}\n" for text in missed
                    )
                )
        shown = [f"{total[name]:,}" for name in ("right", "wrong", "unknown", "unchecked", "marked")]
        whole = f"{total['whole']:,} of {total['true']:,}" if total["true"] else "–"
        table.append(f"| {files} {kind} | {' | '.join(shown)} | {whole} |")
    common.told({}, ROWS, f"pypdfium2 {version('pypdfium2')}", table=table)


if __name__ == "__main__":
    main()
