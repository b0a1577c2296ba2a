"""Parquet, by pyarrow in a process of its own.

A page of a few bytes can stand for gigabytes, and pyarrow allocates what a page says: in the other process that ends
with a reject, and the memory of this one does not grow.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from ..core.extras import require
from .lines import CHUNK, decompressed
from .records import LINE_BYTES, Record, Reject, excerpt
from .sources import Source

MEMORY = 3 << 30
"""Bytes that the other process may address. pyarrow itself takes about a sixth of it."""
UNPACKED = 50
"""A compressed Parquet file may be so many times larger than what holds it, or `UNPACKED_BYTES`: Parquet is compressed
already."""
UNPACKED_BYTES = 1 << 30


def read_parquet(source: Source, on_bytes: Callable[[int], None]) -> Iterator[Record | Reject]:
    """The rows as records. Raises MissingExtra without pyarrow and OSError where the file can't be read."""
    require("reading Parquet", "parquet", "pyarrow")
    row = 0
    with ExitStack() as stack:
        if source.compression:
            # Parquet is read from its end backwards, which a compressed stream can't do.
            file: IO[bytes] = stack.enter_context(tempfile.TemporaryFile())
            for chunk in decompressed(source, on_bytes):
                if file.tell() > max(UNPACKED_BYTES, UNPACKED * (source.size or 0)):
                    yield Reject(
                        source.name, 0, f"the file unpacks to more than {file.tell():,} bytes. Decompress it first"
                    )
                    return
                file.write(chunk)
            file.seek(0)
            on_bytes = lambda size: None  # noqa: E731 - all of it was counted
        else:
            assert source.path is not None
            file = stack.enter_context(source.path.open("rb"))
        errors = stack.enter_context(tempfile.TemporaryFile())
        done = 0
        process = stack.enter_context(_reading(file, errors))
        stack.callback(process.kill)
        assert process.stdout is not None
        while line := process.stdout.readline(LINE_BYTES):
            row += 1
            if not line.endswith(b"\n"):
                while (rest := process.stdout.readline(CHUNK)) and not rest.endswith(b"\n"):
                    pass
                if rest:
                    yield Reject(source.name, row, f"the row is too long: more than {LINE_BYTES:,} bytes as JSON")
                continue
            data = json.loads(line, parse_constant=lambda name: None)
            yield Reject(source.name, row, data) if isinstance(data, str) else Record(source.name, row, data)
            if row % 256 == 0:
                done += _told(file, on_bytes, done)
        if process.wait() != 0:
            errors.seek(0)
            said = errors.read(4000).decode("utf-8", "replace").strip().rpartition("\n")[2]
            why = excerpt(said) if process.returncode == 1 and said else "pyarrow crashed"
            yield Reject(
                source.name, row + 1, f"the Parquet file can't be read ({why}). The rest of the file was skipped"
            )
        on_bytes(max((source.size or 0) - done, 0))


def _reading(file: IO[bytes], errors: IO[bytes]) -> subprocess.Popen[bytes]:
    script = Path(__file__).with_name("parquet_rows.py")
    # -P: what lies in the current folder, or beside the script, is not imported in place of the library.
    command = [sys.executable, "-P", str(script), str(MEMORY)]
    # malloc says when there is no more memory; pyarrow's other pools reserve more than they use.
    environment = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdin=file, stdout=subprocess.PIPE, stderr=errors, env=environment)  # noqa: S603


def _told(file: Any, on_bytes: Callable[[int], None], done: int) -> int:
    """Say how much was read: both processes have one position in the file, though Parquet jumps."""
    now = max(os.lseek(file.fileno(), 0, os.SEEK_CUR), done)
    on_bytes(now - done)
    return now - done
