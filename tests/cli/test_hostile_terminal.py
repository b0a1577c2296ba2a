"""What strangers wrote steers no terminal and hides nothing, whichever way it is shown; arguments can be any bytes."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from pathlib import Path

import pytest
from cli_runs import BM25, ccheck, jsonl

from ccheck.core.text import is_unicode, json_line, printable, without_controls
from ccheck.core.trec import trec_lines

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
def store(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    assert ccheck("ingest", jsonl(tmp_path / "papers.jsonl", PAPER), "--no-dense", "--store", folder).code == 0
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


def test_every_output_of_a_query(store, tmp_path):
    claims = jsonl(tmp_path / "claims.jsonl", {"_id": f"c{HOSTILE}", "text": CLAIM})
    files = ["--run", tmp_path / "my.run", "--report", tmp_path / "page.html"]
    for given in ([CLAIM], [CLAIM, "--json"], [CLAIM, "--explain"], ["--claims", claims]):
        ran = ccheck("query", *given, "--store", store, *BM25, *files)
        assert ran.code == 0 and "Sea" in ran.out
        for shown in (ran.out, ran.err, *((file.read_text(encoding="utf-8")) for file in files[1::2])):
            assert not UNSAFE.search(shown), UNSAFE.search(shown)
    assert json.loads(ran.out)["evidence"][0]["doc_id"] == PAPER["_id"]


def test_previews_and_rejects(tmp_path):
    bad = {"_id": "x", "title": HOSTILE, "te\u202ext": "", "text": {"x": HOSTILE}}
    corpus = jsonl(tmp_path / "c\u202e\x9b.jsonl", PAPER, bad)
    for more in (["--dry-run"], ["--dry-run", "--json"], ["--json"]):
        ran = ccheck("ingest", corpus, "--no-dense", "--store", tmp_path / "s", "--rejects", tmp_path / "bad", *more)
        assert not UNSAFE.search(ran.out + ran.err), UNSAFE.search(ran.out + ran.err)
    assert not UNSAFE.search((tmp_path / "bad").read_text(encoding="utf-8"))


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are bytes on Linux")
def test_arguments_that_are_no_utf_8_are_no_bug(store, tmp_path):
    name = os.fsdecode(b"\xff")
    assert not is_unicode(name)
    for condition in (f"year={name}", f"ye{name}ar=1"):
        ran = ccheck("query", "sea", "--store", store, *BM25, "--filter", condition)
        assert ran.code == 2 and "is not valid UTF-8" in ran.err
    corpus = jsonl(tmp_path / "c.jsonl", PAPER)
    for command in (["query", "sea"], ["ingest", corpus, "--no-dense"]):
        ran = ccheck(*command, "--store", str(tmp_path / name))
        assert ran.code == 2 and "is not valid UTF-8" in ran.err
    assert not (tmp_path / name).exists()
    odd = corpus.rename(tmp_path / f"{name}.jsonl")
    assert ccheck("ingest", odd, "--no-dense", "--store", tmp_path / "s").code == 0
    files = [tmp_path / f"{name}.run", tmp_path / f"{name}.html"]
    ran = ccheck("query", f"sea {name}", "--store", store, *BM25, "--run", files[0], "--report", files[1])
    assert ran.code == 0 and all(file.is_file() for file in files)
    assert ccheck("query", "sea", "--store", store, "--recipe", name).code == 4


@pytest.mark.parametrize("step", ["json", "page", "cache", "temporary folder"])
def test_a_disk_that_fills_while_a_query_runs_is_no_bug(store, tmp_path, monkeypatch, step):
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    page = tmp_path / "page.html"
    page.write_text("of yesterday")
    where = {
        "json": "ccheck.cli.query.print_json",
        "page": "ccheck.core.files._Disk.put",
        "cache": "ccheck.core.cache.private_folder",
        "temporary folder": "tempfile.mkdtemp",
    }[step]
    monkeypatch.setattr(where, full)
    ran = ccheck("query", "sea", "--store", store, *BM25, "--report", page, "--json")
    assert ran.code in ((0,) if step == "cache" else (0, 7)), ran.err
    assert "a bug" not in ran.err and (ran.code == 0 or "No space left" in ran.err)
    assert page.read_text() == "of yesterday" or ran.code == 0
