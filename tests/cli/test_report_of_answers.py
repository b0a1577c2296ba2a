"""`ccheck report`: a page of answers that were saved, which may be anybody's."""

from __future__ import annotations

import csv
import html
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from bibtexparser.entrypoint import parse_string
from cli_runs import BM25, ccheck, jsonl
from html_page import HOSTILE, Element, parse
from hypothesis import given, settings
from hypothesis import strategies as st
from pylatexenc.latex2text import LatexNodes2Text
from report_results import MANY, RATE, ROSE, piece, result

from ccheck.core.answers import MOST_BYTES, result_of
from ccheck.core.citation import citation_of
from ccheck.core.question import Citation, QuestionAnswer
from ccheck.core.text import printable
from ccheck.core.types import Claim, Document, Evidence, Hit, Result, Sentence, Stance, Unit, Usage, Verdict
from ccheck.web.citing import COLUMNS, Citing, _md

FULL = result(
    piece(ROSE, RATE, stance=Stance("SUPPORTS", 0.9, "It says so.", None, {"SUPPORTS": 0.9})),
    claim=Claim("Seas rise", "c1"),
    warnings=("half was left out",),
    timings_ms={"verdict": 12.0},
    usage_by_stage={"verdict": Usage(2, 1000, 30, 1)},
    scored_by={"bm25": "retriever"},
    relevance=0.9,
)


def page(file: str = "answers.html") -> Element:
    return parse(Path(file).read_text(encoding="utf-8"))


def test_an_answer_reads_back_as_it_was() -> None:
    asked = QuestionAnswer("How much?", ("sea rise",), "20 cm", (Citation("d1", 0, 4, "Tide"),))
    found = Unit("sentence", 1, 0, 4, "Tide")
    for one in (*MANY, FULL, result(questions=(asked,)), result(piece(ROSE, title=""))):
        saved = json.loads(json.dumps(one.to_dict()))
        assert result_of(saved).to_dict() == saved
    saved = FULL.to_dict()
    saved["evidence"][0]["unit"] = {name: getattr(found, name) for name in found.__slots__}
    assert result_of(saved).evidence[0].hit.unit == found


def test_the_page_of_a_run_is_the_page_of_its_answers(papers: Path, tmp_path: Path) -> None:
    claims = jsonl(tmp_path / "claims.jsonl", {"_id": "a", "text": "sea level rises"}, {"_id": "b", "text": ""})
    ran = ccheck("query", "--claims", claims, "--store", papers, *BM25, "--report", "run.html")
    Path("answers.jsonl").write_text(ran.out + ran.out[:60])
    made = ccheck("report", "answers.jsonl")
    assert made.code == 0 and "2 claims in answers.html" in made.err and "line 3 is incomplete" in made.err
    one, other = page("run.html"), page()
    assert [title.words for title in one.all("h3")] == [title.words for title in other.all("h3")] != []
    assert one.one(id="c2").one(class_="verdict").words == other.one(id="c2").one(class_="verdict").words
    marks = {mark.words for mark in other.one(id="c1").all("mark")}
    assert (
        marks == {s["text"] for s in ran.objects[0]["evidence"][0]["sentences"]} | marks
        and "not found in" not in other.words
    )
    assert "read from answers.jsonl" in other.one("footer").words


def test_standard_input_and_other_places(tmp_path: Path) -> None:
    line = json.dumps(FULL.to_dict()) + "\n"
    assert ccheck("report", "-", "-q", stdin=line).code == 0 and page().one("h1")
    jsonl(tmp_path / "a.jsonl", FULL.to_dict())
    assert ccheck("report", "a.jsonl", "-o", "b.html").code == 0 and page("b.html").one("h1")
    ran = ccheck("report", "a.jsonl", "-o", "a.jsonl")
    assert ran.code == 2 and "reads that file" in ran.err and Path("a.jsonl").read_text().startswith("{")


def test_hostile_answers_are_text(tmp_path: Path) -> None:
    def hostile(value: Any) -> Any:
        if isinstance(value, str):
            return value if value in ("SUPPORTS", "title", "text", "retriever") else HOSTILE
        if isinstance(value, dict):
            return {key: hostile(one) for key, one in value.items()}
        return [hostile(one) for one in value] if isinstance(value, list) else value

    saved = hostile(FULL.to_dict())
    saved["evidence"][0] |= {
        "scores": {HOSTILE: 1.0},
        "ranks": {HOSTILE: 1},
        "metadata": {"doi": HOSTILE, "year": HOSTILE},
    }
    saved["evidence"][0]["grounding"] = {
        "figures": [{"label": HOSTILE, "caption": HOSTILE, "image": HOSTILE}],
        "passages": [{"text": HOSTILE, "section": HOSTILE}],
    }
    saved |= {"timings_ms": {HOSTILE: 1.0}, "usage_by_stage": {HOSTILE: FULL.usage.to_dict()}}
    jsonl(tmp_path / "answers.jsonl", saved)
    assert ccheck("report", "answers.jsonl").code == 0
    text = Path("answers.html").read_text(encoding="utf-8")
    html = parse(text)
    assert len(html.all("script")) == 1 and not html.all("img")
    assert html.all("svg") == html.all("svg", class_="bar")
    assert all(not name.startswith("on") for one in html for name in one.attributes)
    assert not set("\u202e\u2066\x00\x1b\ud800") & set(text) and "default-src 'none'" in text


def changed(*path: str | int, to: object) -> dict[str, Any]:
    saved = json.loads(json.dumps(FULL.to_dict()))
    at = saved
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = to
    return saved


@pytest.mark.parametrize(
    "saved",
    [
        "no object",
        {"_id": "c1", "text": "a claim"},
        changed("evidence", to={"a": 1}),
        changed("evidence", 0, "rank", to="first"),
        changed("evidence", 0, "rank", to=10**400),
        changed("evidence", 0, "score", to=10**400),
        changed("evidence", 0, "score", to=None),
        changed("evidence", 0, "title", to=["x"]),
        changed("evidence", 0, "metadata", to={"a": {"b": 1}}),
        changed("evidence", 0, "stance", "label", to="</script>"),
        changed("evidence", 0, "stance", "probabilities", to={"SUPPORTS": "x"}),
        changed("evidence", 0, "sentences", 0, "field", to="secret"),
        changed("evidence", 0, "grounding", to={"figures": [{}]}),
        changed("verdict", "label", to="TRUE"),
        changed("verdict", to="SUPPORTS"),
        changed("timings_ms", to={"verdict": "long"}),
        changed("questions", to=[{"answer": 1}]),
        changed("scored_by", to={"bm25": "oracle"}),
        changed("claim", to={"id": 7, "text": None}),
    ],
)
def test_what_is_no_answer_is_refused_with_its_line(tmp_path: Path, saved: object) -> None:
    jsonl(tmp_path / "answers.jsonl", FULL.to_dict(), saved)
    Path("answers.html").write_text("mine")
    ran = ccheck("report", "answers.jsonl")
    assert (ran.code, ran.out) == (5, "") and "answers.jsonl, line 2" in ran.err and ran.err.count("\n") == 1
    assert Path("answers.html").read_text() == "mine"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 5),
        ("\n\n", 5),
        ("[" * 100_000 + "\n", 5),
        ('{"claim": NaN}\n', 5),
        ('{"claim": 1' + "0" * 5000 + "}\n", 5),
        ("\x80\n", 5),
        (None, 4),
    ],
)
def test_files_without_answers(text: str | None, code: int) -> None:
    if text is not None:
        Path("answers.jsonl").write_text(text, encoding="latin-1")
    ran = ccheck("report", "answers.jsonl")
    assert ran.code == code and "answers.jsonl" in ran.err and not Path("answers.html").exists()


def test_a_line_without_end_is_not_read_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert MOST_BYTES < 1 << 30
    monkeypatch.setattr("ccheck.core.answers.MOST_BYTES", 100)
    jsonl(tmp_path / "answers.jsonl", FULL.to_dict())
    assert ccheck("report", "answers.jsonl").code == 5


# -- citations that others' programs read: BibTeX, CSV and Markdown, parsed again as those programs do


TRICKY = (
    *("{", "}", "}}", "\\", "\\{", "{x", "x}, note = {owned", "x},\n@misc{evil, title={y}", '"', "@article{a,", "@é{"),
    *("%", "$x_1^2$", "~", "#", "&", "<b>", "50%", "\\input{/etc/passwd}", "a -- b", "é Å α 漢 🙂", "\u202ex"),
    *("\x1b[31m", "=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", " =1", "\x00=1", "\u200f=1", "＝1", "'=1"),
    *(
        '";=1',
        "a,b\r\nc",
        "- item",
        "1. item",
        "+ x",
        "# head",
        "> quote",
        "[a](javascript:x)",
        "<https://x>",
        "![i](u)",
    ),
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


def cited(format_: str, *results: Result) -> str:
    citing = Citing(format_)
    return "".join(citing.text(one) for one in results)


@some
@given(texts)
def test_bibtex_is_one_entry_with_this_text(text: str) -> None:
    metadata = {"authors": [text, "Smith, Anna"], "journal": text, "volume": text, "url": text, "year": 2019}
    written = cited("bibtex", one_paper(text, **metadata))
    assert written.count("{") == written.count("}")
    library = parse_string(written)
    assert library.failed_blocks == [] and len(library.blocks) == len(library.entries) == 1
    (entry,) = library.entries
    fields = entry.fields_dict
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


def test_bibtex_has_a_key_for_each_paper() -> None:
    keys = [one.key for one in parse_string(cited("bibtex", one_paper(), one_paper())).entries]
    assert keys == ["paper"]


@some
@given(texts)
def test_cells_are_text(text: str) -> None:
    rows = list(csv.reader(io.StringIO(cited("csv", one_paper(text, text, authors=[text], journal=text)))))
    assert rows[0] == list(COLUMNS) and [len(row) for row in rows] == [len(COLUMNS)] * 2
    for cell in rows[1]:
        assert cell == printable(cell) and not cell.startswith(tuple("=+-@\t\r＝＋－＠ "))
    assert rows[1][6].removeprefix("'") == " ".join(printable(text).split()).removeprefix("'")


@some
@given(texts)
def test_markdown_shows_text_as_it_is(text: str) -> None:
    markdown = cited("md", one_paper(text, text))
    assert markdown.count("\n") == 6 and markdown == "".join(map(printable_line, markdown.splitlines(True)))
    wanted = " ".join(printable(text).split())
    assert re.sub(r"\\([!-/:-@[-`{-~])", r"\1", _md(text)) == wanted
    bare = re.sub(r"\\.", "", _md(text))
    assert not re.search(r"[\\`*_\[\]<>#|&~$]", bare) and not re.match(r"[-+=]|\d+[.)]", _md(text))
    assert html.unescape(bare) == bare


def printable_line(line: str) -> str:
    return printable(line.rstrip("\n")) + "\n"


@pytest.mark.parametrize(
    ("doi", "link"),
    [
        ("10.1000/a_b_c", "<https://doi.org/10.1000/a_b_c>"),
        ("10.1002/(SICI)1<1::AID>3", "<https://doi.org/10.1002/(sici)1%3C1::aid%3E3>"),
        ("10.1000/x>y [z](u)", "(d1)"),
        ("10.1000/x|`y`", "<https://doi.org/10.1000/x%7C%60y%60>"),
    ],
)
def test_links_in_markdown_lead_to_the_doi(doi: str, link: str) -> None:
    assert cited("md", one_paper(doi=doi)).splitlines()[4].endswith(f"Sea. {link} **SUPPORTS**")
