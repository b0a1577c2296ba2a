"""What dense and sparse encoders have in common: what is known of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from ..layout import Embedding, SparseField
from ..models import FoundModel, fingerprint

Spec = TypeVar("Spec", Embedding, SparseField)


def spec_of(found: FoundModel, known: Spec | None, describe: Callable[[str], Spec]) -> Spec:
    """What is known of the same weights, under the name by which they were found; else what `describe` says of them.

    `describe` is given the weights' fingerprint, and may load them. Raises NotFound without safetensors weights.
    """
    identity = fingerprint(found.path)
    if known is not None and known.fingerprint == identity:
        return replace(known, model=found.name)
    return describe(identity)
