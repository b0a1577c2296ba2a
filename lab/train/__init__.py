"""Making models from labels: embedders, adapters, rerankers and stance models."""
