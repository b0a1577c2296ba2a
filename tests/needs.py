"""What some tests need and a machine may not have: without it they are skipped, and on a CI machine they fail.

A CI machine (`CI` in the environment) that is known to lack something says so by name in `CCHECK_CI_WITHOUT`, as in
`CCHECK_CI_WITHOUT="browser scifact"`. Otherwise a run could be green that tested next to nothing.
"""

from __future__ import annotations

import os
from typing import Literal, NoReturn, get_args

import pytest

Part = Literal["elasticsearch", "browser", "scifact", "climate-fever", "smollm2", "nltk-data"]
WITHOUT = "CCHECK_CI_WITHOUT"
# As they were before any test changed them.
_CI = os.environ.get("CI", "").lower() not in ("", "0", "false")
_EXCUSED = os.environ.get(WITHOUT, "").split()
if _unknown := set(_EXCUSED) - set(get_args(Part)):
    raise pytest.UsageError(f"{WITHOUT} names {', '.join(sorted(_unknown))}; it can name {', '.join(get_args(Part))}")


def absent(part: Part, why: str) -> NoReturn:
    """Skips the test, or fails it on a CI machine that is not known to lack the part."""
    if _CI and part not in _EXCUSED:
        pytest.fail(f"{part} is missing on this CI machine, which does not name it in {WITHOUT}: {why}", pytrace=False)
    pytest.skip(why)
