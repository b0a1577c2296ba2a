"""Language models: asking one over HTTP for answers of a given shape, with a cache, a budget and retries."""
