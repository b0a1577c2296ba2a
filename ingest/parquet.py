"""Parquet, by pyarrow."""

from __future__ import annotations

import datetime
import decimal
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

from ..errors import MissingExtra
from .lines import decompressed
from .readers import Record, Reject, excerpt
from .sources import Source

ROWS = 256
"""How many rows are in memory at a time."""


def read_parquet(source: Source, on_bytes: Callable[[int], None]) -> Iterator[Record | Reject]:
    """The rows as records. Raises MissingExtra without pyarrow and OSError where the file can't be read."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise MissingExtra("reading Parquet", "parquet") from error
    row = 0
    with tempfile.TemporaryFile() as unpacked:
        # Parquet is read from its end backwards, which a compressed stream can't do.
        if source.compression:
            for chunk in decompressed(source, on_bytes):
                unpacked.write(chunk)
            on_bytes = lambda size: None  # noqa: E731 - all of it was counted
        try:
            with pyarrow.parquet.ParquetFile(unpacked if source.compression else source.path) as file:
                done, total = 0, file.metadata.num_rows
                for batch in file.iter_batches(batch_size=ROWS):
                    for data in _rows(batch):
                        row += 1
                        if isinstance(data, str):
                            yield Reject(source.name, row, data)
                        else:
                            yield Record(source.name, row, data)
                    bytes_now = (source.size or 0) * row // max(total, 1)
                    on_bytes(bytes_now - done)
                    done = bytes_now
        except pyarrow.ArrowException as error:
            reason = f"not readable as Parquet ({excerpt(str(error))}); the rest of the file is left out"
            yield Reject(source.name, row + 1, reason)


def _rows(batch: Any) -> Iterator[dict[str, Any] | str]:
    """The rows of a batch as JSON would hold them, or what is wrong with one."""
    try:
        rows = batch.to_pylist()
    except ValueError:  # one bad value, such as text that isn't UTF-8, spoils the batch
        rows = None
    for number in range(batch.num_rows):
        try:
            data = rows[number] if rows is not None else batch.slice(number, 1).to_pylist()[0]
        except ValueError as error:
            yield f"a value can't be read: {error}"
        else:
            yield _as_json(data)


def _as_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _as_json(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(inner) for inner in value]
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
