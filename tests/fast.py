"""`pytest --fast` (`make check-fast`): the tests for the inner loop. They load no model and start no server or program.

A test is slow by what it asks for, if it is marked `slow`, or if `slow_tests.txt` lists it. With `--record-slow` the
tests that run are measured, and those that take more than `SLOW_SECONDS` of CPU time are listed there.
"""

import functools
import inspect
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parent
SLOW_SECONDS = 0.25
RECORDED = TESTS / "slow_tests.txt"
SLOW_FIXTURES = {
    *("elasticsearch_url", "elasticsearch_basic_url", "elasticsearch_8_url", "browser"),
    *("wheel", "base_install"),
    *("minilm", "embedded", "hybrid", "scifact", "climate_fever"),
}
SLOW_IMPORTS = re.compile(
    r"^(?:\s*(?:from|import) |.*\bpytest\.importorskip\(\")"
    r"(?:torch|transformers|sentence_transformers|sklearn|tiny_rerankers|tiny_sparse|smollm2)\b",
    re.MULTILINE,
)
"""Modules with such a line are left out whole, and not imported: they load models."""
STARTERS = {"subprocess", "program", "loaded", "killed_at"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fast", action="store_true", help="leave out the tests that load models or start servers or programs"
    )
    parser.addoption(
        "--record-slow", action="store_true", help=f"write the tests above {SLOW_SECONDS} s of CPU to {RECORDED.name}"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes more than a second; --fast leaves it out")
    if config.getoption("record_slow"):
        config.pluginmanager.register(Recorder())


def name_of(item: pytest.Item) -> str:
    """Without its parameters: a test is left out with all of its cases."""
    return item.nodeid.partition("[")[0]


@functools.cache
def recorded() -> frozenset[str]:
    return frozenset(RECORDED.read_text(encoding="utf-8").split())


class Recorder:
    """Keeps the longest CPU time of each test's cases, its programs' included. For one process, not for xdist's."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        before = sum(os.times()[:4])
        result = yield
        self.seconds[name_of(item)] = max(self.seconds.get(name_of(item), 0), sum(os.times()[:4]) - before)
        return result

    def pytest_sessionfinish(self) -> None:
        slow = {name for name, seconds in self.seconds.items() if seconds > SLOW_SECONDS}
        names = sorted(slow | recorded() - self.seconds.keys())
        RECORDED.write_text("".join(f"{name}\n" for name in names), encoding="utf-8")


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
        or not SLOW_FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))
        # A fixture of several stores asks for its server when it runs.
        or any(isinstance(value, str) and value.startswith("elasticsearch") for value in given)
        or any(starts_a_program(function) for function in functions_of(item))
    )


def functions_of(item: pytest.Item) -> Iterator[Callable[..., Any]]:
    """The test, and its fixtures."""
    if isinstance(item, pytest.Function):
        yield item.function
        for definitions in item._fixtureinfo.name2fixturedefs.values():
            yield definitions[-1].func


def starts_a_program(function: Callable[..., Any]) -> bool:
    """Whether a function names what starts programs. What calls such a function is measured and recorded."""
    return not STARTERS.isdisjoint(inspect.unwrap(function).__code__.co_names)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("fast"):
        left_out = frozenset() if config.getoption("record_slow") else recorded()
        slow = {item for item in items if name_of(item) in left_out or is_slow(item)}
        config.hook.pytest_deselected(items=list(slow))
        items[:] = [item for item in items if item not in slow]
