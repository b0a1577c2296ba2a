"""Making models from labels: embedders, rerankers, stance models, fusion."""
