"""The store in Elasticsearch, and searching indices that ccheck did not make."""

from .companion import JoinedStore
from .connection import Connection, connection_from
from .doctor import diagnose
from .store import ElasticStore

__all__ = ["Connection", "ElasticStore", "JoinedStore", "connection_from", "diagnose"]
