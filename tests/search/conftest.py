"""The client of the Elasticsearch node of these tests."""

from elastic_indices import node_client  # noqa: F401 (a fixture)
