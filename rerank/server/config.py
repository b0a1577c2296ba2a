"""A server's configuration: limits, and who may ask."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Limits:
    """`timeout` in seconds, from a request's arrival to its answer.

    `head`: the seconds that a connection may stay open while no request of it is answered. `connections`: open at once.
    """

    body: int = 16 << 20
    texts: int = 1000
    characters: int = 200_000
    requests: int = 256
    timeout: float = 60
    connections: int = 512
    head: float = 10

    @property
    def held_bytes(self) -> int:
        """Of all requests that are in work: no more than this is kept in memory."""
        return max(16 * self.body, 256 << 20)


@dataclass(frozen=True, slots=True)
class Access:
    """Who may ask. Without a key, anyone may, but only under a known host name. The key is never shown.

    `hosts`: what the server is called, beside localhost and addresses.
    """

    key: str | None = field(default=None, repr=False)
    hosts: tuple[str, ...] = ()
