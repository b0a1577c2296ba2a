"""The reranking server's limits, and who may ask."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ...core import serving
from .dialects import Refusal

KEY = "CCHECK_SERVE_API_KEY"
"""The environment variable with the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits(serving.Limits):
    """`body` is large, since Elasticsearch sends a passage's whole field for each hit. `batch_tokens`: ids that a model
    reads at once."""

    body: int = 64 << 20
    texts: int = 1000
    characters: int = 200_000
    batch_tokens: int = 1024

    @property
    def held_bytes(self) -> int:
        """Most bytes of all requests in progress."""
        return max(self.body, 256 << 20)


@dataclass(frozen=True, slots=True)
class Access:
    """Who can use the server. Without a key, anyone can, but only with a known host name. The key is never shown.

    `hosts`: what the server is called, beside localhost and addresses.
    """

    key: str | None = field(default=None, repr=False)
    hosts: tuple[str, ...] = ()


class Held:
    """Limits what is in progress: requests, or their bytes. For use in the event loop's thread only."""

    def __init__(self, most: int, unit: str, seconds_to_wait: Callable[[], int]) -> None:
        self.used = 0
        self._most, self._unit, self._seconds_to_wait = most, unit, seconds_to_wait

    @contextmanager
    def some(self, count: int = 0) -> Iterator[Callable[[int], None]]:
        """Holds `count` until the end, and what the function that it gives is told of.

        Raises Refusal where too much is held; so does that function.
        """
        held = 0

        def add(more: int) -> None:
            nonlocal held
            if self.used + more > self._most:
                raise Refusal(429, f"the queue is full ({self._most:,} {self._unit})", self._seconds_to_wait())
            held += more
            self.used += more

        try:
            add(count)
            yield add
        finally:
            self.used -= held
