"""How many tests there are in each room, so that none vanishes unnoticed.

`make count` writes `tests/count.txt`. With `--compare-count`, as in `.ci/run`, a run fails if a room ran fewer tests
than the file says (skipped ones count), or if all rooms together ran over 2 % more: then the file is behind.
"""

from collections import Counter
from pathlib import Path

import pytest

FILE = Path(__file__).with_name("count.txt")
MAKE = "run make count, and commit tests/count.txt"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-count", action="store_true", help="with --collect-only: write tests/count.txt")
    parser.addoption("--compare-count", action="store_true", help="fail if fewer tests ran than tests/count.txt says")
    parser.addoption("--count-file", type=Path, default=FILE, help="read and write this file")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # the process that xdist's report to
        config.pluginmanager.register(Counts(config))


def room(nodeid: str) -> str:
    """The folder of tests/ that a test is in."""
    return nodeid.split("/")[1]


class Counts:
    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.ran: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.ran.add(report.nodeid)
        if report.outcome == "rerun":  # whose failure pytest would not print
            reporter = self.config.pluginmanager.get_plugin("terminalreporter")
            reporter.write_line(f"\n{report.nodeid} is run once more:\n{report.longreprtext}", yellow=True)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if self.config.getoption("record_count"):
            counts = sorted(Counter(room(item.nodeid) for item in session.items).items())
            lines = "".join(f"{name} {number}\n" for name, number in counts)
            self.config.getoption("count_file").write_text(lines, encoding="utf-8")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not self.config.getoption("compare_count"):
            return
        words = self.config.getoption("count_file").read_text(encoding="utf-8").split()
        expected = dict(zip(words[::2], map(int, words[1::2]), strict=True))
        ran = Counter(map(room, self.ran))
        fewer = [f"{name} ran {ran[name]} of {number} tests" for name, number in expected.items() if ran[name] < number]
        more = ran.total() - sum(expected.values())
        reporter = self.config.pluginmanager.get_plugin("terminalreporter")
        if fewer or more > 0.02 * sum(expected.values()):
            session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED
        if fewer:
            reporter.write_line(f"\n{'; '.join(fewer)}. If they were removed on purpose, {MAKE}", red=True)
        elif more > 0:
            reporter.write_line(f"\n{more} more tests ran than tests/count.txt says: {MAKE}", yellow=True)
