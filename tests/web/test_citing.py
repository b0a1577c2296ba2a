"""Citations that others' programs read: BibTeX, CSV and Markdown, parsed again as those programs do."""

import csv
import html
import io
import re
from dataclasses import replace
from typing import Any

import pytest
from bibtexparser.entrypoint import parse_string
from hypothesis import given, settings
from hypothesis import strategies as st
from pylatexenc.latex2text import LatexNodes2Text

from ccheck.core.citation import citation_of
from ccheck.core.errors import InvalidData
from ccheck.core.text import printable
from ccheck.core.types import Claim, Difference, Document, Evidence, Hit, Part, Result, Sentence, Stance, Verdict
from ccheck.service import Check
from ccheck.web.citing import CLAIM, PAPER, Citing, _md

TRICKY = (
    *("{", "}", "}}", "\\", "\\{", "{x", "x}, note = {owned", "x},\n@misc{evil, title={y}", '"', "@article{a,", "@é{"),
    *("%", "$x_1^2$", "~", "#", "&", "<b>", "50%", "\\input{/etc/passwd}", "a -- b", "é Å α 漢 🙂", "\u202ex"),
    *("\x1b[31m", "=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", " =1", "\x00=1", "\u200f=1", "＝1", "'=1"),
    *('";=1', "a,b\r\nc", "- item", "1. item", "+ x", "# head", "> quote"),
    *("[a](javascript:x)", "![i](u)", "<https://x>"),
    *("`c`", "***", "a | b", "&lt;script&gt;", "~~no~~", "===", "---", "1) x", "_a_", "\\"),
)
PLAIN = str.maketrans({"“": '"', "”": '"', "‘": "'", "’": "'", "ˆ": "^", "˜": "~"})
texts = st.one_of(
    st.sampled_from(TRICKY), st.lists(st.sampled_from((*TRICKY, *"abc ,=\n")), max_size=8).map("".join), st.text()
)
some = settings(max_examples=150, deadline=None, derandomize=True)


def one_paper(title: str = "Sea", claim: str = "a claim", **metadata: Any) -> Result:
    document = Document("d1", title, "Seas rise.", metadata)
    stance, sentence = Stance("SUPPORTS", rationale="r"), Sentence(title or "x", "text", 0, 1, 0.5)
    evidence = Evidence(Hit(1, document, 1.0), (sentence,), stance)
    return Result(Claim(claim), (evidence,), Verdict("SUPPORTS", rationale=claim), "default", "local:papers")


def test_markdown_says_why_there_is_no_verdict() -> None:
    unread = replace(one_paper(), claim=Claim("", "7"), verdict=None, error=InvalidData("no _text_"))
    unjudged = replace(one_paper(), verdict=Verdict(None, error="it hung"))
    assert cited("md", unread).startswith("## Claim: 7\n\n**Not checked**: no \\_text\\_\n")
    assert cited("md", unjudged).startswith("## Claim: a claim\n\n**No verdict**: it hung\n")
    assert "7,,,,Not checked,,,,,no _text_," in cited("csv", unread)


def cited(format_: str, *results: Result) -> str:
    citing, check = Citing(format_), Check(id="c", claim="", status="done")
    return "".join(citing.text(one, check) for one in results)


@some
@given(texts)
def test_bibtex_is_one_entry_with_this_text(text: str) -> None:
    metadata = {"authors": [text, "Smith, Anna"], "journal": text, "volume": text, "url": text, "year": 2019}
    written = cited("bibtex", one_paper(text, **metadata))
    assert written.count("{") == written.count("}")
    library = parse_string(written)
    assert library.failed_blocks == [] and len(library.blocks) == len(library.entries) == 1
    fields = library.entries[0].fields_dict
    assert set(fields) <= {"title", "author", "year", "journal", "volume", "url"}
    wanted = " ".join(printable(text).split())
    if wanted:
        assert fields["title"].value
    if wanted.isascii() or wanted in TRICKY:  # some names of LaTeX stand for several characters
        decode = LatexNodes2Text(strict_latex_spaces=True).latex_to_text
        assert squeezed(decode(fields["title"].value if wanted else "")) == squeezed(wanted)
    assert fields["year"].value == "2019" and "Smith, Anna" in fields["author"].value


def squeezed(text: str) -> str:
    """Without what LaTeX joins: blanks, and quotes and dashes that are ligatures."""
    text = text.translate(PLAIN).replace("``", '"').replace("''", '"').replace("—", "---").replace("–", "--")
    return re.sub(r"\s", "", text)


def test_bibtex_keeps_a_group_and_a_doi_whole() -> None:
    found = one_paper(authors=["SPRINT Research Group", "Smith and Sons"], doi="10.1002/(sici)1<1::aid_x>3.0.co;2-#")
    fields = parse_string(cited("bibtex", found)).entries[0].fields_dict
    assert fields["author"].value == "{SPRINT Research Group} and {Smith and Sons}"
    assert fields["doi"].value == "10.1002/(sici)1<1::aid_x>3.0.co;2-#"
    assert citation_of(found.evidence[0].document).names() == "SPRINT Research Group and Sons"
    assert [one.key for one in parse_string(cited("bibtex", one_paper(), one_paper())).entries] == ["paper"]


@some
@given(texts)
def test_cells_and_markdown_show_text_as_it_is(text: str) -> None:
    rows = list(csv.reader(io.StringIO(cited("csv", one_paper(text, text, authors=[text], journal=text)))))
    assert rows[0] == [*CLAIM, *PAPER] and [len(row) for row in rows] == [len(rows[0])] * 2
    assert all(cell == printable(cell) and not cell.startswith(tuple("=+-@\t\r＝＋－＠ ")) for cell in rows[1])
    assert rows[1][len(CLAIM) + 2].removeprefix("'") == " ".join(printable(text).split()).removeprefix("'")
    markdown = cited("md", one_paper(text, text))
    assert markdown.count("\n") == 6 and all(line == printable(line) for line in markdown[:-1].split("\n"))
    wanted = " ".join(printable(text).split())
    assert re.sub(r"\\([!-/:-@[-`{-~])", r"\1", _md(text)) == wanted
    bare = re.sub(r"\\.", "", _md(text))
    assert not re.search(r"[\\`*_\[\]<>#|&~$]", bare) and not re.match(r"[-+=]|\d+[.)]", _md(text))
    assert html.unescape(bare) == bare


@pytest.mark.parametrize(
    ("doi", "link"),
    [
        *(("10.1000/a_b_c", "<https://doi.org/10.1000/a_b_c>"), ("10.1000/x>y [z](u)", "(d1)")),
        ("10.1002/(SICI)1<1::AID>3", "<https://doi.org/10.1002/(sici)1%3C1::aid%3E3>"),
        ("10.1000/x|`y`", "<https://doi.org/10.1000/x%7C%60y%60>"),
    ],
)
def test_links_in_markdown_lead_to_the_doi(doi: str, link: str) -> None:
    found = one_paper(doi=doi)
    assert cited("md", found).splitlines()[4].endswith(f"Sea. {link} – supports")
    leaning = replace(found, evidence=(replace(found.evidence[0], stance=Stance("SUPPORTS", 0.5, decides=False)),))
    assert cited("md", leaning).splitlines()[4].endswith(f"Sea. {link} – leans to supporting it, confidence 0.50")
    assert leaning.evidence[0].to_dict()["stance"]["leans"] and ",SUPPORTS,true,0.5," in cited("csv", leaning)
    assert ",SUPPORTS,,," in cited("csv", found)


def test_a_paper_that_was_not_read_is_no_evidence_and_what_protects_a_reader_is_told() -> None:
    judge, difference = "small model: a lead to read", Difference("number", "3 %", "30 %")
    verdict = Verdict("NOT_ENOUGH_INFO", 0.07, "it leans", judge, reason="leans_to_support")
    found = replace(one_paper(first_author="de la Cruz, J. A."), verdict=verdict)
    (read,) = found.evidence
    read = replace(read, sentences=(replace(read.sentences[0], role="result", differences=(difference,)),))
    unread = replace(read.hit, rank=2, document=replace(read.document, id="d2"))
    found = replace(found, evidence=(read, replace(read, hit=unread, stance=Stance(None, 0.99, read=False))))
    check = Check(id="c", claim="", status="done", created="2026-11-28T14:23:25+00:00", kept=True)
    formats = ("md", "csv", "claims", "bibtex")
    markdown, table, claims, bibtex = (Citing(one).text(found, check, "http://h/c") for one in formats)
    first, *rest = (line for line in markdown.splitlines() if line)
    assert first == "## Claim: a claim" and rest[:3] == [
        "**Not enough information** (confidence 0.07, low): papers lean to supporting it, too weakly to say; it leans",
        *(f"Judged by {judge}", "Checked 2026-11-28 14:23 UTC in local:papers: <http://h/c>"),
    ]
    assert "(result, differs in a number (claim: 3 %, paper: 30 %))" in rest[4] and rest[5].endswith("not read")
    row, last = csv.DictReader(io.StringIO(table))
    told = ("Not enough information", "0.07", judge, "local:papers", "http://h/c", "de la Cruz, J. A.")
    names = ("verdict_in_words", "verdict_confidence", "judged_by", "collection", "address", "authors")
    assert tuple(row[name] for name in names) == told and row["differences"].startswith("differs in a number (claim: 3")
    assert (last["stance"], last["confidence"], last["sentences"]) == ("not read", "", "")
    (row,) = csv.DictReader(io.StringIO(claims))
    assert (row["papers"], row["supporting_says"]) == ("1 supporting; 1 not read", "supports")
    assert [one.key for one in parse_string(bibtex).entries] == ["delacruz"]


def test_a_part_of_a_claim_is_cited_with_the_paper_that_decides_it_and_sentences_in_the_order_of_the_paper() -> None:
    parts = (Part("it falls", "REFUTES", 0.9, None, ("d1",)), Part("it _rose_", "NOT_ENOUGH_INFO", 0.9))
    found = replace(one_paper(), verdict=Verdict("REFUTES", 0.9, parts=parts))
    places = ("C.", "text", 30), ("A.", "text", 0), ("T", "title", 0), ("B.", "text", 3)
    sentences = tuple(Sentence(text, field, at, at + 2, 0.5) for text, field, at in places)  # type: ignore[arg-type]
    found = replace(found, evidence=(replace(found.evidence[0], sentences=sentences),))
    (paper,), (claim,) = (csv.DictReader(io.StringIO(cited(one, found))) for one in ("csv", "claims"))
    assert [paper[name] for name in ("stance", "confidence", "part")] == ["REFUTES", "0.9", "it falls"]
    assert paper["sentences"] == "T … A. B. … C." and claim["reason"] == '1 of 2 claims refuted: "it falls"'
    assert (claim["supporting_says"], claim["refuting_says"]) == ("", 'refutes "it falls", confidence 0.90, high')
    assert ' – refutes "it falls", confidence 0.90, high\n' in cited("md", found)
