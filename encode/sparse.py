"""Turning text into learned sparse vectors with sentence-transformers' SparseEncoder.

SPLADE (Formal, Piwowarski and Clinchant, SIGIR 2021; SPLADE v2, arXiv:2109.10086): a masked language model gives each
token logits over the vocabulary, and the weight of term j is the maximum over the tokens i of log(1 + ReLU(logit_ij)).
Inference-free models (Geng et al., arXiv:2411.04403) do so for documents only: a query's terms weigh what a table says.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.errors import InvalidData
from ..core.layout import SparseField
from ..core.models import FoundModel, load_encoder, read_settings, require_models
from ..core.runtime import Runtime
from ..core.types import SparseVector
from .dense import spec_of

if TYPE_CHECKING:
    import torch
    from sentence_transformers import SparseEncoder


BATCH, GPU_BATCH = 8, 32
"""Texts in one forward pass: each token has a logit for every word of the vocabulary, which over 8 texts of 512 tokens
and 30,522 words is half a gigabyte."""
_SPARSE_MODULES = ("SpladePooling", "SparseAutoEncoder", "SparseStaticEmbedding")


class SparseEmbedder:
    """A sparse encoder."""

    def __init__(self, found: FoundModel, runtime: Runtime, known: SparseField | None = None) -> None:
        """The model is loaded when it is needed: now to learn its vocabulary, later where `known` has it of the same
        weights. Raises MissingExtra without sentence-transformers, NotFound without safetensors weights, InvalidData
        for a folder that holds no sparse encoder, and UsageError for a device that does not exist, here or when it
        loads.
        """
        self.found, self._runtime = found, runtime
        self.spec = spec_of(found, known, self._described)

    def _described(self, identity: str) -> SparseField:
        max_tokens = _window(self._model)
        if max_tokens is None:
            raise InvalidData(f"the model {self.found.name} does not say how many tokens it reads")
        return SparseField(self.found.name, _vocabulary(self._model), identity, max_tokens)

    @functools.cached_property
    def _model(self) -> SparseEncoder:
        model: SparseEncoder
        self._runtime.loading(self.found.name)
        _check_folder(self.found)
        model, _ = load_encoder("SparseEncoder", "a sparse encoder", self.found, self._runtime.device)
        _check_head(model, self.found)
        return model

    def encode_documents(self, texts: Sequence[str]) -> list[SparseVector]:
        """One for each text, which is cut at the model's window; a text without terms has none."""
        return self._encode(self._model.encode_document, texts)

    def encode_queries(self, texts: Sequence[str]) -> list[SparseVector]:
        return self._encode(self._model.encode_query, texts)

    def _encode(self, encode: Any, texts: Sequence[str]) -> list[SparseVector]:
        """Raises InvalidData for weights that are below 0 or no numbers, which no store takes."""
        if not texts:
            return []
        # sentence-transformers sorts what it is given by length before it makes batches.
        encoded = encode(
            list(texts),
            batch_size=BATCH if self._model.device.type == "cpu" else GPU_BATCH,
            convert_to_tensor=True,
            convert_to_sparse_tensor=True,
            save_to_cpu=True,
            show_progress_bar=False,
        )
        return list(_rows(encoded, len(texts), self.found.name))


def load_sparse_embedder(name: str, runtime: Runtime, known: SparseField | None = None) -> SparseEmbedder:
    """Find a model; see `SparseEmbedder`. Raises MissingExtra, NotFound or InvalidData."""
    require_models("sparse retrieval")
    return runtime.once("sparse", name, make=lambda: SparseEmbedder(runtime.find(name), runtime, known))


def _rows(encoded: torch.Tensor, count: int, name: str) -> Iterator[SparseVector]:
    """The rows of a sparse tensor, shape [count, vocabulary]."""
    encoded = encoded.coalesce()  # which also sorts the indices, by row and then by column
    rows, columns = encoded.indices().numpy()
    weights = encoded.values().float().numpy()
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise InvalidData(f"the model {name} gives weights that are negative or not finite. Choose another one")
    kept = weights > 0
    rows, columns, weights = rows[kept], columns[kept].astype(np.int32), weights[kept].astype(np.float32)
    ends = np.searchsorted(rows, np.arange(count + 1))
    for start, end in itertools.pairwise(ends):
        # Copies, so that a vector that is kept does not keep all of them.
        yield SparseVector(columns[start:end].copy(), weights[start:end].copy())


def _check_folder(found: FoundModel) -> None:
    """Raises InvalidData unless the folder says that it holds a sparse encoder, or a masked language model.

    sentence-transformers would make one of anything, with weights drawn at random if it has none.
    """
    if modules := read_settings(found.path / "modules.json", list):
        kinds = [str(module.get("type", "")) for module in modules if isinstance(module, dict)]
        sparse = any(kind.endswith((*_SPARSE_MODULES, ".Router")) for kind in kinds)
    else:
        names = read_settings(found.path / "config.json", dict).get("architectures") or []
        sparse = any(str(name).endswith("ForMaskedLM") for name in names)
    if not sparse:
        raise InvalidData(
            f"{found.name} is not a sparse encoder. Choose one such as naver/splade-v3, or a folder that "
            "sentence-transformers' SparseEncoder saved"
        )


def _check_head(model: SparseEncoder, found: FoundModel) -> None:
    """Raises InvalidData if a masked language model's head is in no file: it would have been drawn at random."""
    from safetensors import safe_open
    from transformers import PreTrainedModel

    saved: set[str] = set()
    for file in found.path.rglob("*.safetensors"):
        with safe_open(file, "pt") as opened:
            saved |= set(opened.keys())
    for part in model.modules():
        if not isinstance(part, PreTrainedModel) or not type(part).__name__.endswith("ForMaskedLM"):
            continue
        body = f"{part.base_model_prefix}."
        # Those that are tied to the body's are listed with it.
        head = {name for name, _ in part.named_parameters() if not name.startswith(body)}
        # Old BERTs' names end differently.
        old = {name.replace(".weight", ".gamma").replace(".bias", ".beta") for name in head}
        if head and not (head | old) & saved:
            raise InvalidData(
                f"{found.name} is not a sparse encoder: its weights lack {min(head)}, the head of a masked language "
                "model"
            )


def _window(model: SparseEncoder) -> int | None:
    """How many tokens of a document the model reads, special ones too."""
    configs = (getattr(module, "config", None) for module in model.modules())
    # The tokenizer of a table of weights may know no end.
    given = [model.max_seq_length, *(getattr(config, "max_position_embeddings", None) for config in configs)]
    known = [int(count) for count in given if count]
    return min(known) if known else None


def _vocabulary(model: SparseEncoder) -> int:
    """How many terms there are. Some modules know it only once they have run, and until then name another size."""
    return int(model.encode_document("", convert_to_tensor=True, show_progress_bar=False).shape[-1])
