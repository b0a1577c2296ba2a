"""Reading files of every format, good and bad."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import tracemalloc
from pathlib import Path

import pytest
import zstandard
from read_files import parts

from ccheck.core.errors import NotFound, UsageError
from ccheck.ingest import read
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
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    stream = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(ROWS), stream)
    return stream.getvalue()


FORMATS = {
    ".jsonl": as_json_lines,
    ".ndjson": as_json_lines,
    ".json": as_json_lines,
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
    seen = 0

    def on_bytes(size: int) -> None:
        nonlocal seen
        seen += size

    records, rejects = parts(path, on_bytes=on_bytes)
    assert rejects == []
    assert seen == find_sources([path])[0].size == Path(path).stat().st_size
    untyped = extension in (".csv", ".tsv")
    expected = [{k: str(v) or None if untyped else v for k, v in row.items()} for row in ROWS]
    assert [record.data for record in records] == expected
    assert all(record.file == path and record.untyped == untyped for record in records)
    # The first row of a table is after the header and has a line end in it.
    assert [record.line for record in records] == ([2, 4, 5] if untyped else [1, 2, 3])


def test_bom_crlf_blank_lines_and_no_final_newline(tmp_path: Path) -> None:
    lines = write(tmp_path / "a.jsonl", b'\xef\xbb\xbf{"a": 1}\r\n\r\n  \r\n{"a": 2}')
    table = write(tmp_path / "a.csv", b'\xef\xbb\xbfa,b\r\n\r\n1,"x\r\ny"\r\n,\r\n2,z')
    records, rejects = parts(lines, table)
    assert rejects == []
    assert [(record.line, record.data) for record in records] == [
        (1, {"a": 1}),
        (4, {"a": 2}),
        (3, {"a": "1", "b": "x\ny"}),
        (6, {"a": "2", "b": "z"}),
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"a": 1', "not valid JSON: Expecting ',' delimiter at character 8"),
        (b"nonsense", "not valid JSON"),
        (b"[1, 2]", "expected a JSON object, got an array"),
        (b'"text"', "expected a JSON object, got a string"),
        (b"null", "expected a JSON object, got null"),
        (b"12", "expected a JSON object, got a number or boolean"),
        (
            b'{"a": "\xff\xfe"}',
            "not valid UTF-8: invalid start byte at byte 8. Save the file as UTF-8, or convert it",
        ),
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
    assert len(rejects) == 1
    assert (rejects[0].file, rejects[0].line) == (path, 2)
    assert reason in rejects[0].reason
    assert rejects[0].record == line.decode("utf-8", "replace")[:1000]


def test_nan_and_infinity_count_as_absent(tmp_path: Path) -> None:
    records, _ = parts(write(tmp_path / "a.jsonl", b'{"a": NaN, "b": [Infinity, -Infinity, 1]}\n'))
    assert records[0].data == {"a": None, "b": [None, None, 1]}


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.ZstdCompressor().compress], ids=["gz", "zst"])
@pytest.mark.parametrize("cut", [1, 9, 2000])
def test_a_compressed_file_that_is_cut_keeps_what_came_before(tmp_path: Path, compress, cut: int) -> None:
    extension = "gz" if compress is gzip.compress else "zst"
    rows = [{"n": n, "text": os.urandom(300).hex()} for n in range(3000)]
    data = compress(as_json_lines(rows))
    path = write(tmp_path / f"a.jsonl.{extension}", data[:-cut])
    records, rejects = parts(path)
    assert [record.data for record in records] == rows[: len(records)]
    assert len(records) > 2000
    assert len(rejects) == 1
    assert "data end early" in rejects[0].reason
    assert rejects[0].line == len(records) + 1


@pytest.mark.parametrize("extension", ["gz", "zst"])
def test_a_damaged_compressed_file_keeps_what_came_before(tmp_path: Path, extension: str) -> None:
    compress = gzip.compress if extension == "gz" else zstandard.ZstdCompressor(write_checksum=True).compress
    data = compress(as_json_lines())
    records, rejects = parts(write(tmp_path / f"a.jsonl.{extension}", data + data[:-5] + b"garbage garbage"))
    assert [record.data for record in records][:3] == ROWS
    assert len(rejects) == 1
    records, rejects = parts(write(tmp_path / f"b.jsonl.{extension}", b"not compressed at all"))
    assert records == []
    assert len(rejects) == 1
    assert "damaged" in rejects[0].reason


def test_several_frames_skippable_frames_and_padding(tmp_path: Path) -> None:
    frame = zstandard.ZstdCompressor().compress(b'{"a": 1}\n')
    skippable = b"\x50\x2a\x4d\x18\x05\x00\x00\x00hello"
    zst = write(tmp_path / "a.jsonl.zst", skippable + frame + skippable + frame)
    gz = write(tmp_path / "a.jsonl.gz", gzip.compress(b'{"a": 1}\n') + bytes(700))
    assert [len(found) for found in parts(zst)] == [2, 0]
    assert [len(found) for found in parts(gz)] == [1, 0]


def test_memory_stays_small(tmp_path: Path) -> None:
    """A line of a gigabyte, compressed to almost nothing."""
    path = tmp_path / "bomb.jsonl.zst"
    with path.open("wb") as stream, zstandard.ZstdCompressor().stream_writer(stream) as writer:
        for _ in range(256):
            writer.write(b"x" * (1 << 20))
        writer.write(b'\n{"a": 1}\n')
    tracemalloc.start()
    records, rejects = parts(str(path), line_bytes=1 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [record.data for record in records] == [{"a": 1}]
    assert "the line is too long: 268,435,456 bytes" in rejects[0].reason
    assert len(rejects[0].record) == 1000
    assert peak < 200 << 20


# -- JSON that is not JSON Lines


@pytest.mark.parametrize("indent", [None, 2])
def test_json_array(tmp_path: Path, indent: int | None) -> None:
    records, rejects = parts(write(tmp_path / "a.json", json.dumps(ROWS, indent=indent).encode()))
    assert rejects == []
    assert [record.data for record in records] == ROWS
    assert [record.line for record in records] == ([1, 1, 1] if indent is None else [2, 8, 14])


def test_one_json_object_over_many_lines(tmp_path: Path) -> None:
    records, rejects = parts(write(tmp_path / "a.json", b"\n" + json.dumps(ROWS[0], indent=1).encode() + b"\n"))
    assert (rejects, [(record.line, record.data) for record in records]) == ([], [(2, ROWS[0])])


def test_bad_json_arrays(tmp_path: Path) -> None:
    records, rejects = parts(write(tmp_path / "a.json", b'[{"a": 1},\n 2,\n {"a": 3},\n {"a": ]'))
    assert [record.data["a"] for record in records] == [1, 3]
    assert [(reject.line, reject.reason.split(":")[0]) for reject in rejects] == [
        (2, "expected a JSON object, got a number or boolean"),
        (4, "not valid JSON"),
    ]
    records, rejects = parts(write(tmp_path / "b.json", b'[{"a": 1}'))
    assert (len(records), len(rejects)) == (1, 1)
    records, rejects = parts(write(tmp_path / "c.json", json.dumps(ROWS, indent=1).encode()), line_bytes=100)
    assert records == []
    assert "jq -c" in rejects[0].reason
    records, rejects = parts(write(tmp_path / "d.json.gz", gzip.compress(json.dumps(ROWS).encode())[:-20]))
    assert "end early" in rejects[-1].reason
    assert parts(write(tmp_path / "e.json", b"\n \n")) == ([], [])
    records, rejects = parts(write(tmp_path / "f.json", b'[{"a": 1}, {"a": "\xff"}, {"a": 3}]'))
    assert (len(records), [reject.reason.split(";")[0] for reject in rejects]) == (2, ["not valid UTF-8"])


def test_json_lines_in_a_json_file_with_bad_lines(tmp_path: Path) -> None:
    for name, lines in {"a": [b'{"a": 1}', b'{"a": 2}', b"bad"], "b": [b'{"a": ', b'{"a": 2}', b'{"a": 1}']}.items():
        records, rejects = parts(write(tmp_path / f"{name}.json", b"\n".join(lines)))
        assert (len(records), len(rejects)) == (2, 1)
    long = b'{"a": ' + b"".join(b'\n{"a": %d}' % n for n in range(100))
    records, rejects = parts(write(tmp_path / "c.json", long), line_bytes=200)
    assert (len(records), len(rejects)) == (100, 1)


# -- tables


def test_table_rows_with_wrong_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", b"a,b\n1,2\n3\n4,5,6\n7,8\n")
    records, rejects = parts(path)
    assert [record.data["a"] for record in records] == ["1", "7"]
    assert [(reject.line, reject.reason, reject.record) for reject in rejects] == [
        (3, "the row has 1 columns and the header 2", "3"),
        (4, "the row has 3 columns and the header 2", "4,5,6"),
    ]


def test_an_unclosed_quote_costs_its_line_only(tmp_path: Path) -> None:
    rows = "".join(f'{n},"text {n}"\n' for n in range(4, 3000))
    records, rejects = parts(write(tmp_path / "a.csv", f'a,b\n1,x\n2,"never closed\n3,y\n{rows}'.encode()))
    assert [int(record.data["a"]) for record in records] == [1, *range(3, 3000)]
    assert [reject.line for reject in rejects] == [3]
    assert rejects[0].record == '2,"never closed'
    records, rejects = parts(write(tmp_path / "b.csv", b'a,b\n1,x\n2,"never closed\n3,y\n4,z\n'))
    assert [record.data["a"] for record in records] == ["1", "3", "4"]
    assert rejects[0].reason == "not valid CSV: a quoted field has no closing quote"


def test_lines_of_an_old_mac_say_how_to_convert_them(tmp_path: Path) -> None:
    ((), (reject,)) = parts(write(tmp_path / "a.csv", b"a,b\r1,x\r2,y\r"))
    assert "tr '\\r' '\\n'" in reject.reason
    (_, (reject,)) = parts(write(tmp_path / "b.csv", b'a,b\r\n1,"x"y\r\n'))
    assert "expected after" in reject.reason


def test_a_large_field(tmp_path: Path) -> None:
    records, rejects = parts(write(tmp_path / "a.csv", b'a,b\n1,"' + b"x\n" * 400_000 + b'"\n2,y\n'))
    assert rejects == []
    assert len(records[0].data["b"]) == 800_000
    assert records[1].line == 400_003


def test_tsv_with_and_without_quoting(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", b'a\tb\n1\t"two\nlines"\n2\t"Quoted" at the start\n3\t"open\n4\tplain 5" pipe\n')
    records, rejects = parts(path)
    assert rejects == []
    assert [record.data["b"] for record in records] == ["two\nlines", '"Quoted" at the start', '"open', 'plain 5" pipe']


def test_table_headers(tmp_path: Path) -> None:
    records, _ = parts(write(tmp_path / "a.csv", b",a, b\n0,1,2\n"))
    assert records[0].data == {"column_1": "0", "a": "1", "b": "2"}
    records, rejects = parts(write(tmp_path / "b.csv", b"a,b,a\n1,2,3\n"))
    assert records == []
    assert "column 'a' twice" in rejects[0].reason
    assert parts(write(tmp_path / "c.csv", b"")) == ([], [])
    assert parts(write(tmp_path / "d.csv", b"a,b\n")) == ([], [])


def test_table_with_bytes_that_are_no_text(tmp_path: Path) -> None:
    records, rejects = parts(write(tmp_path / "a.csv", "a,b\né,x\n1,".encode() + b"\xff\n2,y\n"))
    assert [record.data["a"] for record in records] == ["é", "2"]
    assert (rejects[0].line, rejects[0].reason) == (3, "not valid UTF-8")


# -- Parquet


def test_parquet_types_and_bad_values(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    import datetime
    import decimal

    table = pa.table(
        {
            "day": pa.array([datetime.date(2015, 2, 3)] * 3),
            "price": pa.array([decimal.Decimal("1.50")] * 3),
            "nested": pa.array([{"a": [1, 2]}] * 3),
            "raw": pa.array([b"x"] * 3),
            "text": pa.StringArray.from_buffers(
                3, pa.py_buffer(b"".join(n.to_bytes(4, "little") for n in (0, 2, 4, 6))), pa.py_buffer(b"ok\xff\xfeok")
            ),
        }
    )
    path = str(tmp_path / "a.parquet")
    pq.write_table(table, path)
    records, rejects = parts(path)
    assert [record.line for record in records] == [1, 3]
    assert records[0].data == {"day": "2015-02-03", "price": 1.5, "nested": {"a": [1, 2]}, "raw": "x", "text": "ok"}
    assert rejects[0].line == 2
    assert "can't be read" in rejects[0].reason


def test_damaged_parquet(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    _, rejects = parts(write(tmp_path / "a.parquet", as_parquet()[:-9]))
    assert "the file can't be read" in rejects[0].reason
    _, rejects = parts(write(tmp_path / "b.parquet.gz", gzip.compress(as_parquet())[:-9]))
    assert "end early" in rejects[0].reason


# -- which files


def test_folders_globs_and_repeats(tmp_path: Path) -> None:
    (tmp_path / "deep" / ".hidden").mkdir(parents=True)
    one = write(tmp_path / "one.jsonl", b'{"n": 1}\n')
    write(tmp_path / "deep" / "two.csv", b"n\n2\n")
    for ignored in ("deep/notes.log", "one.rejects.jsonl", ".three.jsonl", "deep/.hidden/four.jsonl"):
        write(tmp_path / ignored, b'{"n": 9}\n')
    assert [str(record.data["n"]) for record in parts(str(tmp_path))[0]] == ["2", "1"]
    assert [record.data["n"] for record in parts(str(tmp_path / "*.jsonl"), one, str(tmp_path / "o*"))[0]] == [1]
    assert [record.data["n"] for record in parts(str(tmp_path / "**" / "*.csv"))[0]] == ["2"]
    odd = write(tmp_path / "a[1].jsonl", b'{"n": 5}\n')
    assert [record.data["n"] for record in parts(odd)[0]] == [5]


def test_what_is_not_there_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    good = write(tmp_path / "a.jsonl", b"{}\n")
    for missing in ("b.jsonl", "*.csv", "empty"):
        with pytest.raises(NotFound, match=missing.replace("*", r"\*")):
            read([good, str(tmp_path / missing)])
    with pytest.raises(UsageError, match=r"can't read files of this type.*\.jsonl"):
        read([write(tmp_path / "notes.log", b"")])
    with pytest.raises(UsageError, match="nothing to ingest"):
        read([])


def test_named_pipe(tmp_path: Path) -> None:
    import threading

    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=lambda: (tmp_path / "pipe").write_bytes(b'{"n": 1}\n'))
    writer.start()
    records, _ = parts(str(tmp_path / "pipe"))
    writer.join()
    assert [record.data for record in records] == [{"n": 1}]
