"""Secrets, kept out of every text that leaves the process.

What is known to be one (keys, passwords, tokens in URLs) is registered by whoever reads it. `without_secrets` takes
exactly these out of a text, so it suits data; `redact` also takes out what merely looks like a secret, so it suits
messages and names. The program's output streams, pages and runs go through the first, errors through both.
"""

from __future__ import annotations

import base64
import html
import json
import logging
import re
from collections.abc import Iterable
from typing import IO, Any
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlsplit

MARK = "***"
SHORTEST = 6
"""A shorter secret can't be told from any other word, and is not looked for."""
_SURE = 12
"""From this length on a secret is one wherever it stands; a shorter one only where it stands alone."""
_NAMES = r"(?:\w+[-_])?(?:api[-_]?key|key|token|secret|password|passwd|pwd|signature|sig|auth|credential)s?"
_LOOKS = (
    # user:password@ after ://, with a slash in the password too.
    (re.compile(r"""(?<=://)(?:[^\s/?#"'<>]*|[^\s/?#@"'<>]*:[^\s@"'<>]*)@"""), f"{MARK}@"),
    (re.compile(rf"""([?&;]{_NAMES})=[^\s&#;"'<>]+""", re.IGNORECASE), rf"\1={MARK}"),
    (re.compile(r"""(\bauthorization["']?\s*[:=]\s*["']?)(?:\w+\s+)?[^\s"',}]+""", re.IGNORECASE), rf"\1{MARK}"),
    (re.compile(r"\b(Bearer|ApiKey)\s+[\w.~+/=-]{16,}", re.IGNORECASE), rf"\1 {MARK}"),
    (re.compile(r"\b(?:(?:sk|pk|gsk)[-_]|hf_|AIza|gh[pousr]_)[\w*.-]{6,}"), MARK),
)
_HTTP_PARTS = ("connection", "http11", "http2", "proxy", "socks")
_LOGGERS = (
    *(f"{http}.{part}" for http in ("httpcore", "httpcore2") for part in _HTTP_PARTS),
    *("httpx", "httpx2", "openai", "openai._base_client", "urllib3.connectionpool"),
    *("elastic_transport.node", "elastic_transport.transport", "elasticsearch"),
)
_URL_SECRET = re.compile(_NAMES, re.IGNORECASE)
_forms: dict[str, None] = {}
_known: re.Pattern[str] | None = None


def keep_secret(*secrets: str | None) -> None:
    """From now on no text shows these. None and what is too short is passed over."""
    global _known
    new: dict[str, None] = {}
    for secret in secrets:
        plain = (secret or "").strip()
        if len(plain) < SHORTEST or (plain.isdecimal() and len(plain) < _SURE):
            continue
        # As it stands in a text, a URL, JSON and HTML.
        written = (plain, quote(plain, safe=""), quote(plain), json.dumps(plain)[1:-1], html.escape(plain))
        new |= dict.fromkeys(written)
    if new.keys() <= _forms.keys():
        return
    for logger in map(logging.getLogger, _LOGGERS):  # a logger's filter is not that of those below it
        if _without_secrets not in logger.filters:
            logger.addFilter(_without_secrets)
    _forms.update(new)
    parts = [
        re.escape(form) if len(form) >= _SURE else rf"(?<!\w){re.escape(form)}(?!\w)"
        for form in sorted(_forms, key=len, reverse=True)
    ]
    _known = re.compile("|".join(parts))


def http_parts(url: str) -> SplitResult | None:
    """The parts of an address of HTTP, whose host and port are sound; None for anything else."""
    try:
        parts = urlsplit(url.strip())
        sound = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        return None
    return parts if sound else None


def keep_secrets_of(url: str) -> None:
    """The same for the password and the tokens in a URL, and for what a client makes of them; no URL holds none."""
    try:
        parts = urlsplit(url.strip())
    except ValueError:
        return
    user, separator, _ = parts.netloc.rpartition("@")
    if separator:
        name, _, password = (unquote(part) for part in user.partition(":"))
        basic = base64.b64encode(f"{name}:{password}".encode()).decode()
        # A user without a password is a token.
        keep_secret(password or name, basic)
    keep_secret(*(value for name, value in parse_qsl(parts.query) if _URL_SECRET.fullmatch(name)))


def without_secrets(text: str) -> str:
    """The text without the secrets that are known; nothing else of it changes."""
    return text if _known is None else _known.sub(MARK, text)


def redact(text: str) -> str:
    """The text without secrets, and without what looks like one: credentials in URLs, keys, authorisation headers."""
    text = without_secrets(text)
    for pattern, instead in _LOOKS:
        text = pattern.sub(instead, text)
    return text


def _without_secrets(record: logging.LogRecord) -> bool:
    """Removes secrets from the URLs and headers that HTTP clients log."""
    record.msg, record.args = redact(record.getMessage()), ()
    return True


class Redacting:
    """A text stream whose reader never sees a known secret."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(without_secrets(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
