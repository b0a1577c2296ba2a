"""Memory for the results of stages: an evaluation keeps them here, so that no stage runs twice.

A key is a hash of everything that a value depends on; a value is bytes. What fails is never kept.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from .errors import CcheckError

T = TypeVar("T")


class Memory(Protocol):
    """Values by key. `kind` is that of their stage: `embedding`, `sparse`, `ranking`, `rerank`."""

    def get(self, kind: str, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """The values of those keys that are known."""
        ...

    def put(self, kind: str, values: Mapping[bytes, bytes]) -> None: ...


def memory_key(*parts: Any) -> bytes:
    """A hash of bytes and JSON values, the same in every process."""
    digest = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else json.dumps(part, sort_keys=True, ensure_ascii=True).encode()
        digest.update(b"%d:" % len(data) + data)
    return digest.digest()


def recall(
    memory: Memory | None,
    kind: str,
    keys: Sequence[bytes],
    compute: Callable[[list[int]], Sequence[T]],
    dump: Callable[[T], bytes],
    load: Callable[[bytes], T],
) -> list[T]:
    """A value for each key: what is known, and for the rest what `compute` makes of their places among the keys.

    An error among the values is not kept. Without a memory everything is computed.
    """
    if memory is None:
        return list(compute(list(range(len(keys)))))
    known = memory.get(kind, keys)
    missing = [place for place, key in enumerate(keys) if key not in known]
    made = dict(zip(missing, compute(missing), strict=True)) if missing else {}
    kept = {place: value for place, value in made.items() if not isinstance(value, CcheckError)}
    memory.put(kind, {keys[place]: dump(value) for place, value in kept.items()})
    return [made[place] if place in made else load(known[key]) for place, key in enumerate(keys)]
