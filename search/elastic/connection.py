"""The address and credentials of a server."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from ...core.errors import UsageError
from ...core.keys import key_for, place
from ...core.redaction import http_parts, keep_secret, keep_secrets_of
from ...core.settings import Settings


@dataclass(frozen=True, slots=True)
class Connection:
    """A server's address and what it asks for. Neither `repr` nor `url` shows a secret.

    A user and password in `url` are taken out of it. `request_timeout` is for one request, `retry_seconds` for how
    long writing waits for a server that is busy or gone.
    """

    url: str = ""
    hosts: tuple[str, ...] = ()
    """Further addresses of the same cluster, which are asked in turn with `url`."""
    api_key: str | None = field(default=None, repr=False)
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_certs: Path | None = None
    ca_fingerprint: str | None = None
    """SHA-256 of a certificate in the server's chain. It replaces `ca_certs` and the check of the host's name."""
    client_cert: Path | None = None
    client_key: Path | None = None
    verify_certs: bool = True
    compress: bool = False
    request_timeout: float = 30.0
    retry_seconds: float = 120.0
    concurrency: int = 8
    """How many searches, or requests that write, run at a time: on a cluster that serves others too."""
    withheld: str | None = None
    """Why the user's key or password is not sent there."""

    def __post_init__(self) -> None:
        """Raises UsageError without a usable address."""
        url, user = _address(self.url, "ELASTICSEARCH_URL")
        if user and self.username is None and self.api_key is None:
            username, _, password = user.partition(":")
            object.__setattr__(self, "username", unquote(username))
            object.__setattr__(self, "password", unquote(password))
        keep_secrets_of(self.url)
        # As basic authentication sends them.
        both = base64.b64encode(f"{self.username}:{self.password}".encode()).decode()
        keep_secret(self.api_key, self.password, both if self.username and self.password else None)
        hosts = [_address(host, "ELASTICSEARCH_HOSTS")[0] for host in self.hosts]
        for host in hosts:
            if urlsplit(host).scheme != urlsplit(url).scheme:
                raise UsageError(
                    f"{url} and {host} belong to one cluster, but only one of them is https. Write both alike in "
                    "ELASTICSEARCH_URL and ELASTICSEARCH_HOSTS"
                )
        if self.client_key is not None and self.client_cert is None:
            raise UsageError(
                "ELASTICSEARCH_CLIENT_KEY is set without a certificate. Set ELASTICSEARCH_CLIENT_CERT as well"
            )
        object.__setattr__(self, "url", url)
        object.__setattr__(self, "hosts", tuple(dict.fromkeys(host for host in hosts if host != url)))


def connection_from(settings: Settings, url: str | None = None) -> Connection:
    """The connection that the settings describe, to `url` where that is given. Raises UsageError without an address.

    ELASTICSEARCH_HOSTS counts for the cluster that it belongs to: where `url` is among it, or is ELASTICSEARCH_URL.
    """
    hosts = settings.elasticsearch_hosts or ()
    target = url or settings.elasticsearch_url or next(iter(hosts), "")
    if place(target) not in {place(one) for one in (*hosts, settings.elasticsearch_url or "")}:
        hosts = ()
    # All addresses get the same key, so that it is withheld from all if one of them is not the user's.
    key, password = (
        next((key for key in keys if key.withheld), keys[0])
        for keys in (
            [key_for(settings, name, one) for one in (target, *hosts)]
            for name in ("elasticsearch_api_key", "elasticsearch_password")
        )
    )
    return Connection(
        url=target,
        hosts=hosts,
        api_key=key.value,
        username=settings.elasticsearch_username if password.withheld is None else None,
        password=password.value,
        withheld=key.withheld or password.withheld,
        ca_certs=settings.elasticsearch_ca_certs,
        ca_fingerprint=settings.elasticsearch_ca_fingerprint,
        client_cert=settings.elasticsearch_client_cert,
        client_key=settings.elasticsearch_client_key,
        verify_certs=settings.elasticsearch_verify_certs,
        compress=settings.elasticsearch_compress,
        request_timeout=settings.elasticsearch_timeout,
        retry_seconds=settings.elasticsearch_retry_seconds,
        concurrency=settings.elasticsearch_concurrency,
    )


def _address(address: str, variable: str) -> tuple[str, str]:
    """A URL with its port and without user and password, and these. Raises UsageError if it is not a URL."""
    if (parts := http_parts(address)) is None:
        raise UsageError(f"no usable Elasticsearch address. Set {variable} to one such as https://host:9200")
    user, _, host = parts.netloc.rpartition("@")
    netloc = host if parts.port else f"{host.rstrip(':')}:{443 if parts.scheme == 'https' else 80}"
    return urlunsplit((parts.scheme, netloc, parts.path.rstrip("/"), "", "")), user
