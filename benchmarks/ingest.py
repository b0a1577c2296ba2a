"""Seconds and peak memory of `ccheck ingest` into a new local store, and again with the unchanged file.

    python benchmarks/ingest.py FILE [--documents N] [ARGUMENTS OF ccheck ingest ...]

FILE is any input of `ccheck ingest`, such as SciFact's `corpus.jsonl.gz`. With --documents, ccheck reads that many
synthetic abstracts, which the script writes to FILE. Add `--model none` to leave out the embeddings. Each run has its
own process.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--documents", type=int, help="Number of synthetic abstracts to write to FILE, which must not exist.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def main(file: Path, documents: int | None, arguments: tuple[str, ...]) -> None:
    if documents is not None:
        from elasticsearch_common import entries

        with file.open("x", encoding="utf-8") as lines:
            for entry in entries(documents):
                row = {"_id": entry.document.id, "title": entry.document.title, "text": entry.document.text}
                lines.write(json.dumps(row) + "\n")
    file = file.resolve()
    print(f"{platform.machine()}, {os.cpu_count()} cores; {file.stat().st_size:,} bytes")
    with tempfile.TemporaryDirectory() as scratch:
        # Start without cached embeddings.
        environment = os.environ | {"CCHECK_DATA_DIR": f"{scratch}/data", "CCHECK_CACHE_DIR": f"{scratch}/cache"}
        for turn in ("first", "second"):
            started = time.perf_counter()
            command = [sys.executable, "-m", "ccheck.cli", "ingest", str(file), "--quiet", *arguments]
            process = subprocess.Popen(command, env=environment, cwd=scratch)
            _, status, used = os.wait4(process.pid, 0)
            seconds = time.perf_counter() - started
            if status:
                raise SystemExit(f"the {turn} ingest failed")
            cpu = used.ru_utime + used.ru_stime
            # KiB, but bytes on macOS.
            peak = used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
            print(f"{turn}: {seconds:.1f} s, {cpu:.1f} s of CPU time, {peak / 1e9:.2f} GB at most", flush=True)


if __name__ == "__main__":
    main()
