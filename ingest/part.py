"""A part of an ingest that several processes or machines share."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from ..core.errors import UsageError


@dataclass(frozen=True, slots=True)
class Part:
    """The documents of one of `of` parts; `number` is from 1.

    A document belongs to a part by a digest of its id: whatever files it is in, in whatever order, all records with an
    id meet in one process, which chooses between them as an ingest of everything would.
    """

    number: int
    of: int

    def __post_init__(self) -> None:
        """Raises UsageError for a part that there isn't."""
        if not 1 <= self.number <= self.of:
            raise UsageError(f"there is no part {self}. Parts are numbered from 1, such as 1/{max(self.of, 1)}")

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    @classmethod
    def named(cls, name: str) -> Part:
        """`3/16`. Raises UsageError."""
        found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", name.strip())
        if found is None:
            raise UsageError(f"{name!r} is not a part. Write 3/16 for the third of sixteen parts")
        return cls(int(found[1]), int(found[2]))

    def has(self, id_: str) -> bool:
        digest = hashlib.blake2b(id_.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return int.from_bytes(digest) % self.of == self.number - 1

    def has_line(self, line: int) -> bool:
        """Whether a record that has no id, because it can't be read, is this part's to report."""
        return line % self.of == self.number - 1
