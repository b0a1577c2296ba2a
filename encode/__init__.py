"""From texts to vectors: dense (with and without torch), sparse, adapters, and the cache of vectors."""
