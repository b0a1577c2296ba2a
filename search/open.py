"""Open the store that `--store` names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit, urlunsplit

from ..core.errors import CcheckError, UsageError
from ..core.profiles import profile_of
from ..core.settings import Settings
from ..core.text import is_unicode
from .store import Store

if TYPE_CHECKING:
    from .elastic import ElasticStore
    from .local import LocalStore

DEFAULT_INDEX = "papers"
_NAME = re.compile(r"[\w][\w.-]*")
_SCHEME = re.compile(r"[A-Za-z][\w+.-]+:")
"""For example a misspelt `elasticsearch:`. A single letter is a Windows drive."""


def open_store(settings: Settings) -> Store:
    """The store that the settings name. Nothing is read or created yet.

    `https://host:9200/INDEX`, `elasticsearch:INDEX` (on the server that the settings name), `local:NAME` (in the data
    folder), or a folder. Raises UsageError for anything else.
    """
    spec = settings.store.strip()
    scheme, _, rest = spec.partition(":")
    if scheme in ("http", "https"):
        url, index = _split(spec)
        return _elastic(settings, url, index)
    if scheme in ("elasticsearch", "es"):
        if settings.elasticsearch_url is None:
            raise UsageError(f"the store {spec} needs a server. Set ELASTICSEARCH_URL")
        return _elastic(settings, settings.elasticsearch_url, rest or DEFAULT_INDEX)
    from .local import LocalStore

    if scheme == "local" and _NAME.fullmatch(rest):
        return LocalStore(settings.data_dir / rest, rest)
    path = rest if scheme == "local" else spec
    if not path or "://" in path or (path == spec and _SCHEME.match(spec)):
        raise UsageError(
            f"the store {spec!r} is not a folder, local:NAME, elasticsearch:INDEX or https://host:9200/INDEX"
        )
    folder = Path(path).expanduser()
    if os.path.isfile(folder):  # noqa: PTH113 - Path.is_file raises where it may not look
        raise UsageError(f"the store {spec} is a file, not a folder. To ingest the file, run ccheck ingest {spec}")
    if not is_unicode(str(folder.absolute())):
        raise UsageError(f"the store {str(folder)!r} has a name that is not valid UTF-8. Choose another folder")
    return LocalStore(folder, str(folder.absolute()))


def open_local_store(settings: Settings, why: str) -> LocalStore:
    """As `open_store`, for what only local stores can do. Raises UsageError with `why` for a store on a server."""
    from .local import LocalStore

    store = open_store(settings)
    if not isinstance(store, LocalStore):
        store.close()
        raise UsageError(f"{store.name} is not a local store. {why}")
    return store


def open_elastic_store(settings: Settings, why: str) -> ElasticStore:
    """As `open_store`, for what only servers can do. Raises UsageError with `why` for a local store."""
    from .elastic import ElasticStore

    store = open_store(settings)
    if not isinstance(store, ElasticStore):
        store.close()
        raise UsageError(f"{store.name} is a local store. {why}")
    return store


def elastic_url(settings: Settings) -> tuple[str | None, bool]:
    """The Elasticsearch server that the settings name, and whether the store is on it."""
    spec = settings.store.strip()
    if spec.startswith(("http://", "https://")):
        return _split(spec)[0], True
    return settings.elasticsearch_url, spec.startswith(("elasticsearch:", "es:"))


def elastic_index(settings: Settings) -> str:
    """The index that the settings name, where their store is on a server."""
    spec = settings.store.strip()
    return _split(spec)[1] if spec.startswith(("http://", "https://")) else spec.partition(":")[2] or DEFAULT_INDEX


def _split(url: str) -> tuple[str, str]:
    """A server's URL, and the index at the end of its path."""
    parts = urlsplit(url)
    try:
        named = bool(parts.hostname) and parts.port != 0
    except ValueError:  # an invalid port
        named = False
    if not named:
        raise UsageError(f"the store {url!r} lacks a host or has an invalid port. Write https://host:9200/INDEX")
    prefix, _, index = parts.path.rstrip("/").rpartition("/")
    return urlunsplit((parts.scheme, parts.netloc, prefix, "", "")), unquote(index) or DEFAULT_INDEX


def _elastic(settings: Settings, url: str | None, index: str) -> Store:
    from .elastic import JoinedStore, connection_from

    connection = connection_from(settings, url)
    return JoinedStore(connection, index, profile_of(settings.stores, f"{connection.name}/{index}", index))


@dataclass(frozen=True, slots=True)
class ListedStore:
    """A local store with the number of its documents, or the problem that keeps it from being opened."""

    name: str
    folder: Path
    documents: int | None
    problem: str = ""


def local_stores(data_dir: Path) -> Iterator[ListedStore]:
    """The stores of a data folder, by name: what `ccheck index list` prints. Raises nothing on purpose."""
    from .local import DATABASE, LocalStore

    for name in sorted(file.parent.name for file in data_dir.glob(f"*/{DATABASE}")):
        folder = data_dir / name
        try:
            with LocalStore(folder, name) as store:
                yield ListedStore(f"local:{name}", folder, store.count())
        except CcheckError as error:
            yield ListedStore(f"local:{name}", folder, None, str(error))
