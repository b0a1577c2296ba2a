"""PDF, Word and Excel files, read in a process of its own: what a stranger's file makes a library do ends there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

from ..core.extras import require
from .records import LINE_BYTES, Record, Reject, excerpt
from .sources import Source

MEMORY = 2 << 30
"""Bytes that the other process may address."""
SECONDS = 120
"""Seconds of processor time that one file may take."""
FILE_BYTES = 1 << 30
_LIBRARIES = {"pdf": "pypdf", "docx": "docx", "xlsx": "openpyxl"}
_CALLED = {"pdf": "PDF files", "docx": "Word files", "xlsx": "Excel files"}


def read_office(source: Source, chunks: Iterable[bytes], on_bytes: Callable[[int], None]) -> Iterator[Record | Reject]:
    """The document of a PDF or Word file, or the rows of a sheet. Raises MissingExtra without the library."""
    kind = str(source.format)
    require(f"reading {_CALLED[kind]}", "documents", _LIBRARIES[kind])
    with tempfile.TemporaryFile() as file, tempfile.TemporaryFile() as errors:
        for chunk in chunks:
            file.write(chunk)
            if file.tell() > FILE_BYTES:
                yield Reject(source.name, 0, f"the file has more than {FILE_BYTES:,} bytes")
                return
        file.seek(0)
        yield from _answers(source, file, errors)


def _answers(source: Source, file: IO[bytes], errors: IO[bytes]) -> Iterator[Record | Reject]:
    script = Path(__file__).with_name("office_files.py")
    # -P: what lies in the current folder, or beside the script, is not imported in place of the library.
    command = [sys.executable, "-P", str(script), str(source.format), str(MEMORY), str(SECONDS)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUTF8": "1"}
    with subprocess.Popen(command, stdin=file, stdout=subprocess.PIPE, stderr=errors, env=environment) as process:  # noqa: S603
        assert process.stdout is not None
        number = 0
        try:
            while line := process.stdout.readline(LINE_BYTES):
                number += 1
                if not line.endswith(b"\n"):
                    yield Reject(source.name, number, f"the record is too long: more than {LINE_BYTES:,} bytes")
                    process.kill()
                    return
                data = json.loads(line)
                if isinstance(data, str):
                    yield Reject(source.name, number, data)
                elif source.format == "xlsx":
                    yield Record(source.name, data.pop("__row__", number), data)
                else:
                    yield Record(source.name, 1, {"_id": source.label, **data}, kind=_CALLED[str(source.format)])
        finally:
            process.stdout.close()
            if process.poll() is None and number and source.format != "xlsx":
                process.wait()
        if process.wait() != 0:
            errors.seek(0)
            said = errors.read(4000).decode("utf-8", "replace").strip().rpartition("\n")[2]
            why = excerpt(said) if process.returncode == 1 and said else "the reader crashed, or took too long"
            yield Reject(source.name, number + 1, f"the file can't be read ({why})")
