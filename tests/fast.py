"""`pytest --fast` (`make check-fast`): the tests for the inner loop. They load no model and start no server or program.

A test is slow by what it asks for; one that takes more than a second for another reason is marked `slow`.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

SLOW_FIXTURES = {
    *("elasticsearch_url", "elasticsearch_basic_url", "elasticsearch_8_url", "browser"),
    *("node", "own_url", "wheel", "base_install"),
    *("minilm", "embedded", "scifact", "climate_fever"),
}
SLOW_IMPORTS = re.compile(
    r"^(?:\s*(?:from|import) |.*\bpytest\.importorskip\(\")"
    r"(?:torch|transformers|sentence_transformers|sklearn|tiny_rerankers|tiny_sparse|smollm2)\b",
    re.MULTILINE,
)
"""Modules with such a line are left out whole, and not imported: they load models."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fast", action="store_true", help="leave out the tests that load models or start servers or programs"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes more than a second; left out by --fast")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """None leaves the decision to pytest."""
    if not config.getoption("fast") or not re.fullmatch(r"test_\w+\.py", collection_path.name):
        return None
    return True if SLOW_IMPORTS.search(collection_path.read_text(encoding="utf-8")) else None


def is_slow(item: pytest.Item) -> bool:
    parameters = getattr(item, "callspec", None)
    given = parameters.params.values() if parameters else ()
    return (
        item.get_closest_marker("slow") is not None
        or "subprocess." in inspect.getsource(getattr(item, "function", is_slow))
        or not SLOW_FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))
        # A fixture of several stores asks for its server when it runs.
        or any(isinstance(value, str) and value.startswith("elasticsearch") for value in given)
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("fast"):
        slow = [item for item in items if is_slow(item)]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]
