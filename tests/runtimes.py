"""Runtimes for tests."""

from __future__ import annotations

from typing import Any

from ccheck.core.runtime import Runtime
from ccheck.core.settings import Settings


def on_cpu(**settings: Any) -> Runtime:
    """Models run on the processor."""
    return Runtime(Settings.model_validate({"device": "cpu"} | settings))
