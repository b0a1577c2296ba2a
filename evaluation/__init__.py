"""Measuring recipes against judgements."""
