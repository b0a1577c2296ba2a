"""From what `--store` says to a store."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from ..errors import UsageError
from ..settings import Settings
from ..text import is_unicode
from .store import Store

DEFAULT_INDEX = "papers"
_NAME = re.compile(r"[\w][\w.-]*")
_SCHEME = re.compile(r"[A-Za-z][\w+.-]+:")
"""A misspelt `elasticsearch:`, say; one letter is a drive of Windows."""


def open_store(settings: Settings) -> Store:
    """The store that the settings name; nothing is read or made yet.

    `https://host:9200/INDEX`, or `elasticsearch:INDEX` on the server of the settings; `local:NAME` in the data folder;
    anything else is a folder. Raises UsageError where it is none of these.
    """
    spec = settings.store.strip()
    scheme, _, rest = spec.partition(":")
    if scheme in ("http", "https"):
        url, index = _split(spec)
        return _elastic(settings, url, index)
    if scheme in ("elasticsearch", "es"):
        if settings.elasticsearch_url is None and settings.elasticsearch_cloud_id is None:
            raise UsageError(f"the store {spec} needs its server: set ELASTICSEARCH_URL or ELASTICSEARCH_CLOUD_ID")
        return _elastic(settings, settings.elasticsearch_url, rest or DEFAULT_INDEX)
    from .local import LocalStore

    if scheme == "local" and _NAME.fullmatch(rest):
        return LocalStore(settings.data_dir / rest, rest)
    path = rest if scheme == "local" else spec
    if not path or "://" in path or (path == spec and _SCHEME.match(spec)):
        raise UsageError(f"the store {spec!r} is neither a folder, local:NAME nor https://host:9200/INDEX")
    folder = Path(path).expanduser()
    if os.path.isfile(folder):  # noqa: PTH113 - Path.is_file raises where it may not look
        raise UsageError(f"the store {spec} is a file: a store is a folder; to read the file, ccheck ingest {spec}")
    if not is_unicode(str(folder.absolute())):
        raise UsageError(f"the store {str(folder)!r} has a name that is not valid UTF-8. Choose another folder")
    return LocalStore(folder, str(folder.absolute()))


def elastic_url(settings: Settings) -> tuple[str | None, bool]:
    """The Elasticsearch server that the settings name, and whether the store is on it."""
    spec = settings.store.strip()
    if spec.startswith(("http://", "https://")):
        return _split(spec)[0], True
    return settings.elasticsearch_url, spec.startswith(("elasticsearch:", "es:"))


def _split(url: str) -> tuple[str, str]:
    """A server's URL and the index that its path ends with."""
    parts = urlsplit(url)
    try:
        named = bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is none
        named = False
    if not named:
        raise UsageError(f"the store {url!r} names no host and port: https://host:9200/INDEX")
    prefix, _, index = parts.path.rstrip("/").rpartition("/")
    return urlunsplit((parts.scheme, parts.netloc, prefix, "", "")), unquote(index) or DEFAULT_INDEX


def _elastic(settings: Settings, url: str | None, index: str) -> Store:
    from .elastic import ElasticStore, connection_from, field_names_from

    return ElasticStore(connection_from(settings, url), index, field_names_from(settings))
