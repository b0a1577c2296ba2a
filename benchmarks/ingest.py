"""What `ccheck ingest` takes into a new local store, and again of the unchanged file: seconds and peak memory.

    python benchmarks/ingest.py FILE [--documents N] [ARGUMENTS OF ccheck ingest ...]

FILE is what `ccheck ingest` reads, such as SciFact's `corpus.jsonl.gz`. With --documents that many synthetic abstracts
are read instead of FILE; `--model none` beside it leaves out the embeddings. Each run is a process of its own.
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
@click.option("--documents", type=int, help="Synthetic abstracts, written to FILE, which must not be there.")
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
        # Nothing that was embedded before is at hand.
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
