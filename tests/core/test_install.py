"""The command that installs an extra here, for each way in which ccheck can have been installed."""

import importlib.metadata
import json
import sys
from pathlib import Path

import pytest

from ccheck.core.errors import MissingExtra
from ccheck.core.install import install_command


def installed_from(monkeypatch: pytest.MonkeyPatch, folder: Path, origin: object, *, uv: bool = False) -> None:
    """As if this ccheck came from there, into `folder`/.venv."""
    (folder / "ccheck-0.dist-info").mkdir(parents=True, exist_ok=True)
    (folder / "ccheck-0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: ccheck\nVersion: 0\n")
    if origin is not None:
        text = origin if isinstance(origin, str) else json.dumps(origin)
        (folder / "ccheck-0.dist-info" / "direct_url.json").write_text(text)
    found = importlib.metadata.PathDistribution(folder / "ccheck-0.dist-info")
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: found)
    monkeypatch.setattr(sys, "executable", str(folder / ".venv/bin/python"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: uv or None)


def test_from_a_clone_and_without_metadata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clone = {"url": tmp_path.as_uri(), "dir_info": {"editable": True}}
    installed_from(monkeypatch, tmp_path, clone | {"dir_info": {}}, uv=True)
    assert install_command("models") == f"{tmp_path}/.venv/bin/python -m uv pip install 'ccheck-papers[models]'"
    (tmp_path / "pyproject.toml").touch()
    installed_from(monkeypatch, tmp_path, clone, uv=True)
    assert install_command("models") == f"{tmp_path}/.venv/bin/python -m uv pip install -e '{tmp_path}[models]'"
    assert str(MissingExtra("Measuring", "evaluation")).endswith(f": {install_command('evaluation')}")

    def nothing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", nothing)
    assert install_command("models") == INDEX


ADDRESS, INDEX = "https://example.org/ccheck", "pip install 'ccheck-papers[models]'"
HERE = "/.venv/bin/python -m pip install"


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        ({"url": f"{ADDRESS}.whl", "archive_info": {}}, f"{HERE} 'ccheck-papers[models] @ {ADDRESS}.whl'"),
        ({"url": ADDRESS, "vcs_info": {"vcs": "git"}}, f"{HERE} 'ccheck-papers[models] @ git+{ADDRESS}'"),
        *((origin, INDEX) for origin in (None, "no JSON", "[]", '{"url": ""}', '{"dir_info": 1}')),
    ],
)
def test_from_an_address_an_index_or_nobody_knows(origin, command, tmp_path, monkeypatch):
    installed_from(monkeypatch, tmp_path, origin)
    assert install_command("models") == (command if command == INDEX else f"{tmp_path}{command}")
    assert command != INDEX or install_command() == "pip install ccheck-papers"
