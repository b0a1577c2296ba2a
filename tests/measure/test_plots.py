"""Plots as files."""

from __future__ import annotations

import pytest

from ccheck.core.errors import UsageError
from ccheck.core.types import Stance
from ccheck.lab.measure.plots import save_reliability
from ccheck.verdict.calibration import reliability


def test_reliability_as_a_file(tmp_path):
    many = reliability([Stance("SUPPORTS", 0.9)] * 3, ["SUPPORTS", "SUPPORTS", "REFUTES"])
    drawn = {"before": many, "one": reliability([Stance("SUPPORTS", 0.5)], ["SUPPORTS"])}
    for name, start in (("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF")):
        save_reliability(drawn, tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(start)
    with pytest.raises(UsageError, match="png"):
        save_reliability(drawn, tmp_path / "a.exe")
    assert not (tmp_path / "a.exe").exists()
