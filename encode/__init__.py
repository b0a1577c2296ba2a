"""From texts to vectors: dense (with and without torch), sparse, and the cache of vectors."""
