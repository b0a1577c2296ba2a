"""Elasticsearch templates as JSON files, which work without Python; see README.md. Here they are only read."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any, Final

COMPONENTS: Final = ("ccheck-settings", "ccheck-fields", "ccheck-vectors", "ccheck-sparse")
"""The component templates, in the order in which they are laid over one another."""
INDEX_TEMPLATE: Final = "ccheck-template"


def read(name: str) -> dict[str, Any]:
    """A template by the name of its file, as Elasticsearch takes it."""
    data: dict[str, Any] = json.loads(files(__package__).joinpath(f"{name}.json").read_text(encoding="utf-8"))
    return data


def settings() -> dict[str, Any]:
    """The settings of an index, with its analyzer."""
    return _part("ccheck-settings", "settings") | _part("ccheck-fields", "settings")


def fields() -> dict[str, Any]:
    """The mappings of an index without embeddings."""
    return _part("ccheck-fields", "mappings")


def vectors() -> dict[str, Any]:
    """The mappings that embeddings add."""
    return _part("ccheck-vectors", "mappings")


def sparse() -> dict[str, Any]:
    """The mappings that sparse vectors add."""
    return _part("ccheck-sparse", "mappings")


def _part(name: str, part: str) -> dict[str, Any]:
    found: dict[str, Any] = read(name)["template"][part]
    return found
