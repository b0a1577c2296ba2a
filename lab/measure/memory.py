"""Keeps what stages computed on disk, so that an interrupted evaluation runs nothing twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.cache import Cache
from ...core.closing import Closing

if TYPE_CHECKING:
    from ...core.settings import Settings

FOLDER = "evaluation"


class DiskMemory(Closing):
    """A `Memory` in a file. `notice` says where something is wrong with the file: then nothing outlasts the run.

    `hits` counts values, by kind.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._cache = Cache(path, max_bytes, "the cache of evaluations")
        self.hits: dict[str, int] = {}

    @property
    def notice(self) -> str | None:
        return self._cache.notice

    def get(self, kind: str, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        wanted = {_key(kind, key): key for key in keys}
        found = {wanted[key]: value for key, value in self._cache.get(list(wanted)).items()}
        self.hits[kind] = self.hits.get(kind, 0) + len(found)
        return found

    def put(self, kind: str, values: Mapping[bytes, bytes]) -> None:
        self._cache.put({_key(kind, key): value for key, value in values.items()})

    def close(self) -> None:
        self._cache.close()


def open_memory(settings: Settings) -> DiskMemory:
    """The memory of evaluations in the settings' cache folder. Never fails: see its `notice`."""
    return DiskMemory(settings.cache_dir / FOLDER / "memory.sqlite", settings.cache_bytes)


def _key(kind: str, key: bytes) -> bytes:
    return kind.encode() + b":" + key
