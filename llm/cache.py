"""The cache of answers: the same question is never paid for twice.

A key is a hash of everything that the answer depends on; what is kept is the reply's text and its tokens, never a
failure and never a key of a server.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core.cache import Cache

MAX_BYTES = 256 << 20


class AnswerCache:
    """The replies of language models by `answer_key`, in `folder`/answers.sqlite.

    It never fails: `notice` says what is wrong.
    """

    def __init__(self, folder: Path, max_bytes: int = MAX_BYTES) -> None:
        """Beyond `max_bytes` the oldest answers are forgotten; 0 keeps none after the run."""
        path = folder / "answers.sqlite"
        self._cache = Cache(path, max_bytes, "the cache of answers")

    @property
    def notice(self) -> str | None:
        return self._cache.notice

    def get(self, key: bytes) -> str | None:
        """The text of the reply."""
        found = self._cache.get([key]).get(key)
        return None if found is None else found.decode("utf-8", "surrogatepass")

    def put(self, key: bytes, text: str) -> None:
        self._cache.put({key: text.encode("utf-8", "surrogatepass")})

    def close(self) -> None:
        self._cache.close()


def answer_key(parts: Mapping[str, Any]) -> bytes:
    """A hash of JSON values, the same in every process."""
    text = json.dumps(parts, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).digest()
