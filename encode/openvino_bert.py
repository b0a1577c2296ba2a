"""The models that `numpy_bert` runs, compiled by OpenVINO: faster with many texts, but it takes a second to start.

The graph is built here from the same safetensors file, so nothing is converted, downloaded or written. In float32 the
vectors are numpy's to about 1e-6.
"""

from __future__ import annotations

import functools
import queue
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.errors import UsageError
from .bert_folder import BertFolder, Floats, read_weights
from .numpy_bert import NumpyBert, batches, in_threads, threads

if TYPE_CHECKING:
    import openvino

TOKENS_AT_ONCE = 1024
"""Tokens in one forward pass, padding included."""
NO_BFLOAT16 = "this processor does not calculate in bfloat16. Use CCHECK_EMBEDDING_PRECISION=float32"


class OpenVinoBert:
    """A compiled model; any number of threads may use it. `bert` is the same model, whose tokenizer it uses."""

    def __init__(self, folder: BertFolder, bert: NumpyBert, half: bool = False) -> None:
        """`half`: calculate in bfloat16; raises UsageError if this processor can't."""
        core = _core()
        if half and "BF16" not in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
            raise UsageError(NO_BFLOAT16)
        self._bert, self._dimensions = bert, folder.dimensions
        # Streams of one thread each, as many as can run side by side, lose less than threads that share a batch.
        how = {
            "INFERENCE_NUM_THREADS": threads(),
            "NUM_STREAMS": threads(),
            "INFERENCE_PRECISION_HINT": "bf16" if half else "f32",
        }
        self._compiled = core.compile_model(_graph(folder, read_weights(folder)), "CPU", how)
        self._free: queue.SimpleQueue[openvino.InferRequest] = queue.SimpleQueue()
        for _ in range(threads()):
            self._free.put(self._compiled.create_infer_request())

    def encode(self, texts: Sequence[str]) -> Floats:
        """See `NumpyBert.encode`."""
        ids = self._bert.read(texts)
        pooled = np.empty((len(ids), self._dimensions), np.float32)

        def fill(rows: list[int]) -> None:
            longest = max(len(ids[row]) for row in rows)
            tokens, mask = np.zeros((len(rows), longest), np.int32), np.zeros((len(rows), longest), np.float32)
            for place, row in enumerate(rows):
                tokens[place, : len(ids[row])] = ids[row]
                mask[place, : len(ids[row])] = 1
            request = self._free.get()
            try:
                pooled[rows] = request.infer([tokens, mask])[0]
            finally:
                self._free.put(request)

        in_threads(fill, list(batches([len(one) for one in ids], TOKENS_AT_ONCE, padded=True)))
        return pooled


@functools.cache
def _core() -> openvino.Core:
    """One for as long as the process lives: its library handles SIGINT, and Ctrl-C would crash once it is unloaded."""
    import openvino

    return openvino.Core()


def _graph(folder: BertFolder, weights: Mapping[str, Floats]) -> openvino.Model:
    """From ids and mask (1: a token, 0: padding), shape [texts, tokens], to pooled vectors [texts, dimensions]."""
    import openvino
    import openvino.opset13 as op

    constant = functools.cache(lambda name: op.constant(weights[name]))

    def whole(*values: int) -> Any:
        return op.constant(np.array(values, np.int64))

    def norm(states: Any, name: str) -> Any:
        even = op.mvn(states, whole(-1), True, folder.epsilon, "inside_sqrt")
        return op.add(op.multiply(even, constant(f"{name}.weight")), constant(f"{name}.bias"))

    def linear(states: Any, name: str) -> Any:
        return op.add(op.matmul(states, constant(f"{name}.weight"), False, True), constant(f"{name}.bias"))

    def rows(kind: str, numbers: Any) -> Any:
        return op.gather(constant(f"embeddings.{kind}_embeddings.weight"), numbers, op.constant(np.int64(0)))

    ids, mask = op.parameter([-1, -1], np.int32, "ids"), op.parameter([-1, -1], np.float32, "mask")
    zero, one = op.constant(np.int64(0)), op.constant(np.int64(1))
    places = op.range(zero, op.gather(op.shape_of(ids), one, zero), one, "i64")
    states = op.add(op.add(rows("word", ids), rows("position", places)), rows("token_type", zero))
    states = norm(states, "embeddings.LayerNorm")
    # What is added to the attention's scores: nothing for tokens, and so much for padding that its share is 0.
    padding = op.multiply(op.subtract(op.constant(np.float32(1)), mask), op.constant(np.float32(-1e9)))
    hidden, turn = op.unsqueeze(padding, whole(1, 2)), whole(0, 2, 1, 3)
    heads = whole(0, 0, folder.heads, folder.dimensions // folder.heads)
    for number in range(folder.layers):
        layer = f"encoder.layer.{number}"
        parts = (linear(states, f"{layer}.attention.self.{part}") for part in ("query", "key", "value"))
        query, key, value = (op.transpose(op.reshape(part, heads, True), turn) for part in parts)
        mixed = op.transpose(op.scaled_dot_product_attention(query, key, value, hidden), turn)
        mixed = op.reshape(mixed, whole(0, 0, folder.dimensions), True)
        states = op.add(linear(mixed, f"{layer}.attention.output.dense"), states)
        states = norm(states, f"{layer}.attention.output.LayerNorm")
        wide = op.gelu(linear(states, f"{layer}.intermediate.dense"), "erf")
        states = op.add(linear(wide, f"{layer}.output.dense"), states)
        states = norm(states, f"{layer}.output.LayerNorm")
    if folder.pooling == "cls":
        pooled = op.gather(states, zero, one)
    elif folder.pooling == "max":
        pooled = op.reduce_max(op.add(states, op.unsqueeze(padding, whole(-1))), whole(1))
    else:
        total = op.reduce_sum(op.multiply(states, op.unsqueeze(mask, whole(-1))), whole(1))
        pooled = op.divide(total, op.reduce_sum(mask, whole(1), True))
    return openvino.Model([pooled], [ids, mask], "bert")
