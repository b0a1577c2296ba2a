"""The settings files of folders that the user trusts: each file's path, and the digest of what it says.

As with direnv: the file that was read and accepted is trusted, and one that changed is not. What a file refers to and
what decides as much as itself (the recipe that it names, with those which that one extends, and a folder of prompts)
counts as a part of it.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import platformdirs

from .errors import CcheckError, InvalidData, NotFound

VARIABLE = "CCHECK_TRUST_FOLDER"
"""Set to 1 it allows any folder's settings file, as --trust-folder does."""


def trust_file() -> Path:
    """Where the trusted files are listed."""
    return platformdirs.user_config_path("ccheck") / "trusted.json"


def digest(content: bytes, values: Mapping[str, Any]) -> str:
    """A digest of a settings file's content and of what its `values` refer to."""
    made = hashlib.sha256(content)
    for other in _named(values):
        there = b""
        with suppress(OSError):
            there = other.read_bytes()
        made.update(f"\0{other}\0{len(there)}\0".encode("utf-8", "surrogatepass") + there)
    return made.hexdigest()


def is_trusted(file: Path, digest: str) -> bool:
    """Whether the user allowed this file as it is now. Raises InvalidData if the list can't be read."""
    return _listed().get(str(file.resolve())) == digest


def trust(file: Path, digest: str | None) -> bool:
    """Allow the file as it is now; None takes back what was allowed. False if nothing was."""
    known = _listed()
    before = known.pop(str(file.resolve()), None)
    if digest is not None:
        known[str(file.resolve())] = digest
    if digest != before:
        _write(known)
    return before is not None


def _named(values: Mapping[str, Any]) -> Iterator[Path]:
    from .recipe import recipe_files

    recipe, prompts = values.get("recipe"), values.get("prompts_dir")
    if isinstance(recipe, str):
        with suppress(CcheckError):
            yield from recipe_files(recipe)
    if isinstance(prompts, str):
        found = [file for file in Path(prompts).expanduser().glob("*.txt") if file.is_file()]
        yield from sorted(found)


def _listed() -> dict[str, str]:
    file = trust_file()
    try:
        known = json.loads(file.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InvalidData(f"the list of trusted settings files {file} can't be read ({error}): remove it") from error
    if not isinstance(known, dict):
        raise InvalidData(f"the list of trusted settings files {file} has another format. Remove it")
    return known


def _write(known: Mapping[str, str]) -> None:
    """Whole or not at all, for this user only."""
    file = trust_file()
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=file.parent, delete=False) as made:
            json.dump(known, made, indent=1, sort_keys=True)
        Path(made.name).replace(file)  # tempfile's files have the mode 600
    except OSError as error:
        raise NotFound(f"the list of trusted settings files {file} can't be written: {error.strerror}") from error
