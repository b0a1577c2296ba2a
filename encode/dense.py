"""Turning text into vectors: numpy runs BERT-type models on the CPU, or OpenVINO if it is installed and there are many
texts. sentence-transformers runs other models, and all on a GPU."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from ..core.errors import InvalidData, UsageError, require
from ..core.layout import Embedding, SparseField
from ..core.models import (
    FoundModel,
    cpu_has_bfloat16,
    fingerprint,
    gpu_driver_here,
    load_encoder,
    models_installed,
    require_models,
)
from ..core.runtime import Runtime
from ..core.types import Vector
from .bert_folder import BertFolder, read_bert_folder, unpacked
from .numpy_bert import NumpyBert, load_bert, unit_length

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from .openvino_bert import OpenVinoBert


Spec = TypeVar("Spec", Embedding, SparseField)
DEFAULT_MODEL = "ccheck/bge-small-en-v1.5-int8"
"""It comes with ccheck: encode/packaged."""
MINILM = "sentence-transformers/all-MiniLM-L6-v2"
"""What the grounding of claims in articles was measured with."""
BATCH = 32
"""Texts in one forward pass; more make it no faster on a CPU, and take memory."""
GPU_BATCH = 256
"""On an H100, a fifth faster than `BATCH` (benchmarks/gpu.py)."""
MANY = 256
"""So many documents at a time are worth the seconds that OpenVINO takes to start where it is installed, or torch with a
GPU."""


class Embedder:
    """An embedding model. Vectors are float32 of unit length, shape [texts, dimensions]."""

    def __init__(self, found: FoundModel, runtime: Runtime, known: Embedding | None = None) -> None:
        """The model is loaded when it is needed: now to learn its dimensions, later where `known` has them of the same
        weights. Raises MissingExtra for a model that needs sentence-transformers if it is not installed, NotFound
        without safetensors weights, InvalidData for a folder that holds no embedding model, and UsageError for a device
        that does not exist, here or when it loads.
        """
        self.found, self._runtime = found, runtime
        self._device = device = runtime.device
        self.half = runtime.settings.embedding_precision == "bfloat16"
        """Whether documents are encoded in bfloat16; claims never are."""
        self._bert_folder = run_by_numpy(found, device)
        if self._bert_folder is None:
            require_models(f"the embedding model {found.name}{f' on {device}' if device else ''}")
        elif self.half:
            require(f"{found.name} in bfloat16", "fast", "openvino")
        self.spec = spec_of(found, known, self._described)

    def _described(self, identity: str) -> Embedding:
        if self._bert_folder is not None:
            return Embedding(self.found.name, self._bert_folder.dimensions, identity, self._bert_folder.max_tokens)
        dimensions, max_tokens = self._model.get_embedding_dimension(), self._model.max_seq_length
        if dimensions is None or max_tokens is None:
            raise InvalidData(f"the model {self.found.name} does not say how many dimensions and tokens it has")
        return Embedding(self.found.name, dimensions, identity, max_tokens)

    @functools.cached_property
    def _model(self) -> SentenceTransformer:
        model: SentenceTransformer
        self._runtime.loading(self.found.name)
        with unpacked(self.found.path) as path:
            found = replace(self.found, path=path)
            model, _ = load_encoder("SentenceTransformer", "an embedding model", found, self._device)
        return model

    @functools.cached_property
    def _bert(self) -> NumpyBert | None:
        """The same model without torch, where numpy can run it."""
        return load_bert(self._bert_folder) if self._bert_folder is not None else None

    @functools.cached_property
    def _fast(self) -> OpenVinoBert | None:
        """The same model for many texts, where OpenVINO is installed."""
        from .openvino_bert import OpenVinoBert

        if self._bert_folder is None or self._bert is None or not importlib.util.find_spec("openvino"):
            return None
        return OpenVinoBert(self._bert_folder, self._bert, self.half)

    def encode_documents(self, texts: Sequence[str]) -> Vector:
        """Uses numpy for a model that it can run, OpenVINO for many texts (benchmarks/embedding.py), and
        sentence-transformers for many texts on a GPU. Raises UsageError for bfloat16 on a device that lacks it."""
        on_gpu = len(texts) >= MANY and self._device is None and gpu_driver_here() and models_installed()
        if self._bert is not None and not on_gpu:
            fast = self._fast if self.half or "_fast" in vars(self) or len(texts) >= MANY else None
            return unit_length((fast or self._bert).encode(texts))
        import torch

        from .openvino_bert import NO_BFLOAT16

        kind = self._model.device.type
        if self.half and kind == "cpu" and not cpu_has_bfloat16():
            raise UsageError(NO_BFLOAT16)
        with torch.autocast(kind, torch.bfloat16, enabled=self.half):
            return self._encode(self._model.encode_document, texts)

    def encode_queries(self, texts: Sequence[str]) -> Vector:
        if self._bert is not None:
            return unit_length(self._bert.encode_claims(texts))
        return self._encode(self._model.encode_query, texts)

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """The number of tokens of each text, special ones left out."""
        if not texts:
            return []
        if self._bert is not None:
            return [len(ids) for ids in self._bert.token_ids(texts)]
        ids = self._model.tokenizer(
            list(texts),
            add_special_tokens=False,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
        )["input_ids"]
        return [len(tokens) for tokens in ids]

    def _encode(self, encode: Any, texts: Sequence[str]) -> Vector:
        if not texts:
            return np.zeros((0, self.spec.dimensions), np.float32)
        # sentence-transformers sorts what it is given by length before it makes batches.
        size = BATCH if self._model.device.type == "cpu" else GPU_BATCH
        vectors = encode(list(texts), batch_size=size, convert_to_numpy=True, show_progress_bar=False)
        # Here and not in the model, which would round the lengths to bfloat16.
        return unit_length(np.ascontiguousarray(vectors, np.float32))


def run_by_numpy(found: FoundModel, device: str | None) -> BertFolder | None:
    """The settings of a model that numpy can run on that device; None for a model that needs sentence-transformers."""
    return read_bert_folder(found.path) if device in (None, "cpu") else None


def load_embedder(name: str, runtime: Runtime, known: Embedding | None = None) -> Embedder:
    """Find a model; see `Embedder`. Raises MissingExtra, NotFound or InvalidData."""
    return runtime.once("embedder", name, make=lambda: Embedder(runtime.find(name), runtime, known))


def spec_of(found: FoundModel, known: Spec | None, describe: Callable[[str], Spec]) -> Spec:
    """Returns `known`, renamed to the model that was found, if the weights are the same. Otherwise calls `describe`.

    `describe` is given the weights' fingerprint, and may load them. Raises NotFound without safetensors weights.
    """
    identity = fingerprint(found.path)
    if known is not None and known.fingerprint == identity:
        return replace(known, model=found.name)
    return describe(identity)
