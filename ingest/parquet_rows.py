"""The other process of `parquet.py`: the rows of the Parquet file on standard input, as JSON Lines on standard output.

A line is a row as an object, or what is wrong with it as a string. Run as a script, with nothing of ccheck loaded.
"""

from __future__ import annotations

import datetime
import decimal
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

ROWS = 256
"""How many rows are in memory at a time, as far as `ROWS_BYTES` allows."""
ROWS_BYTES = 64 << 20


def limit_memory(limit: int) -> None:
    """As a process of its own, so that a file of 33 KB can't take all memory of the machine."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return
    try:
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    except (OSError, ValueError):  # macOS
        return


def rows(file: Any) -> Iterator[dict[str, Any] | str]:
    """The rows of a file as JSON would hold them, or what is wrong with one."""
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(file) as opened:
        size = sum(opened.metadata.row_group(i).total_byte_size for i in range(opened.metadata.num_row_groups))
        each = size // max(opened.metadata.num_rows, 1)
        for batch in opened.iter_batches(batch_size=max(1, min(ROWS, ROWS_BYTES // max(each, 1))), use_threads=False):
            yield from _of_batch(batch)


def _of_batch(batch: Any) -> Iterator[dict[str, Any] | str]:
    # One bad value, such as text that isn't UTF-8, spoils a batch; and a large one is not held twice.
    try:
        whole = batch.to_pylist() if batch.nbytes <= ROWS_BYTES else None
    except ValueError:
        whole = None
    for number in range(batch.num_rows):
        if whole is None and batch.slice(number, 1).nbytes > ROWS_BYTES:
            yield f"the row is too long: more than {ROWS_BYTES:,} bytes"
            continue
        try:
            yield as_json(whole[number] if whole is not None else batch.slice(number, 1).to_pylist()[0])
        except ValueError as error:
            yield f"a value can't be read: {error}"


def as_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): as_json(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(inner) for inner in value]
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def main() -> None:
    """Write the rows, and exit with 1 and the reason on standard error where the file breaks off."""
    limit_memory(int(sys.argv[1]))
    try:
        import pyarrow

        for row in rows(sys.stdin.buffer):
            # ASCII: lone surrogates too.
            sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()
        # All rows are out: threads of pyarrow that crash while the interpreter ends must not make them look cut off.
        os._exit(0)
    except BrokenPipeError:
        sys.exit(0)  # nobody reads any more
    except MemoryError:  # also pyarrow's own
        sys.exit(f"it needs more than {int(sys.argv[1]) >> 20:,} MiB of memory")
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        sys.exit(str(error) or type(error).__name__)


if __name__ == "__main__":
    main()
