"""One vector for each token of a BERT-type embedding model, whatever stands beside it.

A token's vector is what the model makes of it as a text of its own, in the directions in which these vectors differ
most. Late interaction between a claim's tokens in context and these ranks as well as with the documents' tokens in
context (benchmarks/README.md), and a document costs no more than its tokenisation. The table of all-MiniLM-L6-v2 comes
with ccheck. That of another model takes about a minute, once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import CcheckError
from ..core.files import private_folder, writing_bytes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .numpy_bert import NumpyBert

    Floats = NDArray[np.float32]

WIDTH = 96
"""Directions that are kept: .7488 in nDCG@10 on SciFact, against .7477 with all 384 and .7461 with 64."""
PACKAGED = Path(__file__).parent / "token_tables"


@dataclass(frozen=True, slots=True)
class TokenTable:
    """`codes` (int8, shape [vocabulary, width]) times `scales` (float32, [vocabulary]) are unit vectors, as far as they
    lie in the directions `basis` (float32, [width, dimensions]), which are orthonormal."""

    codes: NDArray[np.int8]
    scales: Floats
    basis: Floats

    def vectors(self, ids: Sequence[int]) -> Floats:
        """The vectors of tokens, shape [ids, width]."""
        import numpy as np

        rows = np.asarray(ids, np.intp)
        made: Floats = self.codes[rows] * self.scales[rows, None]
        return made

    def turned(self, vectors: Floats) -> Floats:
        """Vectors of the model, shape [n, dimensions], in the table's directions."""
        return vectors @ self.basis.T

    def save(self, file: Path, weights: str) -> None:
        """`weights`: the SHA-256 of the model's. Raises UsageError or Incomplete if the file can't be written."""
        from safetensors.numpy import save

        tensors: dict[str, NDArray[Any]] = {"codes": self.codes, "scales": self.scales, "basis": self.basis}
        with writing_bytes(file, "the table of tokens") as stream:
            stream.write(save(tensors, {"weights": weights}))


def load_table(
    bert: NumpyBert,
    weights: str,
    cache: Path,
    on_make: Callable[[], None] = lambda: None,
) -> TokenTable:
    """The table of the model whose weights have this SHA-256: from the package, from the folder `cache`, or made.

    `on_make` is called before what takes long. If the cache can't be written, the table is made again next time.
    """
    kept = cache / f"{weights[:32]}.safetensors"
    for file in [*sorted(PACKAGED.glob("*.safetensors")), kept]:
        table = _read(file, weights, bert.vocabulary)
        if table is not None:
            return table
    on_make()
    table = make_table(bert)
    with contextlib.suppress(CcheckError, OSError):
        private_folder(cache)
        table.save(kept, weights)
    return table


def make_table(bert: NumpyBert) -> TokenTable:
    """Let the model read each of its tokens alone."""
    import numpy as np

    vectors = bert.encode_alone(range(bert.vocabulary))
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    # Without a mean to subtract: products with vectors that are not in the table are to stay what they are.
    _, directions = np.linalg.eigh(vectors.T.astype(np.float64) @ vectors)
    basis = np.ascontiguousarray(directions[:, ::-1].T[:WIDTH], np.float32)
    turned = vectors @ basis.T
    scales = np.maximum(np.abs(turned).max(1), np.finfo(np.float32).tiny) / np.float32(127)
    return TokenTable(np.round(turned / scales[:, None]).astype(np.int8), scales.astype(np.float32), basis)


def _read(file: Path, weights: str, vocabulary: int) -> TokenTable | None:
    """None if the file is not that model's, or can't be read: it is only a cache."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="numpy") as stored:
            if (stored.metadata() or {}).get("weights") != weights:
                return None
            table = TokenTable(*(stored.get_tensor(name) for name in ("codes", "scales", "basis")))
    except (OSError, SafetensorError):
        return None
    fits = table.codes.shape == (vocabulary, len(table.basis)) and table.scales.shape == (vocabulary,)
    return table if fits and table.codes.dtype.name == "int8" else None
