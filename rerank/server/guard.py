"""The reranking server's limits, and who may ask."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...core import serving

KEY = "CCHECK_SERVE_API_KEY"
"""The environment variable with the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits(serving.Limits):
    """`batch_tokens`: ids that a model reads at once."""

    texts: int = 1000
    characters: int = 200_000
    batch_tokens: int = 4096

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
