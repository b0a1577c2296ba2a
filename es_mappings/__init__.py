"""Elasticsearch templates as JSON files, which work without Python; see README.md. Here they are only read."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any


def read(name: str) -> dict[str, Any]:
    """A template by the name of its file, as Elasticsearch takes it."""
    data: dict[str, Any] = json.loads(files(__package__).joinpath(f"{name}.json").read_text(encoding="utf-8"))
    return data


def mappings(component: str) -> dict[str, Any]:
    """The mappings of a component template: those of every index (`fields`), or what `vectors` or `sparse` ones add."""
    found: dict[str, Any] = read(f"ccheck-{component}")["template"]["mappings"]
    return found


def settings() -> dict[str, Any]:
    """The settings of an index, with its analyzer."""
    parts = (read(name)["template"]["settings"] for name in ("ccheck-settings", "ccheck-fields"))
    return {name: value for part in parts for name, value in part.items()}


def role(name: str, store: str) -> dict[str, Any]:
    """A role for a store, in place of `papers`, which the file names."""
    found: dict[str, Any] = json.loads(json.dumps(read(f"roles/{name}")).replace("papers", store))
    return found
