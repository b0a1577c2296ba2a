"""Which server gets a key: the one that the user named for it, and no other.

The user names servers with flags, with environment variables and in their own configuration file. A recipe and the
./ccheck.toml of a folder can name servers too, and these are asked without the key.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from .errors import UsageError
from .redaction import http_parts, keep_secret

if TYPE_CHECKING:
    from .settings import Settings

Place: TypeAlias = tuple[str, str, int]
"""A URL's scheme, host and port."""
NAMED_BY = {
    "elasticsearch_api_key": ("store", "elasticsearch_hosts", "elasticsearch_url"),
    "elasticsearch_password": ("store", "elasticsearch_hosts", "elasticsearch_url"),
    "rerank_api_key": ("rerank", "rerank_url"),
    "llm_api_key": ("llm_base_url",),
}
"""The settings in which the user names a key's servers."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key for a server; where it has none and the user has one for another server, `withheld` says so."""

    value: str | None = field(default=None, repr=False)
    withheld: str | None = None


def checked_key(name: str, value: str | None) -> str | None:
    """A key without blanks around it, which is secret from now on. Raises UsageError for what no header can carry."""
    key = (value or "").strip()
    if not (key.isascii() and key.isprintable() and " " not in key):
        raise UsageError(f"{name} contains characters that are not allowed in a key: copy the key again")
    keep_secret(key)
    return key or None


def key_for(settings: Settings, name: str, url: str) -> Key:
    """The key of that setting, for the server at `url`."""
    secret = getattr(settings, name)
    value = secret.get_secret_value().strip() if secret is not None else ""
    if not value:
        return Key()
    if is_yours(settings, name, url):
        return Key(value)
    found = place(url)
    where = f"{found[0]}://{found[1]}:{found[2]}" if found is not None else "an invalid address"
    *_, address = NAMED_BY[name]
    return Key(
        withheld=f"{_said(name)} was not sent to {where}, because a recipe or ./ccheck.toml chose it, not you. "
        f"To send it there, set {_said(address)} to that address"
    )


def is_yours(settings: Settings, name: str, url: str) -> bool:
    """Whether the user named the server at `url` for this key."""
    said = map(settings.yours, NAMED_BY[name])
    named = [one for value in said for one in (value.split(",") if isinstance(value, str) else value or ())]
    return place(url) in {found for one in named if (found := place(one)) is not None}


def place(url: str) -> Place | None:
    """Where a URL leads; None if it is not a URL."""
    if (parts := http_parts(url)) is None:
        return None
    return parts.scheme, (parts.hostname or "").rstrip("."), parts.port or {"http": 80, "https": 443}[parts.scheme]


def _said(name: str) -> str:
    """How people write a setting in the environment: OPENAI_API_KEY rather than CCHECK_LLM_API_KEY."""
    from .settings import variables  # which takes long to load

    mine, *others = variables(name)
    return others[0] if others else mine
