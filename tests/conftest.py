"""What all tests share."""

import atexit
import functools
import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Literal

import pytest

# Started in the background of a shell, this process ignores an interrupt, and so would the programs that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No model is downloaded by a test, nor found among those that its user has. The hub's client reads these when it loads.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HOME"] = tempfile.mkdtemp(prefix="ccheck-hub-")
atexit.register(shutil.rmtree, os.environ["HF_HOME"], ignore_errors=True)

# "needs" comes before those that import it.
pytest_plugins = """
    needs browser certificates cli_runs count elastic_stub elasticsearch_nodes fast hurry rerank_servers
    scripted_llm stores web_servers
""".split()

SHARED = Path(os.environ.get("CCHECK_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data"))
TESTS = Path(__file__).parent
AUTHORITY = TESTS / "authority.pem"


@pytest.fixture(autouse=True)
def nothing_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test reads or writes the settings, stores or caches of the person who runs it."""
    for variable in settings_variables() & os.environ.keys():
        # The tests' own server is found before this, by session fixtures.
        monkeypatch.delenv(variable)
    home = tmp_path / "home"
    monkeypatch.setenv("CCHECK_DATA_DIR", str(home / "data"))
    monkeypatch.setenv("CCHECK_CACHE_DIR", str(home / "cache"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    # Each client of a server reads the certificates of all authorities, in 25 ms. Here one, whose key nobody has.
    monkeypatch.setenv("SSL_CERT_FILE", str(AUTHORITY))
    monkeypatch.chdir(tmp_path)


@functools.cache
def settings_variables() -> frozenset[str]:
    """The environment variables that are settings of ccheck."""
    from ccheck.core.settings import Settings, variables

    return frozenset(variable for name in Settings.model_fields for variable in variables(name))


@pytest.fixture
def scifact() -> Path:
    return evaluation_data("scifact")


@pytest.fixture
def climate_fever() -> Path:
    return evaluation_data("climate-fever") / "claims.jsonl.gz"


def evaluation_data(name: Literal["scifact", "climate-fever"]) -> Path:
    """A folder of published data. Skips the test where it is not here."""
    from needs import absent

    folder = SHARED / name
    if not folder.is_dir():
        absent(name, f"{name} is not at {folder}: set CCHECK_SHARED_DATA to the folder of the evaluation data")
    return folder


LONGEST = (
    "search/test_elastic_cluster train/test_train_embedder train/test_train_reranker train/test_train_stance "
    "search/test_elastic_enrich search/test_elastic_moving search/test_elastic_store search/test_elastic_restart "
    "cli/test_train cli/test_evaluate cli/test_terminal cli/test_ingest cli/test_query project/test_docs "
    "project/test_package"
).split()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first: xdist hands out whole files, and one that begins last leaves a core idle at the end."""
    places = {TESTS / f"{name}.py": place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))
