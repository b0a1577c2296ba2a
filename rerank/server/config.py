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
        """Most bytes of all requests in progress that are kept in memory."""
        return max(16 * self.body, 256 << 20)


@dataclass(frozen=True, slots=True)
class Access:
    """Who can use the server. Without a key, anyone can, but only with a known host name. The key is never shown.

    `hosts`: what the server is called, beside localhost and addresses.
    """

    key: str | None = field(default=None, repr=False)
    hosts: tuple[str, ...] = ()
