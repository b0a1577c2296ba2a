"""Open the store that `--store` names."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import unquote, urlunsplit

from ..core.errors import CcheckError, UsageError
from ..core.profiles import profile_of
from ..core.redaction import http_parts
from ..core.settings import Settings
from ..core.text import is_unicode
from .store import Store

if TYPE_CHECKING:
    from .elastic import ElasticStore
    from .local import LocalStore

S = TypeVar("S")
DEFAULT_INDEX = "papers"
_NAME = re.compile(r"[\w][\w.-]*")
_SCHEME = re.compile(r"[A-Za-z][\w+.-]+:")
"""For example a misspelt `elasticsearch:`. A single letter is a Windows drive."""


def open_store(settings: Settings) -> Store:
    """The store that the settings name. Nothing is read or created yet.

    `https://host:9200/INDEX`, `elasticsearch:INDEX` (on the server that the settings name), `local:NAME` (in the data
    folder), or a folder. Raises UsageError for anything else.
    """
    if (named := on_server(settings)) is not None:
        from .elastic import JoinedStore, connection_from

        url, index = named
        if url is None:
            raise UsageError(f"the store {settings.store.strip()} needs a server. Set ELASTICSEARCH_URL")
        connection = connection_from(settings, url)
        return JoinedStore(connection, index, profile_of(settings.stores, f"{connection.url}/{index}", index))
    from .local import LocalStore

    spec = settings.store.strip()
    scheme, _, rest = spec.partition(":")
    if scheme == "local" and _NAME.fullmatch(rest):
        return LocalStore(settings.data_dir / rest, rest)
    path = rest if scheme == "local" else spec
    if scheme == "local" and rest and Path(rest).name == rest:
        may = "A name has letters, digits, _, . and -, and begins with a letter, a digit or _"
        raise UsageError(f"{rest!r} can't be the name of a store. {may}. For a folder, use --store {f'./{rest}'!r}")
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

    return _only(LocalStore, settings, f"not a local store. {why}")


def open_elastic_store(settings: Settings, why: str) -> ElasticStore:
    """As `open_store`, for what only servers can do. Raises UsageError with `why` for a local store."""
    from .elastic import ElasticStore

    return _only(ElasticStore, settings, f"a local store. {why}")


def _only(kind: type[S], settings: Settings, otherwise: str) -> S:
    store = open_store(settings)
    if not isinstance(store, kind):
        store.close()
        raise UsageError(f"{store.name} is {otherwise}")
    return store


def on_server(settings: Settings) -> tuple[str | None, str] | None:
    """The URL of the store's server, if the settings have one, and its index; None for a local store."""
    spec = settings.store.strip()
    scheme, _, rest = spec.partition(":")
    if scheme in ("elasticsearch", "es"):
        return settings.elasticsearch_url, rest or DEFAULT_INDEX
    if scheme not in ("http", "https"):
        return None
    if (parts := http_parts(spec)) is None:
        raise UsageError(f"the store {spec!r} lacks a host or has an invalid port. Write https://host:9200/INDEX")
    prefix, _, index = parts.path.rstrip("/").rpartition("/")
    return urlunsplit((parts.scheme, parts.netloc, prefix, "", "")), unquote(index) or DEFAULT_INDEX


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
