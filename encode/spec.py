"""Shared by dense and sparse encoders: the specification of a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from ..core.layout import Embedding, SparseField
from ..core.models import FoundModel, fingerprint

Spec = TypeVar("Spec", Embedding, SparseField)


def spec_of(found: FoundModel, known: Spec | None, describe: Callable[[str], Spec]) -> Spec:
    """Returns `known`, renamed to the model that was found, if the weights are the same. Otherwise calls `describe`.

    `describe` is given the weights' fingerprint, and may load them. Raises NotFound without safetensors weights.
    """
    identity = fingerprint(found.path)
    if known is not None and known.fingerprint == identity:
        return replace(known, model=found.name)
    return describe(identity)
