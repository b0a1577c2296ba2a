"""Stores, retrievers and fusion."""
