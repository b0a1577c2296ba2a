"""The order in which files of tests run."""

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
LONGEST = (
    "search/test_elastic_cluster.py",
    "train/test_train_embedder.py",
    "train/test_train_reranker.py",
    "train/test_train_stance.py",
    "search/test_elastic_enrich.py",
    "search/test_elastic_moving.py",
    "search/test_elastic_store.py",
    "search/test_elastic_restart.py",
    "cli/test_train.py",
    "cli/test_evaluate.py",
    "cli/test_terminal.py",
    "cli/test_ingest.py",
    "cli/test_query.py",
    "project/test_docs.py",
    "project/test_package.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first: xdist hands out whole files, and one that begins last leaves a core idle at the end."""
    places = {TESTS / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))
