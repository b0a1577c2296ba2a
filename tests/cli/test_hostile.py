"""What ccheck writes goes through no link, onto no store, database or input, and is there whole or not at all.

What strangers wrote steers no terminal and hides nothing, whichever way it is shown. Arguments can be any bytes.
"""

import errno
import json
import os
import re
import sqlite3
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli_runs import BM25, ccheck, jsonl

from ccheck.cli.query import outputs
from ccheck.core.errors import Incomplete, UsageError
from ccheck.core.files import STORE_FILE, check_folder, check_output, check_outputs, write_text, writing
from ccheck.core.text import is_unicode, json_line, printable, without_controls
from ccheck.core.trec import trec_lines
from ccheck.core.types import Claim, Document, Evidence, Hit, Result
from ccheck.lab.train.loop import Output, work_folder
from ccheck.service import Check

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="links and modes as Unix has them")

PAPERS = [{"_id": f"d{number}", "text": f"Sea level rose by {number} cm."} for number in range(3)]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    assert ccheck("ingest", jsonl(tmp_path / "papers.jsonl", *PAPERS), "--no-dense", "--store", folder).code == 0
    return folder


def test_a_link_in_the_place_of_the_rejects_is_not_followed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "theirs").mkdir()
    mine = tmp_path / "mine.txt"
    mine.write_text("my work")
    corpus = jsonl(tmp_path / "theirs" / "corpus.jsonl", *PAPERS, {"_id": "x", "text": ""})
    (tmp_path / "theirs" / "corpus.jsonl.rejects.jsonl").symlink_to(mine)
    ran = ccheck("ingest", corpus, "--no-dense", "--store", tmp_path / "store")
    assert ran.code == 7 and mine.read_text() == "my work" and "symbolic link" in ran.err
    assert "empty text" in (tmp_path / "corpus.jsonl.rejects.jsonl").read_text()  # in the folder where the user is


@pytest.mark.parametrize("option", ["--run", "--report"])
def test_a_query_writes_onto_no_link_store_or_database(store, tmp_path, option):
    database = store / STORE_FILE
    before = {file: file.read_bytes() for file in store.rglob("*") if file.is_file()}
    mine = tmp_path / "mine.txt"
    mine.write_text("my work")
    (tmp_path / "link").symlink_to(mine)
    (tmp_path / "nowhere").symlink_to(tmp_path / "not there")
    (tmp_path / "into").symlink_to(store)
    (store / "below").mkdir()
    sqlite3.connect(tmp_path / "cache.sqlite").execute("CREATE TABLE t (x)").connection.close()
    for place, reason in (
        (database, "is a store"),
        (store / "new.run", "is a store"),
        (store / "below" / "new.run", "is a store"),
        (tmp_path / "into" / "new.run", "is a store"),
        (tmp_path / "link", "symbolic link"),
        (tmp_path / "nowhere", "symbolic link"),
        (tmp_path / "cache.sqlite", "is a database"),
        (tmp_path / "cache.sqlite-wal", "is a database"),
    ):
        ran = ccheck("query", "sea level", "--store", store, *BM25, option, place)
        assert ran.code == 2 and reason in ran.err and str(place) in ran.err, (place, ran.err)
    assert mine.read_text() == "my work" and not (tmp_path / "not there").exists()
    assert {file: file.read_bytes() for file in store.rglob("*") if file.is_file()} == before


def test_no_output_is_an_input_or_another_output(store, tmp_path):
    claims = jsonl(tmp_path / "claims.jsonl", {"text": "sea level"})
    (tmp_path / "same.jsonl").hardlink_to(claims)
    for option in ("--run", "--report"):
        for place in (claims, tmp_path / "same.jsonl", tmp_path / "." / "claims.jsonl"):
            ran = ccheck("query", "--claims", claims, "--store", store, *BM25, option, place)
            assert ran.code == 2 and "this command reads that file" in ran.err and "sea" in claims.read_text()
    ran = ccheck("query", "sea", "--store", store, *BM25, "--run", tmp_path / "out", "--report", tmp_path / "out")
    assert ran.code == 2 and "is written there too" in ran.err and not (tmp_path / "out").exists()
    (tmp_path / "way").symlink_to(tmp_path)
    with pytest.raises(UsageError, match="the run is written there too"):
        check_outputs([(tmp_path / "a", "the run"), (None, "x"), (tmp_path / "way" / "a", "the report")])


@pytest.mark.parametrize("command", ["evaluate", "averitec", "mine", "calibrate"])
def test_other_commands_write_onto_no_store_and_no_input(store, tmp_path, command):
    claims = jsonl(tmp_path / "claims.jsonl", {"_id": "c1", "text": "sea level"})
    qrels = tmp_path / "qrels.tsv"
    qrels.write_text("query-id\tcorpus-id\tscore\nc1\td1\t1\n")
    given = ["--claims", claims, "--qrels", qrels, "--store", store]
    pairs = jsonl(tmp_path / "pairs.jsonl", {"claim": "a", "evidence": "b", "label": "SUPPORTS"})
    ways: dict[str, list[object]] = {
        "evaluate": ["evaluate", "bm25", *given, "--run"],
        "averitec": ["evaluate", "averitec-questions", "--averitec", qrels, "--out"],
        "mine": ["mine", *given, "-o"],
        "calibrate": ["calibrate", pairs, "--stance", tmp_path / "none", "-o"],
    }
    for place in (store / STORE_FILE, pairs if command == "calibrate" else qrels):
        before = place.read_bytes()
        ran = ccheck(*ways[command], place)
        assert ran.code == 2 and f"can't be written to {place}" in ran.err, ran.err
        assert place.read_bytes() == before


def test_folders_of_models_replace_no_file_link_store_or_folder_of_something_else(store, tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    for place in (tmp_path / "file", tmp_path / "link", store, store / "model"):
        with pytest.raises(UsageError, match="can't be written to"):
            check_folder(place, "the model")
    assert check_folder(tmp_path / "new", "the model") == tmp_path / "new"
    photos, work = tmp_path / "photos", tmp_path / "new.training"
    for folder in (photos, work):
        folder.mkdir()
        (folder / "one.jpg").write_text("x")
    for folder, why in ((photos, "already exists"), (tmp_path / "new", "not a training folder")):
        with pytest.raises(UsageError, match=why), work_folder(Output(folder), "{}"):
            pass
    (work / "one.jpg").rename(work / ".ccheck-x")
    with work_folder(new := Output(tmp_path / "new", resume=True), "{}"):
        for output in (new, Output(new.folder)):
            with pytest.raises(UsageError, match="another training works in"), work_folder(output, "{}"):
                pass
        assert (work / ".ccheck-x").rename(work / "one.jpg")
    assert (photos / "one.jpg").is_file() and (work / "one.jpg").is_file()


def test_a_link_of_another_user_on_the_way_is_refused(tmp_path, monkeypatch):
    (tmp_path / "real").mkdir()
    (tmp_path / "way").symlink_to(tmp_path / "real")
    assert check_output(tmp_path / "way" / "my.run", "the run")
    monkeypatch.setattr(os, "getuid", lambda: os.lstat(tmp_path / "way").st_uid + 1)
    if os.lstat(tmp_path / "way").st_uid == 0:  # root's links are the system's
        os.lchown(tmp_path / "way", 4321, -1)
    with pytest.raises(UsageError, match="another user made"):
        check_output(tmp_path / "way" / "my.run", "the run")


def test_a_file_keeps_the_mode_of_the_one_before_and_no_unicode_is_written_escaped(tmp_path):
    old = tmp_path / "old"
    old.write_text("old")
    old.chmod(0o604)
    mask = os.umask(0o027)
    try:
        write_text(old, "new\n")
        write_text(tmp_path / "new", "new\n")
    finally:
        os.umask(mask)
    assert (old.read_text(), stat.S_IMODE(old.stat().st_mode)) == ("new\n", 0o604)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
    assert sorted(file.name for file in tmp_path.iterdir()) == ["new", "old"]
    with writing(tmp_path / "a", "it") as stream:
        stream.write("\ud800\r\n")
    assert (tmp_path / "a").read_bytes() == b"\\ud800\r\n"


def full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch, call):
    target = tmp_path / "my.run"
    target.write_text("before")
    if call == "write":
        monkeypatch.setattr("ccheck.core.files._Disk.put", full)
    else:
        monkeypatch.setattr(os if call == "fsync" else Path, call, full)
    with pytest.raises(Incomplete, match=r"the run could not be written .*No space left on device.*unchanged"):
        write_text(target, "x" * 100_000, "the run")
    assert target.read_text() == "before" and [file.name for file in tmp_path.iterdir()] == ["my.run"]


def found(text: str) -> Result:
    evidence = Evidence(Hit(1, Document("d", "", text), 1.0))
    return Result(Claim(text, "c"), (evidence,), None, "bm25", "local:s")


def ended_by(error: type[BaseException], files: tuple[Path, Path], written: int) -> None:
    with pytest.raises(error), outputs(str(files[0]), str(files[1]), dict) as write:
        for number in range(written):
            write(Check(id="1", claim="a claim", status="done"), found(f"claim {number}"))
        raise error


@pytest.fixture
def earlier(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    files = tmp_path / "my.run", tmp_path / "page.html"
    for file in files:
        file.write_text("of yesterday")
    yield files
    assert not list(tmp_path.glob(".ccheck-*"))


def test_an_error_and_an_interrupt_keep_the_earlier_files_until_something_was_answered(earlier, capsys):
    ended_by(RuntimeError, earlier, 1)
    ended_by(KeyboardInterrupt, earlier, 0)
    assert [file.read_text() for file in earlier] == ["of yesterday"] * 2
    assert "nothing was written to" in capsys.readouterr().err
    ended_by(KeyboardInterrupt, earlier, 1)
    assert earlier[0].read_text().startswith("c Q0 d 1 1.0") and "claim 0" in earlier[1].read_text()


def test_claims_that_are_none_keep_the_earlier_files(earlier, store, tmp_path):
    claims = tmp_path / "empty.jsonl"
    claims.write_text("\n")
    ran = ccheck("query", "--claims", claims, "--store", store, *BM25, "--run", earlier[0], "--report", earlier[1])
    assert [file.read_text() for file in earlier] == ["of yesterday"] * 2
    assert "has no claims" in ran.err and "nothing was written to" in ran.err and "unchanged" in ran.err
    new = ccheck("query", "--claims", claims, "--store", store, *BM25, "--run", tmp_path / "new.run")
    assert new.code == ran.code and not (tmp_path / "new.run").exists()


STEERING = [*range(9), *range(0xB, 0x20), *range(0x7F, 0xA0), 0x61C, 0x200E, 0x200F]
STEERING += [*range(0x202A, 0x202F), *range(0x2066, 0x206A)]
HOSTILE = "".join(map(chr, [*STEERING, 0x2028, 0x2029]))
UNSAFE = re.compile(rf"[{''.join(map(re.escape, map(chr, STEERING)))}\u2028\u2029\ud800-\udfff]")
PAPER = {
    "_id": "d\u061c1",
    "title": f"A{HOSTILE}title",
    "text": f"Sea{HOSTILE} level has\x1b]0;pwned\x07 risen.\u202e",
    "j\u2066ournal": f"N{HOSTILE}",
    "year": "\u202e2000",
}
CLAIM = f"sea{HOSTILE} level"


@pytest.fixture
def steering(tmp_path: Path) -> Path:
    folder = tmp_path / "steering"
    assert ccheck("ingest", jsonl(tmp_path / "steering.jsonl", PAPER), "--no-dense", "--store", folder).code == 0
    return folder


def test_each_way_to_show_takes_out_or_escapes_the_same():
    text = f"a{HOSTILE}b\tc\n"
    assert not UNSAFE.search(without_controls(text)) and without_controls(text) == "a\n\nb\tc\n"
    assert printable(text) == "a  b c "
    line = json_line({text: [text, "\ud800"]})
    assert not UNSAFE.search(line) and line.count("\n") == 1 and line.encode()
    assert json.loads(line) == {text: [text, "\ud800"]}
    (written,) = trec_lines(text, [(text, 1.0)], text)
    assert not UNSAFE.search(written) and len(written.split()) == 6


def test_every_output_of_a_query_previews_and_rejects(steering, tmp_path):
    claims = jsonl(tmp_path / "claims.jsonl", {"_id": f"c{HOSTILE}", "text": CLAIM})
    files = ["--run", tmp_path / "my.run", "--report", tmp_path / "page.html"]
    for given in ([CLAIM], [CLAIM, "--json"], [CLAIM, "--explain"], ["--claims", claims]):
        ran = ccheck("query", *given, "--store", steering, *BM25, *files)
        assert ran.code == 0 and "Sea" in ran.out and ("     bm25: rank 1, " in ran.out) == ("--explain" in given)
        for shown in (ran.out, ran.err, *((file.read_text(encoding="utf-8")) for file in files[1::2])):
            assert not UNSAFE.search(shown), UNSAFE.search(shown)
    assert json.loads(ran.out)["evidence"][0]["doc_id"] == PAPER["_id"]
    bad = {"_id": "x", "title": HOSTILE, "te\u202ext": "", "text": {"x": HOSTILE}}
    corpus = jsonl(tmp_path / "c\u202e\x9b.jsonl", PAPER, bad)
    for more in (["--dry-run"], ["--dry-run", "--json"], ["--json"]):
        ran = ccheck("ingest", corpus, "--no-dense", "--store", tmp_path / "s", "--rejects", tmp_path / "bad", *more)
        assert not UNSAFE.search(ran.out + ran.err), UNSAFE.search(ran.out + ran.err)
    assert not UNSAFE.search((tmp_path / "bad").read_text(encoding="utf-8"))


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are bytes on Linux")
def test_arguments_that_are_no_utf_8_are_no_bug(steering, tmp_path):
    name = os.fsdecode(b"\xff")
    assert not is_unicode(name)
    for condition in (f"year={name}", f"ye{name}ar=1"):
        ran = ccheck("query", "sea", "--store", steering, *BM25, "--filter", condition)
        assert ran.code == 2 and "is not valid UTF-8" in ran.err
    corpus = jsonl(tmp_path / "c.jsonl", PAPER)
    for command in (["query", "sea"], ["ingest", corpus, "--no-dense"]):
        ran = ccheck(*command, "--store", str(tmp_path / name))
        assert ran.code == 2 and "is not valid UTF-8" in ran.err
    assert not (tmp_path / name).exists()
    odd = corpus.rename(tmp_path / f"{name}.jsonl")
    assert ccheck("ingest", odd, "--no-dense", "--store", tmp_path / "s").code == 0
    files = [tmp_path / f"{name}.run", tmp_path / f"{name}.html"]
    ran = ccheck("query", f"sea {name}", "--store", steering, *BM25, "--run", files[0], "--report", files[1])
    assert ran.code == 0 and all(file.is_file() for file in files)
    assert ccheck("query", "sea", "--store", steering, "--recipe", name).code == 4


@pytest.mark.parametrize("step", ["json", "page", "cache", "temporary folder"])
def test_a_disk_that_fills_while_a_query_runs_is_no_bug(steering, tmp_path, monkeypatch, step):
    page = tmp_path / "page.html"
    page.write_text("of yesterday")
    where = {
        "json": "ccheck.cli.query.print_json",
        "page": "ccheck.core.files._Disk.put",
        "cache": "ccheck.core.cache.private_folder",
        "temporary folder": "tempfile.mkdtemp",
    }[step]
    monkeypatch.setattr(where, full)
    ran = ccheck("query", "sea", "--store", steering, *BM25, "--report", page, "--json")
    assert ran.code in ((0,) if step == "cache" else (0, 7)), ran.err
    assert "a bug" not in ran.err and (ran.code == 0 or "No space left" in ran.err)
    assert page.read_text() == "of yesterday" or ran.code == 0
