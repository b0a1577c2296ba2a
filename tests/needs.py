"""The parts that some tests need and a machine may not have: without them the tests are skipped, and on CI they fail.

A CI machine (`CI` in the environment, which `.ci/run` sets) names the parts that it is known to lack in
`CCHECK_CI_WITHOUT`, as in `CCHECK_CI_WITHOUT="browser scifact"`. On CI, a skip that does not go through this module
fails too, such as `pytest.importorskip` for a package that the development installation should have. Only marks
(`skipif`) stay: they are for another system, or for tests that run on demand.
"""

import os
from collections.abc import Iterator
from typing import Literal, NoReturn, get_args

import pytest

Part = Literal["elasticsearch", "browser", "scifact", "climate-fever", "smollm2", "nltk-data", "openssl"]
WITHOUT = "CCHECK_CI_WITHOUT"
# As they were before any test changed them.
_CI = os.environ.get("CI", "").lower() not in ("", "0", "false")
_EXCUSED = os.environ.get(WITHOUT, "").split()
if _unknown := set(_EXCUSED) - set(get_args(Part)):
    raise pytest.UsageError(f"{WITHOUT} names {', '.join(sorted(_unknown))}; it can name {', '.join(get_args(Part))}")


class Known(pytest.skip.Exception):
    """A skip that is right on a CI machine too."""


def absent(part: Part, why: str) -> NoReturn:
    """Skips the test, or fails it on a CI machine that is not known to lack the part."""
    if _CI and part not in _EXCUSED:
        pytest.fail(f"{part} is missing on this CI machine, which does not name it in {WITHOUT}: {why}", pytrace=False)
    raise Known(why)


def does_not_apply(why: str) -> NoReturn:
    """Skips the test: with the versions or the server that are here, there is nothing for it to test."""
    raise Known(why)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    fail_unless_known(report, call)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    report = yield
    fail_unless_known(report, report.call)
    return report


def fail_unless_known(report: pytest.TestReport | pytest.CollectReport, call: pytest.CallInfo) -> None:
    error = call.excinfo.value if call.excinfo else None
    by_code = isinstance(error, pytest.skip.Exception) and not error._use_item_location
    if _CI and by_code and not isinstance(error, Known):
        report.outcome = "failed"
        report.longrepr = f"skipped on a CI machine, and not through tests/needs.py: {error}"
