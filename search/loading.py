"""What dense and sparse encoders of sentence-transformers have in common: what is known of them, and their loading."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, TypeVar

from ..errors import InvalidData, MissingExtra
from ..models import FoundModel, check_device, fingerprint, loading_quietly
from .store import Embedding, SparseField

Spec = TypeVar("Spec", Embedding, SparseField)


def spec_of(found: FoundModel, known: Spec | None, describe: Callable[[str], Spec]) -> Spec:
    """What is known of the same weights, under the name by which they were found; else what `describe` says of them.

    `describe` is given the weights' fingerprint, and may load them. Raises NotFound without safetensors weights.
    """
    identity = fingerprint(found.path)
    if known is not None and known.fingerprint == identity:
        return replace(known, model=found.name)
    return describe(identity)


def load_encoder(
    kind: Literal["SentenceTransformer", "SparseEncoder"], what: str, found: FoundModel, device: str | None
) -> Any:
    """The model of a folder by a class of sentence-transformers; `device` as torch names it, by default the fastest.

    No code of the model's author runs. Raises MissingExtra, UsageError for a device that is none, and InvalidData for a
    folder that does not hold `what`.
    """
    # oneDNN keeps a few MB for each shape of batch that it met, which over a corpus is half a gigabyte.
    os.environ.setdefault("LRU_CACHE_CAPACITY", "1")
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "1")
    if device is not None:
        check_device(device)
    with loading_quietly():
        try:
            import sentence_transformers
        except ModuleNotFoundError as error:
            raise MissingExtra(what, "models") from error
        try:
            return getattr(sentence_transformers, kind)(
                str(found.path),
                device=device,
                trust_remote_code=False,
                local_files_only=True,
                model_kwargs={"use_safetensors": True},
            )
        except Exception as error:
            # A folder can be broken in any way.
            reason = str(error).strip().partition("\n")[0]
            raise InvalidData(f"{found.path} can't be loaded as {what}: {reason}") from error
