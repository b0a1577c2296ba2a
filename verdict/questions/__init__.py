"""Checking with questions: what a language model is asked about a claim, and what its answers mean."""
