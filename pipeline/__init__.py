"""Runs a recipe: `checker` turns claims into results, `ingest` has what an ingest needs for it."""
