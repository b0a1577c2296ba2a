"""The address and credentials of a server."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit, urlunsplit

from ...errors import UsageError
from ...keys import key_for
from ...redaction import keep_secret, keep_secrets_of

if TYPE_CHECKING:
    from ...settings import Settings


@dataclass(frozen=True, slots=True)
class Connection:
    """A server's address and what it asks for. Neither `repr` nor `name` shows a secret.

    A user and password in the URL are taken out of it. `request_timeout` is for one request, `retry_seconds` for how
    long writing waits for a server that is busy or gone.
    """

    url: str | None = field(default=None)
    cloud_id: str | None = None
    api_key: str | None = field(default=None, repr=False)
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_certs: Path | None = None
    verify_certs: bool = True
    request_timeout: float = 30.0
    retry_seconds: float = 120.0
    withheld: str | None = None
    """Why the user's key or password is not sent there."""

    def __post_init__(self) -> None:
        """Raises UsageError where there is no address, or none that makes sense."""
        address = _cloud_address(self.cloud_id) if self.url is None and self.cloud_id else self.url
        try:
            parts = urlsplit((address or "").strip())
            port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError:
            parts = urlsplit("")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError("no usable Elasticsearch address. Set ELASTICSEARCH_URL to one such as https://host:9200")
        user, _, host = parts.netloc.rpartition("@")
        if user and self.username is None and self.api_key is None:
            username, _, password = user.partition(":")
            object.__setattr__(self, "username", unquote(username))
            object.__setattr__(self, "password", unquote(password))
        keep_secrets_of(self.url or "")
        keep_secret(self.api_key, self.password, _basic(self.username, self.password))
        netloc = host if parts.port else f"{host.rstrip(':')}:{port}"
        object.__setattr__(self, "url", urlunsplit((parts.scheme, netloc, parts.path.rstrip("/"), "", "")))

    @property
    def name(self) -> str:
        """The server's URL, without user and password."""
        return self.url or ""


def connection_from(settings: Settings, url: str | None = None) -> Connection:
    """The connection that the settings describe, to `url` where that is given. Raises UsageError without an address."""
    address, cloud_id = url or settings.elasticsearch_url, settings.elasticsearch_cloud_id
    target = address or (_cloud_address(cloud_id) if cloud_id else "")
    clouds = [_cloud_address(one) for one in settings.yours("elasticsearch_cloud_id") if one]
    key, password = (
        key_for(settings, name, target, clouds) for name in ("elasticsearch_api_key", "elasticsearch_password")
    )
    return Connection(
        url=address,
        cloud_id=cloud_id,
        api_key=key.value,
        username=settings.elasticsearch_username if password.withheld is None else None,
        password=password.value,
        withheld=key.withheld or password.withheld,
        ca_certs=settings.elasticsearch_ca_certs,
        verify_certs=settings.elasticsearch_verify_certs,
        request_timeout=settings.elasticsearch_timeout,
        retry_seconds=settings.elasticsearch_retry_seconds,
    )


def _basic(user: str | None, password: str | None) -> str | None:
    """What basic authentication sends."""
    return base64.b64encode(f"{user}:{password}".encode()).decode() if user and password else None


def _cloud_address(cloud_id: str) -> str:
    """The URL in a cloud id, `NAME:base64(HOST[:PORT]$ELASTICSEARCH$KIBANA)`."""
    try:
        host, server, *_ = base64.b64decode(cloud_id.rpartition(":")[2], validate=True).decode().split("$")
    except (ValueError, UnicodeDecodeError) as error:
        raise UsageError(
            "ELASTICSEARCH_CLOUD_ID is not a cloud id: copy it from the deployment's page in Elastic Cloud"
        ) from error
    domain, _, port = host.partition(":")
    return f"https://{server}.{domain}:{port or 443}"
