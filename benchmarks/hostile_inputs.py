"""Run `ccheck ingest` and `ccheck query` on hostile documents and claims: what they cost and what ccheck prints.

    python benchmarks/hostile_inputs.py
    python benchmarks/hostile_inputs.py --documents 200 --claims 50

The goals: no traceback or bug, no control characters in any output, every record counted, no text that is too long
accepted, every claim answered, and at most 60 s of CPU time per step and 1 GiB for ccheck's process. The exit code is 1
if a goal is missed. Needs Linux and the extra `parquet`.
"""

from __future__ import annotations

import csv
import gzip
import json
import random
import re
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ccheck.core.text import TEXT_CHARS

UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
STEERING = "\x1b[2J\x1b]0;title\x07\x9b31m\x7f\x85\u202e\u2066\u061c\u200f\u2028\ud800"
MOST_S, MOST_MIB = 60.0, 1024

TEXTS: dict[str, Callable[[random.Random], Any]] = {
    "steering": lambda draw: "".join(draw.choices(STEERING + "sea level rose ", k=400)),
    "punctuation": lambda draw: draw.choice(["!?", '."', ".)", "a! ", "1. ", "Dr. ", "..."]) * 40_000,
    "marks": lambda draw: "a" + draw.choice(["\u0323\u0301", "\u0301", "\u0345\u0300\u0316"]) * 30_000,
    "one word": lambda draw: draw.choice("x中\u0e01\U0001f600") * 200_000,
    "white space": lambda draw: " \n\t\u3000" * 50_000 + "sea level",
    "too long": lambda draw: "sea level " * (TEXT_CHARS // 10 + 1),
    "too long, escaped": lambda draw: "é" * (TEXT_CHARS + 1),
    "markup": lambda draw: "<script>alert(1)</script> [bold]x[/bold] {{7*7}} {% raw %} \\x1b &lt; sea level " * 50,
    "special tokens": lambda draw: "[SEP] [CLS] </s> <|endoftext|> sea level rose " * 200,
    "deep": lambda draw: json.loads("[" * 900 + "]" * 900),
    "no text": lambda draw: draw.choice([None, 7, True, [], {}, {"a": "b"}, [["x"]], 1e308, 10**400]),
    "surrogates": lambda draw: "\udcff\ud800 sea level \udfff" * 100,
}
METADATA: dict[str, Callable[[random.Random], dict[str, Any]]] = {
    "none": lambda draw: {},
    "many keys": lambda draw: dict.fromkeys(map(str, range(50_000)), 1),
    "long keys": lambda draw: {"k" * 100_000: dict.fromkeys(map(str, range(100)), 1)},
    "odd keys": lambda draw: {STEERING: STEERING, "": 1, "...": 2, "a.b": {"c": 3}, "metadata": {"year": STEERING}},
    "numbers": lambda draw: {"year": draw.choice([float("nan"), float("inf"), -(2**70), 1e-320, "²"]), "n": 2**63},
    "dates": lambda draw: {"date": draw.choice(["9" * 60_000, "0000-00-00", "2015-13-40", [], {}])},
}


@click.command()
@click.option("--documents", default=1_000, show_default=True, type=click.IntRange(1), help="Count of hostile records.")
@click.option("--claims", default=200, show_default=True, type=click.IntRange(1), help="Count of hostile claims.")
@click.option("--seed", default=0, show_default=True, help="Random seed.")
def main(documents: int, claims: int, seed: int) -> None:
    """Print each step with its exit code, time, memory and what is wrong with its output."""
    draw = random.Random(seed)
    wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        good = [{"_id": f"good{n}", "title": "Seas", "text": f"Sea level rose by {n} cm."} for n in range(20)]
        with (folder / "records.jsonl").open("w", encoding="utf-8") as stream:
            stream.writelines(f"{json.dumps(record)}\n" for record in good)
            hostile = [line(draw, n) for n in range(documents)]
            stream.writelines(f"{one}\n" for one in hostile)
        too_long = {len(good) + n for n, one in enumerate(hostile, 1) if len(one) > TEXT_CHARS}
        make_files(folder)
        asked = [{"_id": f"c{n}{STEERING}", "text": text(draw)} for n in range(claims)]
        lines = "".join(json.dumps(one) + "\n" for one in asked)
        (folder / "claims.jsonl").write_text(lines, encoding="utf-8")
        store = ["--store", str(folder / "store")]
        rejects = ["--no-dense", "--rejects", str(folder / "rejects.jsonl"), "--json"]
        written = ["--run", str(folder / "my.run"), "--report", str(folder / "page.html")]
        query = ["query", *store, "--recipe", "bm25", "--rerank", "none", "--verdict", "none"]
        steps = {
            "records": ["ingest", str(folder / "records.jsonl"), *store, *rejects],
            **{name: ["ingest", str(folder / name), *store, *rejects] for name in FILES},
            "claims": [*query, "--claims", str(folder / "claims.jsonl"), *written],
            "one claim": [*query, "sea level !? [SEP]" + STEERING.replace("\x00", "").replace("\ud800", ""), *written],
        }
        print(
            f"{documents:,} hostile records, {len(FILES)} hostile files, {claims:,} hostile claims, seed {seed}",
            flush=True,
        )
        print(f"{'step':<24}{'code':>5}{'CPU s':>9}{'MiB':>7}  counts and complaints")
        for name, arguments in steps.items():
            wrong += step(name, arguments, folder, documents + len(good) if name == "records" else None, claims)
            if name == "records":
                refused = {json.loads(one)["line"] for one in (folder / "rejects.jsonl").open(encoding="utf-8")}
                wrong += bool(too_long - refused)
                print(f"{len(too_long)} records too long, {len(too_long - refused)} of them accepted", flush=True)
    sys.exit(1 if wrong else 0)


def text(draw: random.Random) -> Any:
    """One in fifty of the texts that are too long, so that the file stays small."""
    kind = draw.choice(list(TEXTS))
    return TEXTS["steering" if "too long" in kind and draw.random() > 0.02 else kind](draw)


BROKEN = ("{", "[1", '{"_id": "x"', "\x00", '{"a":' * 5_000, "null", "NaN", '{"text": 1' + "0" * 9_000)


def line(draw: random.Random, number: int) -> str:
    """A record as a line, or what is no record at all."""
    kind = draw.random()
    if kind < 0.05:
        return draw.choice(BROKEN)
    names = draw.choice([("_id", "title", "text"), ("id", "title", "abstract")])
    values = [draw.choice([f"d{number}", STEERING, 7.5, "", "x" * 600, f"{number}\u202e"]), text(draw), text(draw)]
    record = dict(zip(names, values, strict=True)) | METADATA[draw.choice(list(METADATA))](draw)
    return json.dumps(record)


FILES = ("quotes.csv", "columns.csv", "zeros.jsonl.gz", "array.json", "bomb.parquet")


def make_files(folder: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    with (folder / "quotes.csv").open("w", encoding="utf-8") as stream:
        stream.write("id,text\n" + 'a","b\n' * 100_000)
    with (folder / "columns.csv").open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([[f"c{n}" for n in range(100_000)]] * 3)
    with gzip.open(folder / "zeros.jsonl.gz", "wb", compresslevel=1) as stream:
        for _ in range(300):
            stream.write(b" " * (1 << 20))
    (folder / "array.json").write_text("[" + "[]," * 3_000_000 + "1]", encoding="utf-8")
    one = pyarrow.array(["x" * 20_000_000])
    texts = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 5_000, pyarrow.int32()), one)
    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), folder / "bomb.parquet", compression="zstd")


def step(name: str, arguments: list[str], folder: Path, records: int | None, claims: int) -> bool:
    """Run and print a step. Whether something was wrong."""
    program = str(Path(sysconfig.get_path("scripts")) / "ccheck")
    done = subprocess.run(
        [sys.executable, "-c", WITH_MEMORY, program, *arguments], capture_output=True, check=False, cwd=folder
    )
    out, err = done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
    said, _, memory = err.strip().rpartition("\n")
    mib, seconds = int(memory.split()[0]), float(memory.split()[1])
    texts = {"output": out, "messages": said}
    complaints = [f"control characters in {where}" for where, text in texts.items() if UNSAFE.search(text)]
    for file in ("rejects.jsonl", "my.run", "page.html"):
        if (folder / file).exists():
            with (folder / file).open(encoding="utf-8", newline="") as stream:
                complaints += [f"control characters in {file}"] if any(map(UNSAFE.search, stream)) else []
    complaints += [f"{words!r}" for words in ("Traceback", "a bug") if words in said]
    complaints += ["too slow"] if seconds > MOST_S else []
    complaints += ["too much memory"] if mib > MOST_MIB else []
    counts = ""
    if arguments[0] == "ingest" and out.startswith("{"):
        told = json.loads(out)
        counts = ", ".join(f"{told[one]:,} {one}" for one in ("read", "added", "updated", "repeated", "rejected"))
        complaints += ["records that nobody counted"] if records is not None and told["read"] != records else []
    elif name == "claims":
        answers = [json.loads(one) for one in out.splitlines()]
        counts = f"{len(answers):,} answers, {sum('error' in one for one in answers):,} of them errors"
        complaints += ["claims without an answer"] if len(answers) != claims else []
    print(f"{name:<24}{done.returncode:>5}{seconds:>9.1f}{mib:>7}  {counts}{'; WRONG: ' if complaints else ''}", end="")
    print("; ".join(complaints), flush=True)
    return bool(complaints)


WITH_MEMORY = """
import os, runpy, sys
sys.argv = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    with open("/proc/self/status") as status:
        (peak,) = (int(line.split()[1]) >> 10 for line in status if line.startswith("VmHWM"))
    sys.stderr.write(f"\\n{peak} {sum(os.times()[:4]):.1f}\\n")
"""
"""ccheck, which says at its end how much memory it took, in MiB, and how many seconds of processors."""

if __name__ == "__main__":
    main()
