"""Shorter waits between two tries, so that a test of a busy server spends its time on the tries."""

from typing import Any

import pytest

TENTH = 0.1


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses between tries are a tenth as long, those that a server asked for too."""
    from ccheck.core import http
    from ccheck.search.elastic import client

    def shorter(*arguments: Any, **more: Any) -> float:
        return TENTH * pause(*arguments, **more)

    pause = http.pause
    for module in (http, client):
        monkeypatch.setattr(module, "pause", shorter)
