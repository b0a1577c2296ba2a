"""The short name of a page's source, by which answers cite it."""

from __future__ import annotations

from urllib.parse import urlsplit

from ...core.text import shortened
from ...core.types import Document

SOURCE_CHARS = 80
_ARCHIVES = ("web.archive.org", "archive.org", "perma.cc", "archive.ph", "archive.is")


def page_url(document: Document) -> str | None:
    """The address of a page: its `url`, else its id if that is one."""
    for value in (document.metadata.get("url"), document.metadata.get("source_url"), document.id):
        if isinstance(value, str) and value.startswith(("http://", "https://")):
            return value
    return None


def source_name(document: Document) -> str:
    """The name of the site where the page has one (`source`, `sitename`), else its host, else its title or id.

    An address in a web archive counts as the page that was archived.
    """
    for field in ("source", "sitename"):
        value = document.metadata.get(field)
        if isinstance(value, str) and value:
            return shortened(value, SOURCE_CHARS)
    url = page_url(document)
    if url is not None:
        return shortened(_host(url), SOURCE_CHARS)
    return shortened(document.title or document.id, SOURCE_CHARS)


def _host(url: str) -> str:
    try:
        host = urlsplit(url).hostname or url
    except ValueError:
        return url
    inner = max(url.find("http://", 8), url.find("https://", 8))
    if host in _ARCHIVES and inner > 0:
        return _host(url[inner:])
    return host.removeprefix("www.")
