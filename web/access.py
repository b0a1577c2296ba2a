"""Who may do what: keys with scopes, sessions of browsers, limits by caller, and what every request must pass."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import re
import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..core.errors import UsageError
from ..core.keys import place
from ..core.redaction import keep_secret
from ..core.text import shortened
from .page import for_owner
from .problems import JSON, Problem

Right: TypeAlias = Literal["read", "check", "write"]
"""`read`: recorded checks, documents, search. `check`: new checks and corrections. `write`: papers into the store."""
RIGHTS: tuple[Right, ...] = get_args(Right)
KEYS = "CCHECK_API_KEYS"
EXAMPLE = f"{KEYS}='newsroom:read+check:A-LONG-RANDOM-KEY'"
LEAST_KEY = 16
"""Characters of a key. Shorter ones could be guessed."""
SESSION, FORM = "ccheck_session", "ccheck_form"
SESSION_SECONDS = 12 * 3600
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # with none, browsers hide the origin of forms
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
SAFE = ("GET", "HEAD", "OPTIONS")
UNREAD_BYTES, UNREAD_SECONDS = 16 << 20, 10.0
"""How much more than its limit is read of a request that is refused: who still sends does not see the answer."""


@dataclass(frozen=True, slots=True)
class Key:
    """A caller's key. It is never shown."""

    name: str
    rights: frozenset[Right]
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks. `name` is the key's, or None where no key is needed. `id` is what limits are counted by, None for
    whoever started the server, who has none."""

    name: str | None
    rights: frozenset[Right]
    id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """What one caller may have. `requests` and `checks`: in a minute. `at_once`: checks and files that run.

    `tokens`: of language models in 24 hours; None: any number. `claims`: of one file.
    """

    requests: int = 1_200
    checks: int = 600
    at_once: int = 8
    tokens: int | None = None
    claims: int = 5_000


def keys_from(given: str | None) -> tuple[Key, ...]:
    """The keys of `CCHECK_API_KEYS`: `NAME:RIGHTS:KEY`, with rights such as `read+check`, separated by white space.

    Raises UsageError, which never shows a key.
    """
    keys: list[Key] = []
    for number, one in enumerate((given or "").split(), 1):
        name, rights, secret = [*one.split(":", 2), "", ""][:3]
        keep_secret(secret or one)
        named = frozenset(right for right in RIGHTS if right in rights.split("+"))
        if not re.fullmatch(r"[\w-]{1,40}", name) or not named or len(named) != len(rights.split("+")):
            raise UsageError(
                f"{KEYS}, entry {number}: write NAME:RIGHTS:KEY, with rights of {', '.join(RIGHTS)}: {EXAMPLE}"
            )
        if len(secret) < LEAST_KEY or not secret.isascii():
            raise UsageError(f"{KEYS}, entry {number}: the key must have at least {LEAST_KEY} ASCII characters")
        if name in {key.name for key in keys}:
            raise UsageError(f"{KEYS}, entry {number}: the name {name} is there twice")
        keys.append(Key(name, named, secret))
    return tuple(keys)


class Access:
    """Tells who asks, and signs what browsers bring back. Its own secret is new in each process.

    `owner` is the name of whoever started the server.
    """

    def __init__(self, keys: Sequence[Key] = (), owner: str | None = None) -> None:
        self.keys, self._owner = tuple(keys), owner
        self._secret = secrets.token_bytes(32)

    def caller(self, connection: HTTPConnection) -> Caller:
        """Who sent a request. Raises Problem 401 where a key is needed and the one that was sent is not known."""
        if is_owner(connection.scope):
            return Caller(self._owner, frozenset(RIGHTS), None)
        address = connection.client.host if connection.client is not None else "local"
        if not self.keys:
            return Caller(None, frozenset(RIGHTS), address)
        scheme, _, given = connection.headers.get("authorization", "").partition(" ")
        key = self.known(given.strip()) if scheme.lower() == "bearer" else self._of_session(connection)
        if key is None:
            raise Problem(
                401, "a key is needed: send Bearer KEY in the header Authorization", {"WWW-Authenticate": "Bearer"}
            )
        return Caller(key.name, key.rights, key.name)

    def known(self, given: str) -> Key | None:
        """The key with this secret. Every key is compared, each in constant time."""
        found = None
        for key in self.keys:
            # Headers come as Latin-1, whatever their bytes were.
            if hmac.compare_digest(given.encode("utf-8", "replace"), key.secret.encode()):
                found = key
        return found

    # -- browsers

    def session(self, key: Key) -> str:
        """The cookie of a browser whose user gave this key."""
        until = f"{key.name}.{int(time.time()) + SESSION_SECONDS}"
        return f"{until}.{self._signed('session', until, key.secret)}"

    def _of_session(self, connection: HTTPConnection) -> Key | None:
        until, _, signature = connection.cookies.get(SESSION, "").rpartition(".")
        name, _, ends = until.partition(".")
        key = next((one for one in self.keys if one.name == name), None)
        if key is None or not hmac.compare_digest(
            signature.encode(), self._signed("session", until, key.secret).encode()
        ):
            return None
        return key if int(ends) > time.time() else None

    def token(self, cookie: str) -> str:
        """What a form must bring back beside the browser's cookie, so that no page of another site can send it."""
        return self._signed("form", cookie)

    def refuse_forged(self, connection: HTTPConnection, token: object) -> None:
        """Raises Problem 403 unless the form was made by a page of this server for this browser."""
        cookie = connection.cookies.get(FORM, "")
        if not cookie or not hmac.compare_digest(str(token).encode("utf-8", "replace"), self.token(cookie).encode()):
            raise Problem(403, "this form is too old, or cookies are off or need HTTPS. Load the page again to send it")

    def _signed(self, *parts: str) -> str:
        return hmac.new(self._secret, "\n".join(parts).encode("utf-8", "replace"), hashlib.sha256).hexdigest()


class Counted:
    """What callers spend, by what it is: no more than `most` in `seconds`, which come back evenly."""

    def __init__(self, most: float, seconds: float, what: str) -> None:
        self.most, self.seconds, self.what = most, seconds, what
        self._spent: dict[str, tuple[float, float]] = {}

    def spend(self, caller: str | None, amount: float = 1, *, forced: bool = False) -> None:
        """Raises Problem 429 if that is too much; `forced` for what was spent already."""
        if caller is None:
            return
        now = time.monotonic()
        if len(self._spent) > 10_000:  # addresses of strangers
            self._spent = {one: state for one, state in self._spent.items() if now - state[1] < self.seconds}
        spent, at = self._spent.get(caller, (0.0, now))
        spent = max(0.0, spent - (now - at) * self.most / self.seconds)
        if not forced and spent + amount > self.most:
            wait = max(1, int((spent + amount - self.most) * self.seconds / self.most) + 1)
            said = f"{wait} s" if wait < 600 else f"{wait / 3600:.1f} h"
            raise Problem(429, f"too many {self.what}: try again in {said}", {"Retry-After": str(wait)})
        self._spent[caller] = spent + amount, now


class Limited:
    """The quotas of all callers, as they are now."""

    def __init__(self, quotas: Quotas) -> None:
        self.quotas = quotas
        self.requests = Counted(quotas.requests, 60, "requests")
        self.checks = Counted(quotas.checks, 60, "checks")
        self.tokens = None if quotas.tokens is None else Counted(quotas.tokens, 86_400, "tokens of language models")
        self._running = Counter[str]()

    def claims(self, caller: Caller) -> int | None:
        """How many claims a file of this caller may have."""
        return None if caller.id is None else self.quotas.claims

    def start(self, caller: Caller, checks: int = 1) -> None:
        """One more check of this caller runs, or a file of so many. Raises Problem 429.

        A file of more claims than a minute's is taken, and whatever comes next waits for as many minutes.
        """
        if caller.id is None:
            return
        if self._running[caller.id] >= self.quotas.at_once:
            said = f"only {self.quotas.at_once} of your checks may run at once: wait for one of them"
            raise Problem(429, said, {"Retry-After": "2"})
        if self.tokens is not None:
            self.tokens.spend(caller.id)
        self.checks.spend(caller.id)
        self.checks.spend(caller.id, checks - 1, forced=True)
        self._running[caller.id] += 1

    def end(self, caller: Caller) -> None:
        """It is over."""
        if caller.id is not None:
            self._running -= Counter([caller.id])

    def used(self, caller: Caller, tokens: int) -> None:
        """A check has used so many tokens."""
        if self.tokens is not None and caller.id is not None:
            self.tokens.spend(caller.id, tokens, forced=True)

    def refuse_spent(self, caller: Caller) -> None:
        """Raises Problem 429 if no tokens are left for another check."""
        if self.tokens is not None:
            self.tokens.spend(caller.id, 0)


class Guard:
    """Refuses what another site's page sends and bodies that are too large, adds the headers of every answer, and takes
    `.json` off the addresses of pages."""

    def __init__(
        self,
        app: ASGIApp,
        most: int,
        larger: Mapping[str, int],
        measured: Callable[[Scope, int, float], None],
        public: str | None = None,
    ) -> None:
        """`most`: bytes of a body; `larger`: the same for paths that begin so. `measured` is told the status of each
        answer, and its seconds. `public` is where people open the page."""
        self.app, self.most, self.larger, self.measured, self.public = app, most, larger, measured, public

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), 500
        for_owner.set(is_owner(scope))
        headers = Headers(scope=scope)
        path = scope["path"]
        most = next((size for start, size in self.larger.items() if path.startswith(start)), self.most)
        too_large = Problem(413, f"the request is larger than {most:,} bytes, the most that is allowed here")
        if path.endswith(".json") and not path.startswith(("/v1/", "/openapi")):
            scope = {**scope, "path": path.removesuffix(".json"), JSON: True}

        async def answered(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if status >= 400 and "expect" not in headers:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(UNREAD_SECONDS):
                            while unread and read < most + UNREAD_BYTES:
                                await taken()
                answer = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    answer.setdefault(name, value)
            await send(message)

        read, unread = 0, True

        async def taken() -> Message:
            nonlocal read, unread
            message = await receive()
            read, unread = read + len(message.get("body", b"")), message.get("more_body", False)
            return message

        async def limited() -> Message:
            message = await taken()
            if read > most:
                raise too_large
            return message

        refused = None
        if scope["method"] not in SAFE and foreign(headers, self.public):
            sent, to = (shortened(headers.get(name, "nothing"), 100) for name in ("origin", "host"))
            said = f"the request comes from a page of another site: its header Origin is {sent}, and Host is {to}. "
            refused = Problem(403, f"{said}A proxy must pass Host on, or CCHECK_PUBLIC_URL be the page's address")
        elif headers.get("content-length", "0").isdigit() and int(headers.get("content-length", "0")[:15]) > most:
            refused = too_large
        try:
            if refused is not None:
                await refused.response(scope)(scope, receive, answered)
            else:
                await self.app(scope, limited, answered)
        finally:
            self.measured(scope, status, time.perf_counter() - started)


def is_owner(scope: Scope) -> bool:
    """Whether a request comes over the socket that only the user who started the server can open: it has no port."""
    server = scope.get("server")
    return server is not None and server[1] is None


def foreign(headers: Headers, public: str | None) -> bool:
    """Whether a browser says that a page of another site sends this. Programs say nothing.

    What browsers say of the site can't be set by a page, and is of the address that they asked. A browser that says
    nothing of it (an old one, or over HTTP) names the page's origin: it must be that of the host that was asked, which
    a proxy may have changed, or of `public`.
    """
    site, origin = headers.get("sec-fetch-site", "none"), headers.get("origin")
    if site != "none" or origin is None:
        return site not in ("same-origin", "none")
    own = {place(f"{origin.partition(':')[0]}://{headers.get('host', '')}"), place(public or "")}
    return place(origin) not in own - {None}


def needed(rights: Collection[Right], caller: Caller | Key) -> None:
    """Raises Problem 403 unless the caller has these rights."""
    missing = [right for right in rights if right not in caller.rights]
    if missing:
        raise Problem(403, f"the key {caller.name} lacks the right {' and '.join(missing)}")
