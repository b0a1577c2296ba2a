"""Every format has the same limits: a file that takes too long or too much memory is a reject, and the rest is read."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from ccheck.articles.types import article_of_record
from ccheck.core import child
from ccheck.ingest import Record, Reject, apart, read

JATS = "<article><front/><body><p>Sea level rose by 20 cm.</p>{}</body></article>"


def outcome(*files: Path) -> dict[str, str]:
    """The reason of each reject, and empty for what was read, by the file's name."""
    found: dict[str, str] = {}
    for one in read(list(files)):
        found[Path(one.file).name] = one.reason if isinstance(one, Reject) else ""
    return found


def test_a_slow_page_ends_and_the_next_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("trafilatura")
    attributes = " ".join(f"a{number}=1" for number in range(200_000))
    (tmp_path / "a.html").write_text(f"<html><body><p {attributes}>Seas rise.</p></body></html>")
    (tmp_path / "b.jsonl").write_text('{"_id": "1", "text": "Ice melts."}')
    monkeypatch.setattr(child, "SECONDS", 1.0)
    monkeypatch.setattr(child, "SECONDS_A_MIB", 0.0)
    found = outcome(tmp_path / "a.html", tmp_path / "b.jsonl")
    assert "too long" in found["a.html"] and found["b.jsonl"] == ""


@pytest.mark.parametrize("suffix", ["html", "xml", "bib", "pdf", "docx", "xlsx", "parquet", "nbib", "ris"])
def test_every_format_that_a_library_parses_is_read_in_the_other_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    asked: list[object] = []

    def refuse(self: child.Child, size: int, /, **given: object) -> None:
        asked.append(given["format"])
        raise child.Ended("it takes too long")

    monkeypatch.setattr(child.Child, "ask", refuse)
    (tmp_path / f"a.{suffix}").write_bytes(b"x")
    assert "it takes too long" in outcome(tmp_path / f"a.{suffix}")[f"a.{suffix}"] and len(asked) == 1


def test_links_to_one_figure_take_linear_time(tmp_path: Path) -> None:
    links = '<xref ref-type="fig" rid="f">x</xref> ' * 30_000
    figure = '<fig id="f"><label>Fig 1</label><caption><p>Seas.</p></caption></fig>'
    (tmp_path / "a.xml").write_text(JATS.format(f"<p>{links}</p>{figure}"))
    [record] = read([tmp_path / "a.xml"])
    assert isinstance(record, Record)
    article = article_of_record(record.data)
    assert len(article.elements[0].mentions) == 30_000


def test_an_inverted_index_of_one_long_word(tmp_path: Path) -> None:
    index = {"x" * 100_000: list(range(50_000))}
    row = json.dumps({"id": "https://openalex.org/W1", "abstract_inverted_index": index})
    (tmp_path / "a.jsonl").write_text(row + '\n{"_id": "1", "text": "x"}\n')
    first, second = read([tmp_path / "a.jsonl"])
    assert isinstance(first, Reject) and "too long" in first.reason and isinstance(second, Record)


# -- archives


def archive(file: Path, **members: str) -> Path:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, text in members.items():
            packed.writestr(name.replace("__", "."), text)
    return file


def test_a_zip_of_papers(tmp_path: Path) -> None:
    references = "TY  - JOUR\nID  - r1\nTI  - Seas\nER  - \n"
    file = archive(
        tmp_path / "papers.zip",
        a__xml=JATS.format(""),
        b__jsonl='{"_id": "1", "text": "Ice melts."}\n{"_id": 2}\n[]\n',
        c__ris=references,
        d__png="x",
        e__xml="<article>",
    )
    found = list(read([file]))
    records = [one for one in found if isinstance(one, Record)]
    assert [one.data["_id"] for one in records] == ["a", "1", 2, "r1"]
    assert [(one.file.rpartition("/")[2], one.line) for one in found if isinstance(one, Reject)] == [
        ("b.jsonl", 3),
        ("e.xml", 1),
    ]


def test_a_zip_without_papers_or_in_a_zip_or_damaged(tmp_path: Path) -> None:
    inner = archive(tmp_path / "a.zip", a__png="x")
    (reject,) = read([inner])
    assert isinstance(reject, Reject) and "no file" in reject.reason
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as packed:
        packed.write(inner, "a.zip")
    (reject,) = read([tmp_path / "b.zip"])
    assert isinstance(reject, Reject) and "archive in an archive" in reject.reason
    (tmp_path / "c.zip").write_bytes(b"PK\x03\x04")
    (reject,) = read([tmp_path / "c.zip"])
    assert isinstance(reject, Reject) and "can't be read" in reject.reason


def test_a_zip_bomb_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apart, "UNPACKED_BYTES", 10_000)
    monkeypatch.setattr(apart, "UNPACKED", 0)
    row = '{"_id": "1", "text": "x"}\n'
    file = archive(tmp_path / "bomb.zip", a__jsonl=row, b__jsonl=" " * 20_000, c__jsonl=row)
    first, second = read([file])
    assert isinstance(first, Record) and isinstance(second, Reject) and "unpacks to more than" in second.reason
