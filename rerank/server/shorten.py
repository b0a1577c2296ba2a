"""Reads a body that is larger than the server keeps: long strings are cut, and no caller is refused for them.

For each hit, Elasticsearch sends a passage's whole field. A model reads its first few hundred tokens.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress

BYTES_A_TOKEN = 64
"""More than a token has: a string of that many for each token of the model is longer than what the model reads."""
LEAST = 256
"""Bytes to which strings are cut at most. If that is too much, there are too many of them."""

_INSIDE = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_WHOLE = re.compile(
    rb"(?:[^\\\x80-\xff]++|\\u[dD][89abAB]..\\u....|\\u(?![dD][89abAB])....|\\[^u]"
    rb"|[\xc2-\xdf].|[\xe0-\xef]..|[\xf0-\xf4]...)*+",
    re.DOTALL,
)
"""Whole characters of a JSON string, as they are or escaped."""
_NONE = b"\x80"
"""Begins no character: fills up a string that is longer than what is left of it."""


class Shortener:
    """Takes JSON as it arrives, and keeps at most `most` bytes. `cut` has what remains of the strings that were cut."""

    def __init__(self, most: int, tokens: int) -> None:
        """`tokens`: how many a model reads of a text."""
        self.cut: set[str] = set()
        self._most, self._tokens, self._longest = most, tokens, most
        self._begin()

    def _begin(self) -> None:
        self._kept: list[bytes] = []
        self._string: list[bytes] | None = None
        self._size = self._length = 0
        self._rest = b""

    def add(self, part: bytes) -> int | None:
        """Returns how many bytes are kept now; None if they are too many although strings were cut."""
        if self._longest == self._most:  # nothing has to be cut so far
            self._keep(part)
        else:
            self._read(part)
        while self._size + self._length > self._most:
            if self._longest == LEAST:
                return None
            self._longest = max(LEAST, min(self._longest // 2, BYTES_A_TOKEN * self._tokens))
            kept = self.body()
            self._begin()
            self._read(kept)
        return self._size + self._length

    def body(self) -> bytes:
        return b"".join([*self._kept, *(self._string or ()), self._rest])

    def _read(self, part: bytes) -> None:
        part, at = self._rest + part, 0
        self._rest = b""
        while at < len(part):
            if self._string is None:
                end = part.find(b'"', at) + 1
                self._keep(part[at : end or len(part)])
                at = end or len(part)
                self._string, self._length = ([], 0) if end else (None, 0)
                continue
            match = _INSIDE.match(part, at)
            assert match is not None
            if self._length <= self._longest:
                self._string.append(match[0])
                self._length += len(match[0])
                if self._length > self._longest:
                    whole = self._whole(b"".join(self._string))
                    self._length = self._longest + 1
                    self._string = [whole.ljust(self._length, _NONE)]
            at = match.end()
            if part[at : at + 1] == b'"':
                self._ended(b"".join(self._string))
            elif at < len(part):  # a backslash, and what it escapes is not here yet
                self._rest = part[at:]
                return

    def _ended(self, string: bytes) -> None:
        if len(string) > self._longest:
            string = self._whole(string)
            with suppress(ValueError):  # if the body is no JSON, this is said of it later
                self.cut.add(json.loads(b'"%b"' % string))
        self._keep(string)
        self._string, self._length = None, 0

    def _whole(self, string: bytes) -> bytes:
        """The characters that fit."""
        match = _WHOLE.match(string, 0, self._longest)
        assert match is not None
        return match[0]

    def _keep(self, some: bytes) -> None:
        self._kept.append(some)
        self._size += len(some)
