"""The local stores of a folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...core.errors import CcheckError
from .files import DATABASE
from .store import LocalStore


@dataclass(frozen=True, slots=True)
class ListedStore:
    """A local store with the number of its documents, or the problem that keeps it from being opened."""

    name: str
    folder: Path
    documents: int | None
    problem: str = ""


def local_stores(data_dir: Path) -> Iterator[ListedStore]:
    """The stores of a data folder, by name: what `ccheck index list` prints. Raises nothing on purpose."""
    for name in sorted(file.parent.name for file in data_dir.glob(f"*/{DATABASE}")):
        folder = data_dir / name
        try:
            with LocalStore(folder, name) as store:
                yield ListedStore(f"local:{name}", folder, store.count())
        except CcheckError as error:
            yield ListedStore(f"local:{name}", folder, None, str(error))
