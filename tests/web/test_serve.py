"""`ccheck serve web` as a program: who is let in, and how it stops."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import httpx
import pytest
from cli_runs import ccheck, command, jsonl
from rerank_servers import wait_until
from web_servers import CLAIM, PAPERS


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_other_machines_are_let_in_only_with_keys(host, monkeypatch):
    said = ccheck("serve", "web", "--host", host, "--port", 0)
    assert said.code == 2 and "CCHECK_API_KEYS=" in said.err
    monkeypatch.setenv("CCHECK_API_KEYS", "desk:read:short")
    said = ccheck("serve", "web", "--host", host, "--port", 0)
    assert said.code == 2 and "at least 16" in said.err and "short" not in said.err


def test_it_serves_and_stops(tmp_path: Path):
    ccheck("ingest", jsonl(tmp_path / "papers.jsonl", *PAPERS), "--store", tmp_path / "store", "--no-dense")
    log = tmp_path / "log"
    asked = command("serve", "web", "--store", tmp_path / "store", "--recipe", "bm25", "--port", 0)
    with log.open("wb") as stream:
        process = subprocess.Popen(
            asked, stdin=subprocess.DEVNULL, stderr=stream, env=os.environ | {"OMP_NUM_THREADS": "1"}
        )
    try:
        found: list[str] = []
        wait_until(lambda: found.extend(re.findall(r"http://\S+\d", log.read_text())) or bool(found))
        with httpx.Client(base_url=found[0], timeout=60) as client:
            assert client.post("/v1/checks", json={"claim": CLAIM, "wait": 60}).json()["status"] == "done"
            process.send_signal(signal.SIGTERM)  # with an open connection
            assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    assert "Traceback" not in log.read_text()
