"""An ingest that several processes share (`--part`): together they store what one would."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from memory_store import MemoryStore

from ccheck.core.errors import UsageError
from ccheck.ingest import IngestOptions, Part, Report, dry_run, ingest

PARTS = [Part(number, 3) for number in (1, 2, 3)]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Papers, some of which repeat an id, a DOI, both, or a text without an id; and some lines that are none."""
    papers: list[object] = [{"_id": f"p{n}", "title": f"T{n}", "text": f"About {n}."} for n in range(60)]
    papers += [{"_id": f"p{n}", "title": f"T{n}", "text": f"Another {n}."} for n in range(10)]
    papers += [{"_id": f"d{n}", "text": f"Again {n}.", "doi": f"10.1234/{n % 5}"} for n in range(20)]
    papers += [{"text": f"Without {n % 4}."} for n in range(8)] + [{"_id": "no text"}] * 7
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(f"{json.dumps(one)}\n" for one in papers) + "not json\n" * 7, encoding="utf-8")
    return path


def lines_in(rejects: Path | None) -> list[int]:
    assert rejects is not None
    return sorted(json.loads(line)["line"] for line in rejects.read_text(encoding="utf-8").splitlines())


def totals(*reports: Report) -> Counter[str]:
    names = ("read", "added", "updated", "unchanged", "repeated", "rejected", "without_id")
    return Counter({name: sum(getattr(one, name) for one in reports) for name in names})


@pytest.mark.parametrize("dedupe", [False, True])
@pytest.mark.parametrize("order", [PARTS, PARTS[::-1]])
def test_parts_store_what_one_ingest_stores(corpus: Path, dedupe: bool, order: list[Part]) -> None:
    whole, shared, options = MemoryStore(), MemoryStore(), IngestOptions(dedupe_doi=dedupe)
    once = ingest([str(corpus)], whole, None, options)
    reports = [ingest([str(corpus)], shared, None, replace(options, part=part)) for part in order]
    assert shared.entries == whole.entries and len(whole.entries) == (69 if dedupe else 84)
    assert totals(*reports) == totals(once) and all(one.added > 5 for one in reports)


def test_each_part_lists_its_own_rejects(corpus: Path) -> None:
    reports = [ingest([str(corpus)], MemoryStore(), None, IngestOptions(part=part)) for part in PARTS]
    assert [one.rejects and one.rejects.name for one in reports] == [
        f"corpus.{part.number}-of-3.rejects.jsonl" for part in PARTS
    ]
    reports.append(ingest([str(corpus)], MemoryStore()))
    *shares, all_lines = [lines_in(one.rejects) for one in reports]
    assert sorted(itertools.chain(*shares)) == all_lines and len(all_lines) > 14


def test_a_part_goes_on_where_it_was_and_is_not_taken_for_the_whole(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(f'{{"_id": "p{n}", "text": "About {n}."}}\n' for n in range(30)), encoding="utf-8")
    store, mine = MemoryStore(), IngestOptions(part=PARTS[0])
    first = ingest([str(corpus)], store, None, mine)
    assert ingest([str(corpus)], store, None, mine).files_unchanged == 1
    assert ingest([str(corpus)], store, None, replace(mine, force=True)).unchanged == first.added
    rest = ingest([str(corpus)], store)
    assert (rest.unchanged, rest.added) == (first.added, 30 - first.added)


def test_a_preview_shows_documents_of_the_part(corpus: Path) -> None:
    for part in PARTS:
        shown = dry_run([str(corpus)], IngestOptions(part=part), n=5).documents
        assert len(shown) == 5 and all(part.has(one.id) for one in shown)


def test_which_part_a_document_is_in_stays_the_same() -> None:
    """Machines with other versions of ccheck or Python must agree."""
    found = [next(part.number for part in PARTS if part.has(id_)) for id_ in ("a", "b", "1", "ä", "\ud800")]
    assert found == [3, 3, 3, 2, 3]


@pytest.mark.parametrize("name", ["", "3", "0/3", "4/3", "1/0", "-1/3", "1/3/5", "a/b", "1 / 3"])
def test_what_is_no_part(name: str) -> None:
    with pytest.raises(UsageError, match="part"):
        Part.named(name)
    assert Part.named(" 2/3\n") == PARTS[1]
