"""What commands print is what functions give to scripts. Such tests of evaluations, sweeps, mining, calibration and
batches stand beside their other ones."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from cli_runs import BM25, ccheck

import ccheck as package
from ccheck.core.settings import resolve
from ccheck.demo import CORPUS
from ccheck.pipeline.doctor import findings
from ccheck.search.local.listing import local_stores


def test_doctor(papers: Path) -> None:
    found = [asdict(one) for one in findings(resolve({"store": str(papers)}, show_pending=True))]
    assert ccheck("doctor", "--store", papers, "--json").objects == found
    assert {"python", "recipe", "store"} <= {one["part"] for one in found}


def test_the_stores_of_a_data_folder() -> None:
    assert ccheck("ingest", CORPUS, *BM25, "--no-dense", "--store", "local:listed").code == 0
    found = [
        {"store": one.name, "documents": one.documents, "folder": str(one.folder)}
        for one in local_stores(resolve().settings.data_dir)
    ]
    assert ccheck("index", "list", "--json").objects == found
    assert {"local:listed"} <= {one["store"] for one in found}


def test_an_ingest_and_a_query(tmp_path: Path) -> None:
    """The same files into two stores, one by a command and one by a script; the same answers from both."""
    by_command, by_script = str(tmp_path / "command"), str(tmp_path / "script")
    assert ccheck("ingest", CORPUS, *BM25, "--no-dense", "--store", by_command).code == 0
    with package.open(by_script, recipe="bm25") as checker:
        summary = checker.ingest(CORPUS, dense=False)
        result = checker.check("sea level has risen 20 cm since 1900", k=5)
    (printed,) = ccheck(
        "query", "sea level has risen 20 cm since 1900", *BM25, "-k", 5, "--store", by_command, "--json"
    ).objects
    assert summary.added == 71
    given = json.loads(json.dumps([one.to_dict() for one in result.evidence]))
    assert given and printed["evidence"] == given
