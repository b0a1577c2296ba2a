"""Reading files of every format, good and bad."""

import csv
import datetime
import decimal
import gzip
import io
import json
import os
import threading
import tracemalloc
from pathlib import Path

import pytest
import zstandard
from read_files import parts

from ccheck.core.errors import NotFound, UsageError
from ccheck.ingest import Record, read
from ccheck.ingest.readers import read_sources
from ccheck.ingest.sources import find_sources

ROWS = [
    {"_id": "1", "title": "One", "text": 'A "quoted" text,\nof two lines.', "year": 2011},
    {"_id": "2", "title": "Zwei – ünïcode", "text": "Tab\there, comma, end.", "year": 2012},
    {"_id": "3", "title": "", "text": "No title.", "year": 2013},
]


def as_json_lines(rows: list[dict] = ROWS) -> bytes:
    return b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)


def as_csv(delimiter: str = ",") -> bytes:
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(ROWS[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(ROWS)
    return stream.getvalue().encode()


def as_parquet() -> bytes:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    stream = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(ROWS), stream)
    return stream.getvalue()


FORMATS = {
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), as_json_lines),
    ".csv": as_csv,
    ".tsv": lambda: as_csv("\t"),
    ".parquet": as_parquet,
}
COMPRESSIONS = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".zst": zstandard.ZstdCompressor().compress,
    ".GZ": lambda data: gzip.compress(data[:40]) + gzip.compress(data[40:]),
}


def write(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)


@pytest.mark.parametrize("compression", COMPRESSIONS)
@pytest.mark.parametrize("extension", FORMATS)
def test_every_format_gives_the_same_records(tmp_path: Path, extension: str, compression: str) -> None:
    path = write(tmp_path / f"corpus{extension}{compression}", COMPRESSIONS[compression](FORMATS[extension]()))
    seen: list[int] = []
    records = list(read_sources(find_sources(path), on_bytes=seen.append))
    assert all(isinstance(record, Record) for record in records)
    assert sum(seen) == find_sources([path])[0].size == Path(path).stat().st_size
    untyped = extension in (".csv", ".tsv")
    expected = [{k: str(v) or None if untyped else v for k, v in row.items()} for row in ROWS]
    assert [record.data for record in records] == expected
    assert all(record.file == path and record.untyped == untyped for record in records)
    # The first row of a table is after the header and has a line end in it.
    assert [record.line for record in records] == ([2, 4, 5] if untyped else [1, 2, 3])


FRAME, SKIPPABLE = zstandard.ZstdCompressor().compress(b'{"a": 1}\n'), b"\x50\x2a\x4d\x18\x05\x00\x00\x00hello"
NO_OBJECT = "expected a JSON object, got a number or boolean"


@pytest.mark.parametrize(
    ("name", "data", "good", "bad"),
    [
        ("bom, blank lines.jsonl", b'\xef\xbb\xbf{"a": 1}\r\n\r\n  \r\n{"a": 2}', {1: {"a": 1}, 4: {"a": 2}}, {}),
        ("bom, blank lines.csv", b'\xef\xbb\xbfa,b\r\n\r\n1,"x\r\ny"\r\n,\r\n2,z',
         {3: {"a": "1", "b": "x\ny"}, 6: {"a": "2", "b": "z"}}, {}),
        ("nan.jsonl", b'{"a": NaN, "b": [Infinity, -Infinity, 1]}\n', {1: {"a": None, "b": [None, None, 1]}}, {}),
        ("frames.jsonl.zst", SKIPPABLE + FRAME + SKIPPABLE + FRAME, {1: {"a": 1}, 2: {"a": 1}}, {}),
        ("padding.jsonl.gz", gzip.compress(b'{"a": 1}\n') + bytes(700), {1: {"a": 1}}, {}),
        ("object.json", b"\n" + json.dumps(ROWS[0], indent=1).encode() + b"\n", {2: ROWS[0]}, {}),
        ("array.json", b'[{"a": 1},\n 2,\n {"a": 3},\n {"a": ]', {1: {"a": 1}, 3: {"a": 3}},
         {2: NO_OBJECT, 4: "not valid JSON"}),
        ("open array.json", b'[{"a": 1}', {1: {"a": 1}}, {1: ""}),
        ("long array.json", json.dumps(ROWS, indent=1).encode(), {}, {1: "jq -c"}),
        ("bytes in array.json", b'[{"a": 1},\n{"a": "\xff"},\n{"a": 3}]', {1: {"a": 1}, 3: {"a": 3}},
         {2: "not valid UTF-8"}),
        ("lines, last bad.json", b'{"a": 1}\n{"a": 2}\nbad', {1: {"a": 1}, 2: {"a": 2}}, {3: ""}),
        ("lines, first bad.json", b'{"a": \n{"a": 2}\n{"a": 1}', {2: {"a": 2}, 3: {"a": 1}}, {1: ""}),
        ("wrong columns.csv", b"a\n1\n2,3\n\n4\n", {2: {"a": "1"}, 5: {"a": "4"}},
         {3: "the row has 2 columns and the header 1"}),
        ("too few columns.csv", b"a,b\n1\n", {}, {2: "the row has 1 columns and the header 2"}),
        ("open quote.csv", b'a\n1\n"never closed\n3\n', {2: {"a": "1"}, 4: {"a": "3"}},
         {3: "not valid CSV: a quoted field has no closing quote"}),
        ("old mac.csv", b"a,b\r1,x\r2,y\r", {}, {1: "tr '\\r' '\\n'"}),
        ("after a quote.csv", b'a,b\r\n1,"x"y\r\n', {}, {2: "expected after"}),
        ("quotes.tsv", b'a\n"two\nlines"\n"Quoted" at the start\n"open\nplain 5" pipe\n',
         {2: {"a": "two\nlines"}, 4: {"a": '"Quoted" at the start'}, 5: {"a": '"open'}, 6: {"a": 'plain 5" pipe'}}, {}),
        ("names.csv", b",a, b\n0,1,2\n", {2: {"column_1": "0", "a": "1", "b": "2"}}, {}),
        ("twice.csv", b"a,b,a\n1,2,3\n", {}, {1: "column 'a' twice"}),
        ("excel.csv", b"sep=;\r\na;b\r\n1,5;2\r\n", {3: {"a": "1,5", "b": "2"}}, {}),
        ("empty.csv", b"", {}, {}), ("header.csv", b"a,b\n", {}, {}), ("empty.json", b"\n \n", {}, {}),
        ("no text.csv", "a\né\n".encode() + b"\xff\ny\n", {2: {"a": "é"}, 4: {"a": "y"}}, {3: "not valid UTF-8"}),
    ],
)  # fmt: skip
def test_what_is_read_of_a_file_and_what_is_not(tmp_path: Path, name: str, data: bytes, good: dict, bad: dict) -> None:
    records, rejects = parts(write(tmp_path / name, data), line_bytes=100)
    assert [(one.line, one.data) for one in records] == list(good.items())
    assert [one.line for one in rejects] == list(bad)
    assert all(reason in one.reason for one, reason in zip(rejects, bad.values(), strict=True))


def test_arrays_in_a_json_file_and_lines_after_one_without_an_end(tmp_path: Path) -> None:
    for indent, places in ((None, [1, 1, 1]), (2, [2, 8, 14])):
        records, rejects = parts(write(tmp_path / "a.json", json.dumps(ROWS, indent=indent).encode()))
        assert [record.data for record in records] == ROWS and not rejects
        assert [record.line for record in records] == places
    lines = b'{"a": ' + b"".join(b'\n{"a": %d}' % n for n in range(100))
    records, rejects = parts(write(tmp_path / "a.json", lines), line_bytes=200)
    assert (len(records), len(rejects)) == (100, 1)


@pytest.mark.parametrize(
    ("name", "reason"),
    [("a.json.gz", "end early"), ("a.parquet", "the file can't be read"), ("a.parquet.gz", "end early")],
)
def test_a_file_that_ends_early(tmp_path: Path, name: str, reason: str) -> None:
    data = as_parquet() if "parquet" in name else json.dumps(ROWS).encode()
    _, rejects = parts(write(tmp_path / name, (gzip.compress(data) if name.endswith("gz") else data)[:-9]))
    assert reason in rejects[-1].reason


VALUES = {b"[1, 2]": "an array", b'"text"': "a string", b"null": "null", b"12": "a number or boolean"}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"a": 1', "not valid JSON: Expecting ',' delimiter at character 8"),
        (b"nonsense", "not valid JSON"),
        *((line, f"expected a JSON object, got {kind}") for line, kind in VALUES.items()),
        (b'{"a": "\xff\xfe"}', "not valid UTF-8: invalid start byte at byte 8. Save the file as UTF-8 (in Excel as"),
        (b"\xff\xfe{\x00}\x00", "not valid UTF-8"),
        (b'{"a": ' + b"[" * 200_000, "nested too deeply"),
        (b'{"a": ' + b"9" * 10_000 + b"}", "too many digits"),
        (b'{"a": "' + b"x" * 5_000_000 + b'"}', "the line is too long: 5,000,009 bytes, at most 1,000,000"),
        (b'{"a": "\x00"}', "not valid JSON: Invalid control character"),
    ],
)
def test_a_bad_line_costs_itself_only(tmp_path: Path, line: bytes, reason: str) -> None:
    path = write(tmp_path / "a.jsonl", b'{"n": 1}\n' + line + b'\n{"n": 3}\n')
    records, rejects = parts(path, line_bytes=1_000_000)
    assert [(record.line, record.data["n"]) for record in records] == [(1, 1), (3, 3)]
    (reject,) = rejects
    assert (reject.file, reject.line) == (path, 2) and reason in reject.reason
    assert reject.record == line.decode("utf-8", "replace")[:1000]


@pytest.mark.parametrize("extension", [".gz", ".zst"])
@pytest.mark.parametrize("cut", [1, 9, 2000])
def test_a_compressed_file_that_is_cut_keeps_what_came_before(tmp_path: Path, extension: str, cut: int) -> None:
    rows = [{"n": n, "text": os.urandom(300).hex()} for n in range(3000)]
    data = COMPRESSIONS[extension](as_json_lines(rows))
    records, (reject,) = parts(write(tmp_path / f"a.jsonl{extension}", data[:-cut]))
    assert [record.data for record in records] == rows[: len(records)] and len(records) > 2000
    assert "data end early" in reject.reason and reject.line == len(records) + 1


@pytest.mark.parametrize("extension", ["gz", "zst"])
def test_a_damaged_compressed_file_keeps_what_came_before(tmp_path: Path, extension: str) -> None:
    compress = gzip.compress if extension == "gz" else zstandard.ZstdCompressor(write_checksum=True).compress
    data = compress(as_json_lines())
    records, (_,) = parts(write(tmp_path / f"a.jsonl.{extension}", data + data[:-5] + b"garbage garbage"))
    assert [record.data for record in records][:3] == ROWS
    (), (reject,) = parts(write(tmp_path / f"b.jsonl.{extension}", b"not compressed at all"))
    assert "damaged" in reject.reason


def test_memory_stays_small(tmp_path: Path) -> None:
    path = tmp_path / "bomb.jsonl.zst"
    with path.open("wb") as stream, zstandard.ZstdCompressor().stream_writer(stream) as writer:
        for _ in range(256):
            writer.write(b"x" * (1 << 20))
        writer.write(b'\n{"a": 1}\n')
    tracemalloc.start()
    records, (reject,) = parts(path, line_bytes=1 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [record.data for record in records] == [{"a": 1}] and peak < 200 << 20
    assert "the line is too long: 268,435,456 bytes" in reject.reason and len(reject.record) == 1000


def test_an_unclosed_quote_costs_its_line_only_and_a_field_may_be_large(tmp_path: Path) -> None:
    rows = "".join(f'{n},"text {n}"\n' for n in range(4, 3000))
    records, (reject,) = parts(write(tmp_path / "a.csv", f'a,b\n1,x\n2,"never closed\n3,y\n{rows}'.encode()))
    assert [int(record.data["a"]) for record in records] == [1, *range(3, 3000)]
    assert (reject.line, reject.record) == (3, '2,"never closed')
    (large, after), () = parts(write(tmp_path / "a.csv", b'a,b\n1,"' + b"x\n" * 400_000 + b'"\n2,y\n'))
    assert len(large.data["b"]) == 800_000 and after.line == 400_003


def test_parquet_types_and_bad_values(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    row = {"day": datetime.date(2015, 2, 3), "price": decimal.Decimal("1.50"), "nested": {"a": [1, 2]}, "raw": b"x"}
    offsets = pa.py_buffer(b"".join(n.to_bytes(4, "little") for n in (0, 2, 4, 6)))
    texts = pa.StringArray.from_buffers(3, offsets, pa.py_buffer(b"ok\xff\xfeok"))
    pq.write_table(pa.Table.from_pylist([row] * 3).append_column("text", texts), tmp_path / "a.parquet")
    records, (reject,) = parts(tmp_path / "a.parquet")
    assert [record.line for record in records] == [1, 3]
    assert records[0].data == {"day": "2015-02-03", "price": 1.5, "nested": {"a": [1, 2]}, "raw": "x", "text": "ok"}
    assert reject.line == 2 and "can't be read" in reject.reason


def test_folders_globs_and_repeats_and_what_is_not_there_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "deep" / ".hidden").mkdir(parents=True)
    one = write(tmp_path / "one.jsonl", b'{"n": 1}\n')
    write(tmp_path / "deep" / "two.csv", b"n\n2\n")
    (tmp_path / "store" / "bm25-1").mkdir(parents=True)
    own = "one.rejects.jsonl", "store/documents.sqlite", "store/bm25-1/meta.json", "store.checks.sqlite"
    for ignored in ("deep/notes.log", *own, ".three.jsonl", "deep/.hidden/four.jsonl"):
        write(tmp_path / ignored, b'{"n": 9}\n')
    assert [str(record.data["n"]) for record in parts(str(tmp_path))[0]] == ["2", "1"]
    os.mkfifo(tmp_path / "pipe")
    find_sources(str(tmp_path), notices=(notices := []))
    assert [one.partition(" in ")[0] for one in notices] == ["left out: 2 files of other kinds"]
    assert [record.data["n"] for record in parts(str(tmp_path / "*.jsonl"), one, str(tmp_path / "o*"))[0]] == [1]
    assert [record.data["n"] for record in parts(str(tmp_path / "**" / "*.csv"))[0]] == ["2"]
    report = write(tmp_path / "deep" / "report.txt", b"Seas rise.")
    for given in (report, report.replace("deep", "d*"), tmp_path / "deep", tmp_path / "deep" / ".hidden" / ".."):
        assert find_sources(given)[0].label == "deep/report.txt"
    assert find_sources(tmp_path)[0].label == f"{tmp_path.name}/deep/report.txt"
    odd = write(tmp_path / "a[1].jsonl", b'{"n": 5}\n')
    assert [record.data["n"] for record in parts(odd)[0]] == [5]
    good = write(tmp_path / "a.jsonl", b"{}\n")
    with pytest.raises(NotFound, match=r"b\.jsonl"):
        read([good, str(tmp_path / "b.jsonl")])
    with pytest.raises(UsageError, match="nothing to ingest"):
        read([])


def test_named_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=write, args=(tmp_path / "pipe", b'{"n": 1}\n'))
    writer.start()
    records, _ = parts(tmp_path / "pipe")
    writer.join()
    assert [record.data for record in records] == [{"n": 1}]
