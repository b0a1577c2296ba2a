"""What all tests share."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

import pytest

# Started in the background of a shell, this process ignores an interrupt, and so would the programs that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No model is downloaded by a test, nor found among those that its user has. The hub's client reads these when it loads.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HOME"] = tempfile.mkdtemp(prefix="ccheck-hub-")

pytest_plugins = [
    *("elasticsearch_nodes", "elastic_stub", "cli_runs", "rerank_servers", "scripted_llm", "stores"),
    "verdict_questions",
]

SHARED = Path(os.environ.get("CCHECK_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data"))


@pytest.fixture(autouse=True)
def nothing_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test reads or writes the settings, stores or caches of the person who runs it."""
    from ccheck.settings import Settings, variables

    for name in Settings.model_fields:
        for variable in variables(name):
            # The tests' own server is found before this, by session fixtures.
            monkeypatch.delenv(variable, raising=False)
    home = tmp_path / "home"
    monkeypatch.setenv("CCHECK_DATA_DIR", str(home / "data"))
    monkeypatch.setenv("CCHECK_CACHE_DIR", str(home / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def scifact() -> Path:
    """The folder of SciFact's abstracts and claims."""
    folder = SHARED / "scifact"
    if not folder.is_dir():
        pytest.skip(f"SciFact is not at {folder}: name the folder of evaluation data by CCHECK_SHARED_DATA")
    return folder
