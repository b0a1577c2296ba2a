"""A server's configuration: limits, and who may ask."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Limits:
    """`timeout` in seconds, from a request's arrival to its answer. `batch_tokens`: None is for the device to say.

    `head`: the seconds that a connection may stay open while no request of it is answered. `connections`: open at once.
    """

    body: int = 16 << 20
    texts: int = 1000
    characters: int = 200_000
    requests: int = 256
    timeout: float = 60
    batch_tokens: int | None = None
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


BATCH_TOKENS = {"cpu": 4096, "cuda": 16384}
"""By device; more make no model faster, and small requests wait longer."""


def batch_tokens(limits: Limits, device: str) -> int:
    return limits.batch_tokens or BATCH_TOKENS["cuda" if device.startswith("cuda") else "cpu"]
