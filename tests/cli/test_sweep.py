"""`ccheck sweep`, as a user runs it."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_runs import ccheck

from ccheck.lab.measure.memory import DiskMemory
from ccheck.search.local.store import LocalStore


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """Two BM25 retrievers that are joined."""
    file = tmp_path / "two.toml"
    file.write_text(
        'name = "two"\n[retrievers.whole]\nkind = "bm25"\n[retrievers.title]\nkind = "bm25"\nfields = {title = 1.0}\n',
        encoding="utf-8",
    )
    return file


def test_what_does_not_change_is_not_run_again(papers, files, two, monkeypatch):
    asked: list[tuple[str, int, int]] = []
    rank = LocalStore.rank

    def counted(self, search):
        asked.extend((name, stage.depth, len(search.queries)) for name, stage in search.retrievers.items())
        return rank(self, search)

    monkeypatch.setattr(LocalStore, "rank", counted)
    arguments = ("sweep", two, *files.options, "--store", papers, "--json", "--metric", "R@5")
    grid = (
        "--grid",
        "fusion.k=10,60",
        "--grid",
        "retrievers.title.depth=3,50",
        "--grid",
        "retrievers.whole=true,false",
    )
    ran = ccheck(*arguments, *grid)
    assert ran.code == 0, ran.err
    # Eight points, three different rankings.
    assert sorted(asked) == [("title", 3, 12), ("title", 50, 12), ("whole", 100, 12)]
    *points, chosen = ran.objects
    assert [list(point["settings"].values()) for point in points] == [
        [k, depth, whole] for k in (10, 60) for depth in (3, 50) for whole in (True, False)
    ]
    values = [point["metrics"]["R@5"] for point in points]
    assert chosen["value"] == max(values) and chosen["best"] == points[values.index(max(values))]["settings"]
    assert chosen["held_out"]["claims"] == 12 and len(chosen["held_out"]["chosen"]) == 2
    assert chosen["points"] == 8
    # Each point is what its own evaluation gives.
    again = ccheck(*arguments, *grid)
    assert [point["metrics"] for point in again.objects[:-1]] == [point["metrics"] for point in points]
    assert len(asked) == 3  # nothing is computed twice


def test_combinations_without_a_retriever_are_counted(papers, files):
    grid = ("--grid", "retrievers.bm25=true,false", "--json")
    ran = ccheck("sweep", "bm25", *files.options, "--store", papers, *grid)
    assert ran.code == 0 and "1 combination left out, because no retriever is left" in ran.err
    assert ran.objects[-1]["points"] == 1


def test_the_best_is_told(papers, files, two, tmp_path):
    ran = ccheck("sweep", two, *files.options, "--store", papers, "--grid", "retrievers.title.weight=0.001,5")
    assert ran.code == 0, ran.err
    assert "best: retrievers.title.weight=0.001" in ran.out and "held out (2 folds): nDCG@10" in ran.out
    assert "it was chosen on these claims" in ran.err
    best = tmp_path / "best.toml"
    best.write_text(f'extends = "{two}"\nretrievers.title.weight = 0.001\n', encoding="utf-8")
    measured = ccheck("evaluate", best, *files.options, "--store", papers, "--json").objects[0]["metrics"]["nDCG@10"]
    (row,) = [line for line in ran.out.splitlines() if line.startswith(" best ")]
    assert f"{measured:.4f}" in row


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--grid", "fusion.kk=1,2"], 2, "did you mean 'k'"),
        (["--grid", "fusion.k"], 2, "is not KEY=VALUE"),
        (["--grid", "fusion.k=1", "--metric", "x@1"], 2, "x@1"),
        ([], 2, "--grid"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_is_wrong_is_said_before_anything_runs(papers, files, two, monkeypatch, arguments, code, said):
    monkeypatch.setattr(DiskMemory, "get", lambda *_: pytest.fail("it ran"))
    ran = ccheck("sweep", two, *files.options, "--store", papers, *arguments)
    assert ran.code == code and said in ran.err and ran.out == ""
