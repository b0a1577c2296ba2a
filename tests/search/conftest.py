"""The Elasticsearch node of these tests."""

from collections.abc import Iterator

import httpx
import pytest


@pytest.fixture
def client(elasticsearch_url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=elasticsearch_url, timeout=60) as client:
        yield client
