"""Processes that are killed while they check claims lose nothing that they said was kept; the benchmark does more."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ccheck import Checker
from ccheck.core.adjust import Changes, resolved
from ccheck.core.settings import resolve
from ccheck.service import Check, Service
from ccheck.service.record import Wanted

CHECKS = int(os.environ.get("CCHECK_TEST_RESTARTED_CHECKS", "200"))
"""More with more patience: 1,000 take some minutes."""
SCRIPT = Path(__file__).parents[2] / "benchmarks" / "record_kills.py"


@pytest.mark.parametrize("where", ["local", "elasticsearch"])
def test_killed_processes_lose_no_check_that_was_kept(request: pytest.FixtureRequest, where: str) -> None:
    checks = 200 if where == "local" else 50
    arguments = ["--checks", str(checks), "--threads", "8", "--processes", "2", "--seed", "3"]
    if where == "elasticsearch":
        index = request.getfixturevalue("elasticsearch_index")
        arguments += ["--store", f"{request.getfixturevalue('elasticsearch_url')}/{index}"]
    done = subprocess.run(
        [sys.executable, SCRIPT, *arguments], capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = re.search(r"([\d,]+) answers of ([\d,]+) checks .* (\d+) killed: 0 lost, 0 changed, 0 twice", done.stdout)
    assert said is not None and int(said[3]) >= 2, done.stdout
    assert int(said[2].replace(",", "")) >= checks


def test_checks_are_kept_once_while_the_server_restarts(tmp_path: Path) -> None:
    """32 check at a time; the node is killed, stopped in order, and started again."""
    from elasticsearch_nodes import start_node

    papers = [{"_id": f"p{number}", "text": f"Paper {number} finds that tea {number} is warm."} for number in range(50)]
    with contextlib.ExitStack() as stack:
        node = stack.enter_context(start_node("basic", tmp_path))
        settings = resolve({"store": f"{node.url}/kept", "recipe": "bm25"}).settings
        recipe = resolved(settings, Changes(rerank="none", verdict="none"))
        checker = stack.enter_context(Checker(settings, recipe=recipe))
        checker.ingest(papers, dense=False)
        service = stack.enter_context(Service(checker))
        done: dict[str, Check] = {}
        with ThreadPoolExecutor(32) as pool:
            asked = [pool.submit(service.check, f"Tea {number} is warm.", k=3) for number in range(CHECKS)]
            for number, end in enumerate((node.kill, node.stop, node.kill), 1):
                while sum(one.done() for one in asked) < number * CHECKS / 4:
                    time.sleep(0.01)
                end()
                node.start()
            for one in asked:
                made = one.result()
                assert made.status == "done" and made.kept, made.error
                done[made.id] = made
        listed = [check.id for check in service.checks(Wanted(limit=2 * CHECKS))]
        assert len(done) == CHECKS and sorted(listed) == sorted(done)
        assert {id_: (one.claim, one.result) for id_, one in service.found(list(done)).items()} == {
            id_: (one.claim, one.result) for id_, one in done.items()
        }
