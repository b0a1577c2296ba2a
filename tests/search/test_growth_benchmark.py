"""The benchmark of growth runs at small size, and fails if its sides find different documents."""

import gzip
import re
import subprocess
import sys

import pytest
from paths import ROOT

from ccheck.demo import CLAIMS, CORPUS


@pytest.mark.skipif(sys.platform != "linux", reason="it reads its memory from /proc")
def test_the_benchmark_of_growth_has_a_table_with_exponents(tmp_path):
    with gzip.open(tmp_path / "corpus.jsonl.gz", "wb") as file:
        file.write(CORPUS.read_bytes())
    (tmp_path / "queries.jsonl").write_bytes(CLAIMS.read_bytes())
    words = [sys.executable, ROOT / "benchmarks" / "growth.py", tmp_path, "--claims", "3"]
    done = subprocess.run([*words, "--documents", "200", "--documents", "400"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "| of the same ten | 1/1 | 1/1 |" in done.stdout
    cell = r" [\d.,]+/[\d.,]+ \(-?[\d.]+\) \|"
    for measure in ("ingest and publish, s", "disk, MB", "first claim, s", "further claims, s"):
        assert re.search(rf"^\| {measure} \|{cell}{cell}", done.stdout, re.MULTILINE), done.stdout
