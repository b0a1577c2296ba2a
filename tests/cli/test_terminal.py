"""ccheck as a program: pipes, terminals, signals, full disks."""

import contextlib
import json
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_runs import BM25, ESCAPE, ccheck, command, environment, jsonl, program

from ccheck.demo import CORPUS

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="pipes, terminals and signals as Unix has them"),
    pytest.mark.slow,
]
SEA = "sea level has risen 20 cm since 1900"


def on_terminal(*arguments: object, columns: int = 80, stdout: int | None = None, **changes: str) -> tuple[int, str]:
    """The exit code and what a terminal got; `stdout` takes standard output elsewhere."""
    import fcntl
    import pty
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environ = environment(**({"TERM": "xterm-256color"} | changes))
    for name in ("COLUMNS", "LINES", "NO_COLOR"):
        if name not in changes:
            environ.pop(name, None)
    process = subprocess.Popen(
        command(*arguments), stdin=theirs, stdout=theirs if stdout is None else stdout, stderr=theirs, env=environ
    )
    os.close(theirs)
    seen = b""
    with contextlib.suppress(OSError):  # the last one who had the terminal open has gone
        while piece := os.read(ours, 65536):
            seen += piece
    os.close(ours)
    return process.wait(), seen.decode().replace("\r\n", "\n")


def test_progress_on_a_terminal_leaves_standard_output_alone(papers, tmp_path):
    claims = jsonl(tmp_path / "claims.jsonl", *({"text": SEA} for _ in range(100)))
    query = ("query", "--claims", claims, "--store", papers, *BM25, "--verdict", "none")
    with (tmp_path / "answers.jsonl").open("wb") as answers:
        code, seen = on_terminal(*query, stdout=answers.fileno())
    assert code == 0 and "claims" in seen and "100/100" in seen and "doc_id" not in seen
    assert len([json.loads(line) for line in (tmp_path / "answers.jsonl").read_text().splitlines()]) == 100
    code, seen = on_terminal(*query, "-k", "1")
    assert code == 0 and [json.loads(line)["claim"]["id"] for line in seen.splitlines()] == [
        str(i) for i in range(1, 101)
    ]


def test_a_terminal_gets_colours_and_lines_that_fit_and_how_far_an_ingest_is(tmp_path, papers):
    with (tmp_path / "out").open("wb") as out:
        code, seen = on_terminal("ingest", CORPUS, "--no-dense", "--json", stdout=out.fileno())
    assert code == 0 and "71 documents" in ESCAPE.sub("", seen) and "added" in seen
    assert json.loads((tmp_path / "out").read_text())["added"] == 71
    code, seen = on_terminal("ingest", CORPUS, "--no-dense", "--quiet")
    assert (code, seen) == (0, "")
    code, seen = on_terminal("query", SEA, "--store", papers, *BM25, columns=44)
    assert code == 0 and "\x1b[1m" in seen
    lines = [ESCAPE.sub("", line) for line in seen.split("\n")]
    assert max(map(len, lines)) <= 44 and not [line for line in lines if line != line.rstrip()]
    first = next(i for i, line in enumerate(lines) if line.startswith("  1  "))
    entry = lines[first + 1 : lines.index("", first)]
    assert entry and all(line.startswith("     ") for line in entry)  # what belongs to a document stands under it


def test_a_reader_that_goes_is_no_error(papers, tmp_path):
    claims = jsonl(tmp_path / "claims.jsonl", *({"text": SEA} for _ in range(300)))
    for arguments in (["--claims", claims], [SEA]):
        asked = command("query", *arguments, "--store", papers, *BM25, "--verdict", "none")
        process = subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdout.readline()
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == (b"", 0)
        process.stderr.close()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("arguments", [["--help"], ["recipes", "show", "default"], ["query", SEA, "--json"]])
def test_a_full_disk_is_no_bug(papers, arguments, monkeypatch):
    monkeypatch.setenv("CCHECK_STORE", str(papers))
    with Path("/dev/full").open("wb") as stream:
        ran = program(*arguments, capture_output=False, stdout=stream, stderr=subprocess.PIPE)
    assert ran.code == 7 and ran.err.startswith("ccheck: the output could not be written: No space left")
    assert "a bug" not in ran.err and "Traceback" not in ran.err and "Exception ignored" not in ran.err


def test_closed_streams_are_empty(papers):
    base = command("query", "--store", papers, *BM25)
    for streams, arguments, code in (
        (">&-", [SEA], 0),
        ("2>&-", [SEA], 0),
        ("<&-", ["-"], 2),
        ("<&-", ["--claims", "-"], 0),
    ):
        done = subprocess.run(
            ["sh", "-c", f'"$@" {streams}', "sh", *base, *arguments], capture_output=True, check=False
        )
        assert done.returncode == code, (streams, done.stderr)
        assert b"a bug" not in done.stderr and b"Traceback" not in done.stderr


def test_utf_8_whatever_the_locale(papers):
    environ = environment(LC_ALL="C", PYTHONIOENCODING="ascii", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    for arguments in (["ingest", "--help"], ["query", "€ “sea” level", "--store", papers, *BM25]):
        assert program(*arguments, env=environ).code == 0
    ran = program("query", "€ sea", "--store", papers, *BM25, "--json", env=environ)
    assert ran.objects[0]["claim"]["text"] == "€ sea"
    ran = program("query", b"bad \xff\xfe bytes: sea level", "--store", papers, *BM25, "--json")
    assert ran.code == 0 and ran.objects[0]["evidence"]
    assert program("ingest", b"no \xff such file").code == 4


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_ctrl_c_keeps_what_is_stored_and_the_next_run_goes_on(tmp_path):
    documents = [{"_id": f"d{i}", "text": f"paper number{i} on the sea"} for i in range(5_000)]
    whole = jsonl(tmp_path / "whole.jsonl", *documents)
    os.mkfifo(tmp_path / "pipe.jsonl")
    store = tmp_path / "store"
    process = subprocess.Popen(
        command("ingest", tmp_path / "pipe.jsonl", "--no-dense", "--store", store), stderr=subprocess.PIPE
    )
    with (tmp_path / "pipe.jsonl").open("wb") as pipe:
        pipe.write(whole.read_bytes())
        pipe.flush()
        stored = lambda: (ccheck("index", "info", "--store", store, "--json").objects or [{}])[0].get("documents", 0)  # noqa: E731
        deadline = time.monotonic() + 100
        while stored() < 2_000:  # the first batch; the pipe is still open, so it can't be done
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        said = process.stderr.read().decode()
        process.stderr.close()
    assert process.wait() == 130
    assert "Run the same command again to continue" in said and said.endswith("ccheck: interrupted\n")
    before = stored()
    assert 2_000 <= before < 5_000
    ran = ccheck("ingest", whole, "--no-dense", "--store", store, "--json")
    report = ran.objects[0]
    assert ran.code == 0 and (report["added"], report["unchanged"]) == (5_000 - before, before)
    assert stored() == 5_000
    hits = ccheck("query", "number4999", "--store", store, *BM25, "--json").objects[0]["evidence"]
    assert [hit["doc_id"] for hit in hits] == ["d4999"]
