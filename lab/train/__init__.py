"""Making models from labels: embedders, rerankers and stance models."""
