"""The sources that Python callers ingest: files, and records that they have at hand."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..core.errors import UsageError
from .sources import RECORDS


@contextmanager
def as_files(given: Iterable[Any]) -> Iterator[list[str]]:
    """The given as paths: records and data frames are in temporary files until the end of the context.

    Raises UsageError for anything else.
    """
    with tempfile.TemporaryDirectory(prefix="ccheck-") as folder:
        paths: list[str] = []
        records: list[Mapping[str, Any]] = []
        for one in given:
            if isinstance(one, str | os.PathLike):
                paths.append(os.fspath(one))
            else:
                records += _records(one)
        if records:
            file = Path(folder, RECORDS)
            with file.open("w", encoding="utf-8") as stream:
                for record in records:
                    stream.write(json.dumps(_named(record), default=_plain) + "\n")
            paths.append(str(file))
        yield paths


def _records(one: Any) -> list[Mapping[str, Any]]:
    if isinstance(one, Mapping):
        return [one]
    if hasattr(one, "to_dicts"):  # polars
        return list(one.to_dicts())
    if hasattr(one, "to_dict") and hasattr(one, "columns"):  # pandas
        return list(one.to_dict(orient="records"))
    if isinstance(one, Iterable) and not isinstance(one, bytes):
        found = list(one)
        if all(isinstance(record, Mapping) for record in found):
            return found
    raise UsageError(f"can't ingest {type(one).__name__}: give paths, dicts, a list of dicts or a data frame")


def _named(value: Any) -> Any:
    """The same value with text for all keys, as JSON wants them."""
    if isinstance(value, Mapping):
        return {str(name): _named(inner) for name, inner in value.items()}
    return [_named(inner) for inner in value] if isinstance(value, list | tuple) else value


def _plain(value: Any) -> Any:
    """Values of data frames and of Python's own types as JSON has them. NaN counts as absent when it is read."""
    if hasattr(value, "isoformat"):
        text = str(value.isoformat())
        return None if text == "NaT" else text.removesuffix("T00:00:00")
    return value.tolist() if hasattr(value, "tolist") else str(value)
