"""The sidecar: rerankers over HTTP, as Elasticsearch, TEI's, Cohere's and Jina's clients call them."""
