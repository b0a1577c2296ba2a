"""Writes docs/openapi.json: the REST API of `ccheck serve web`, as the application describes it.

python3 scripts/openapi.py
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import ccheck
from ccheck.service import Service
from ccheck.web.app import create_app

FILE = Path(__file__).parents[1] / "docs" / "openapi.json"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, ccheck.open(folder) as checker, Service(checker) as service:
        FILE.write_text(json.dumps(create_app(service).openapi(), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
