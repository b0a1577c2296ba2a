"""Parquet, by pyarrow. Only the other process of `apart.py` reads it: a page of a few bytes can stand for gigabytes."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Iterator
from typing import Any

from .records import Record, Reject
from .sources import Source

ROWS = 256
"""How many rows are in memory at a time, as far as `ROWS_BYTES` allows."""
ROWS_BYTES = 64 << 20


def read_parquet(source: Source, on_bytes: Callable[[int], None]) -> Iterator[Record | Reject]:
    """The rows as JSON would hold them."""
    import pyarrow.parquet

    number = 0
    with pyarrow.parquet.ParquetFile(source.path) as opened:
        size = sum(opened.metadata.row_group(i).total_byte_size for i in range(opened.metadata.num_row_groups))
        rows = max(opened.metadata.num_rows, 1)
        at_once = max(1, min(ROWS, ROWS_BYTES // max(size // rows, 1)))
        for batch in opened.iter_batches(batch_size=at_once, use_threads=False):
            on_bytes((source.size or 0) * batch.num_rows // rows)
            for row in _of_batch(batch):
                number += 1
                yield Reject(source.name, number, row) if isinstance(row, str) else Record(source.name, number, row)


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
