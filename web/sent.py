"""Files that people send: claims, the names that files are kept under, and what of papers was rejected."""

from __future__ import annotations

import itertools
import json
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..core.errors import CcheckError, InvalidData
from ..pipeline.batch import ClaimRecord
from ..pipeline.claims import iter_claims
from .problems import Problem, disk_told

MOST_REJECTS = 200


def claims_in(content: bytes, name: str, most: int | None) -> list[ClaimRecord]:
    """The claims of a file; its name tells its format. Raises InvalidData, and Problem for too many or a full disk."""
    with disk_told(), tempfile.TemporaryDirectory(prefix="ccheck-claims-") as folder:
        path = Path(folder) / harmless(name, "claims.txt")
        path.write_bytes(content)
        try:
            records = list(iter_claims(path))
        except CcheckError as error:  # where the file lies is nobody's business
            raise InvalidData(str(error).replace(str(path), path.name)) from error
    if not records:
        raise InvalidData(f"{path.name} has no claims")
    if most is not None and len(records) > most:
        raise Problem(413, f"{len(records):,} claims: at most {most:,} may be sent at once")
    return records


def harmless(name: str, otherwise: str) -> str:
    """The last part of a file's name, with nothing in it that could be a path."""
    kept = "".join(c if c.isalnum() or c in "._- " else "_" for c in Path(name).name).lstrip(". ")
    return kept.encode()[-200:].decode(errors="ignore").lstrip(". ") or otherwise  # systems take 255 bytes


def rejects_in(file: Path) -> list[Mapping[str, Any]]:
    """The first rejects, with their files by name: where they lay is nobody's business."""
    with suppress(FileNotFoundError), file.open(encoding="utf-8") as lines:
        found = [json.loads(line) for line in itertools.islice(lines, MOST_REJECTS)]
        return [{**one, "file": Path(one["file"]).name} for one in found]
    return []
