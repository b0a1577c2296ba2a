"""What a store records of how it was made."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ccheck.core.layout import (
    AdditionalTexts,
    Analysis,
    Chunking,
    DenseField,
    Embedding,
    Layout,
    SparseField,
    UnitField,
)

MODEL = Embedding("m", 8, "f" * 64, 256)
FULL = Layout(
    {"passages": DenseField(MODEL, Chunking(254, 200, 32))},
    SparseField("s", 30_522, "a" * 64, 512),
    (Analysis(), Analysis(stemming=True, keep="#")),
    AdditionalTexts("llm", True, 2, "p"),
    {"sentences": UnitField("sentence"), "windows": UnitField("window", 200, 50, MODEL)},
)


@pytest.mark.parametrize("layout", [FULL, Layout()])
def test_a_layout_is_read_as_it_was_written(layout: Layout) -> None:
    assert Layout.from_dict(json.loads(json.dumps(layout.to_dict()))) == layout


@pytest.mark.parametrize(
    "path",
    ["", "dense.passages", "dense.passages.chunking", "dense.passages.embedding", "sparse", "additional",
     "units.windows", "analyses.0"],
)  # fmt: skip
def test_what_a_later_version_would_add_is_refused(path: str) -> None:
    """It may change how documents are made, so that theirs and ours would be mixed."""
    data: Any = json.loads(json.dumps(FULL.to_dict()))
    place = data
    for part in filter(None, path.split(".")):
        place = place[int(part) if part.isdecimal() else part]
    place["more"] = 1
    with pytest.raises(ValueError, match="more"):
        Layout.from_dict(data)
