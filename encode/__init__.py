"""From texts to vectors: dense, sparse, adapters, and the cache of vectors. Light: models are imported when loaded."""
