"""BERT-type embedding models run by numpy, with tokenizers and safetensors: no torch, which takes seconds to import.

The vectors are those of sentence-transformers in float32, to about 1e-6.

Another model with the same vocabulary can read two texts together. Its safetensors file has each matrix W, shape [out,
in], in int8 with `W.scale`, shape [out], and everything else in float16. `head.weight`, shape
[outputs, 2 * dimensions], and `head.bias` read the first token's vector and the mean of all.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import itertools
import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from cachetools import LRUCache, cached
from numpy.typing import NDArray

from ..core.errors import InvalidData
from .bert_folder import SCALE, WORDS, BertFolder, Floats, in_full, open_tokenizer, read_stored

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController


TOKENS_AT_ONCE = 4096
"""How many tokens go through the model together, of one or more texts."""
TOKENS_A_THREAD = 256
"""So many tokens are worth a thread of their own."""
KEPT_BYTES = 16 << 20
"""States of the claims that were encoded last: late interaction asks for them next."""
_ROWS = 32
"""Rows that stay in a processor's cache while a function of several steps is applied to them."""
_COLUMNS = 32
_SMALL_PRODUCT = 1_000_000
_SMALL_KERNELS = {"SkylakeX", "Cooperlake", "SapphireRapids"}
"""Where OpenBLAS has AVX-512, it multiplies matrices of which rows × inner × columns is at most a million by kernels
that don't copy them first. So weights are kept in blocks of 32 columns there, and states come a few rows at a time: a
claim's 14 tokens then take 8.4 ms for 12 layers of 384 dimensions instead of 22, 4,096 tokens 1.6 s instead of 1.8.
Other kernels are slower so, up to twice."""

Linear: TypeAlias = Callable[[Floats], Floats]
"""From states, shape [tokens, in], to [tokens, out]."""
CrossEncoder: TypeAlias = Callable[[Sequence[tuple[str, str]]], Floats]
"""From pairs of texts to the outputs of the head, shape [pairs, outputs]."""
Layer: TypeAlias = Callable[[Floats, list[slice]], Floats]
"""From the states of all tokens, and where each text's are, to the next ones."""


class NumpyBert:
    """A model that is loaded; any number of threads may use it."""

    def __init__(self, folder: BertFolder) -> None:
        """Raises InvalidData for a folder that is broken."""
        from safetensors import SafetensorError

        try:
            stored = read_stored(folder)
            self._tokenizer = open_tokenizer(folder.path, len(stored[WORDS]))
            self._take(folder, stored)
        except (OSError, SafetensorError, LookupError, ValueError) as error:
            raise InvalidData(f"{folder.path} can't be loaded as an embedding model: {error}") from error

    def with_weights(self, stored: Mapping[str, NDArray[Any]]) -> NumpyBert:
        """Another model with this one's vocabulary, dimensions and heads, and any number of layers, packed or not.

        Raises LookupError or ValueError for weights that don't fit.
        """
        layers = len({name.split(".")[2] for name in stored if name.startswith("encoder.layer.")})
        made = copy.copy(self)
        made._take(dataclasses.replace(self._folder, layers=layers), stored)
        if made.vocabulary != self.vocabulary:
            raise ValueError("it has another vocabulary")
        return made

    def _take(self, folder: BertFolder, stored: Mapping[str, NDArray[Any]]) -> None:
        self._folder, width = folder, folder.dimensions
        self._words, packed = stored[WORDS], stored[WORDS].dtype == np.int8
        self._scales = stored[WORDS + SCALE] if packed else np.ones(len(self._words), np.float32)
        self._layers = [_read_layer(stored, number, folder) for number in range(folder.layers)]
        rest = in_full({name: stored[name] for name in stored if name.startswith("embeddings.") and WORDS not in name})
        self._places = rest["embeddings.position_embeddings.weight"]
        self._types = rest["embeddings.token_type_embeddings.weight"]
        self._norm = _norm(stored, "embeddings.LayerNorm", width)
        self.vocabulary = len(self._words)
        """How many tokens the model has vectors for."""
        self._claims: LRUCache[str, Floats] = LRUCache(KEPT_BYTES, lambda states: states.nbytes)
        self._claims_lock = threading.Lock()
        widths = {values.shape[1:] for values in (self._words, self._places, self._types)}
        if widths != {(width,)} or len(self._places) < folder.max_tokens:
            raise ValueError("config.json does not describe its weights")

    def encode(self, texts: Sequence[str]) -> Floats:
        """The pooled vectors, not normalised, shape [texts, dimensions]. A text is cut at the model's window."""
        return self._rows(self.each(self.read(texts), self._pool))

    def encode_claims(self, texts: Sequence[str]) -> Floats:
        """The same as `encode`, for claims: their states are kept for `claim_states`."""
        return self._rows([self._pool(states[:, self._folder.dimensions :]) for states in self._read_claims(texts)])

    def claim_states(self, text: str) -> Floats:
        """What the middle and the last layer make of each token of a claim, side by side and without the special
        tokens at its ends: shape [tokens, 2 * dimensions]."""
        with self._claims_lock:
            known = self._claims.get(text)
        (states,) = self._read_claims([text]) if known is None else (known,)
        return states[1:-1]

    def _read_claims(self, texts: Sequence[str]) -> list[Floats]:
        found = self.each(self.read(texts), lambda states: states, between=self._folder.layers // 2 - 1)
        with self._claims_lock:
            for text, states in zip(texts, found, strict=True):
                with contextlib.suppress(ValueError):  # larger than all that is kept
                    self._claims[text] = states
        return found

    def encode_pairs(self, pairs: Sequence[tuple[str, str]], most: int) -> Floats:
        """Two texts are read as one: the vector of the first token and the mean of all, shape [pairs, 2 * dimensions].

        Of `most` tokens, with the three special ones, the first text gets up to a half.
        """
        first, last = self._tokenizer.encode("").ids
        one, other = (self.token_ids([pair[side] for pair in pairs]) for side in (0, 1))
        ids, kinds = [], []
        for mine, given in zip(one, other, strict=True):
            mine = mine[: (most - 3) // 2]
            given = given[: most - 3 - len(mine)]
            ids.append([first, *mine, last, *given, last])
            kinds.append([0] * (len(mine) + 2) + [1] * (len(given) + 1))
        found = self.each(ids, lambda states: np.concatenate([states[0], states.mean(0)]), kinds)
        return self._rows(found, 2)

    def encode_tokens(self, texts: Sequence[str]) -> list[Floats]:
        """The vectors of each text's tokens, not normalised, without the special ones at its ends: each of shape
        [tokens, dimensions]. There is one for each of `token_ids` that fits the model's window."""
        return self.each(self.read(texts), lambda states: states[1:-1])

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text's tokens, special ones left out; nothing is cut."""
        return [one.ids for one in self._tokenizer.encode_batch(list(texts), add_special_tokens=False)]

    @property
    def unknown(self) -> int | None:
        """The id of the token for what the tokenizer does not know."""
        made: int | None = self._tokenizer.token_to_id(self._tokenizer.model.unk_token)
        return made

    def read(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, special ones at its ends, cut at the model's window."""
        most = self._folder.max_tokens
        read = [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]
        return [ids if len(ids) <= most else [*ids[: most - 1], ids[-1]] for ids in read]

    def each(
        self,
        ids: Sequence[Sequence[int]],
        take: Callable[[Floats], Floats],
        kinds: Sequence[Sequence[int]] | None = None,
        between: int | None = None,
    ) -> list[Floats]:
        """What `take` makes of each text's states, shape [tokens, dimensions]. Batches run in threads.

        `between` is the number of a layer, from 0, whose states stand before the last one's: [tokens, 2 * dimensions].
        """
        found: list[Floats] = [self._places[0]] * len(ids)

        def fill(rows: list[int]) -> None:
            some = None if kinds is None else [kinds[row] for row in rows]
            states, spans = self._states([ids[row] for row in rows], some, between)
            for row, span in zip(rows, spans, strict=True):
                found[row] = take(states[span]).copy()  # a view would keep the whole batch

        lengths = [len(one) for one in ids]
        share = sum(lengths) // threads() + max(lengths, default=0) // 2
        in_threads(fill, list(batches(lengths, min(TOKENS_AT_ONCE, max(TOKENS_A_THREAD, share)))))
        return found

    def _rows(self, vectors: Sequence[Floats], widths: int = 1) -> Floats:
        return np.array(vectors, np.float32).reshape(len(vectors), widths * self._folder.dimensions)

    def _states(
        self,
        ids: Sequence[Sequence[int]],
        kinds: Sequence[Sequence[int]] | None = None,
        between: int | None = None,
    ) -> tuple[Floats, list[slice]]:
        """The last layer's states of all tokens, and where each text's are. `kinds` tells a first from a second text.
        For `between`, see `each`.

        The texts lie one behind the other, so that nothing is padded; only attention takes them one by one.
        """
        lengths = [len(one) for one in ids]
        ends = list(itertools.accumulate(lengths))
        spans = [slice(end - length, end) for end, length in zip(ends, lengths, strict=True)]
        tokens, places = np.concatenate(ids), np.concatenate([np.arange(length) for length in lengths])
        # A claim has few of the vocabulary's words, which are half of a small model: only these are unpacked.
        states = self._words[tokens].astype(np.float32) * self._scales[tokens].astype(np.float32)[:, None]
        states += self._places[places]
        states += self._types[0] if kinds is None else self._types[np.concatenate(kinds)]
        _normalise(states, self._norm, self._folder.epsilon)
        before = states
        for number, layer in enumerate(self._layers):
            states = layer(states, spans)
            before = states if number == between else before
        return (states if between is None else np.concatenate([before, states], 1)), spans

    def _pool(self, states: Floats) -> Floats:
        pooled: Floats = states[0]
        if self._folder.pooling != "cls":
            pooled = states.mean(0) if self._folder.pooling == "mean" else states.max(0)
        return pooled


def unit_length(vectors: Floats) -> Floats:
    """The vectors, shape [..., dimensions], scaled to length 1 in place. A vector of zeros stays one."""
    vectors /= np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), np.finfo(np.float32).tiny)
    return vectors


@cached(LRUCache(2), condition=threading.Condition())  # one thread loads, the others wait
def load_bert(folder: BertFolder) -> NumpyBert:
    """The model of a folder. The last two are kept: that of the store, and that of judging. Raises InvalidData."""
    return NumpyBert(folder)


@cached(LRUCache(1), condition=threading.Condition())  # one thread loads, the others wait
def load_cross_encoder(folder: BertFolder, file: Path, most: int) -> CrossEncoder:
    """The model of a file, with the tokenizer of a folder. Of two texts it reads `most` tokens. The last one is kept.

    Raises InvalidData if one of the two is broken, or they do not fit each other.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    bert = load_bert(folder)
    try:
        stored = load_file(file)
        if not all(np.isfinite(values).all() for values in stored.values() if values.dtype != np.int8):
            raise ValueError("it has values that are not numbers")
        weight, bias = (stored.pop(f"head.{part}").astype(np.float32) for part in ("weight", "bias"))
        if weight.shape != (len(bias), 2 * folder.dimensions) or not 16 <= most <= folder.max_tokens:
            raise ValueError("its head does not fit the model")
        reader = bert.with_weights(stored)
    except (OSError, SafetensorError, LookupError, ValueError) as error:
        raise InvalidData(f"{file} can't be loaded as a model that reads two texts: {error}") from error

    def outputs(pairs: Sequence[tuple[str, str]]) -> Floats:
        made: Floats = reader.encode_pairs(pairs, most) @ weight.T
        made += bias
        return made

    return outputs


def batches(lengths: Sequence[int], most: int = TOKENS_AT_ONCE, padded: bool = False) -> Iterator[list[int]]:
    """The numbers of texts that go through the model together, those of like length next to each other.

    A batch has at most `most` tokens or one text. `padded`: each text counts as long as the batch's longest.
    """
    batch: list[int] = []
    size = 0
    for number in sorted(range(len(lengths)), key=lambda number: -lengths[number]):
        length = lengths[batch[0] if padded and batch else number]
        if batch and size + length > most:
            yield batch
            batch, size, length = [], 0, lengths[number]
        batch.append(number)
        size += length
    if batch:
        yield batch


# -- layers


def _read_layer(stored: Mapping[str, NDArray[Any]], number: int, folder: BertFolder) -> Layer:
    """A layer of the model. Raises ValueError for weights that don't fit each other."""
    name, width, heads, epsilon = f"encoder.layer.{number}", folder.dimensions, folder.heads, folder.epsilon
    if width % heads:
        raise ValueError("the dimensions can't be shared among the heads")
    inner = len(stored[f"{name}.intermediate.dense.weight"])
    query, *rest = (_named(stored, f"{name}.attention.self.{part}", width, width) for part in ("query", "key", "value"))
    # The scale of attention is put into the queries.
    inside = _linear(query.times(1 / math.sqrt(width // heads)), *rest)
    outside = _linear(_named(stored, f"{name}.attention.output.dense", width, width))
    wide = _linear(_named(stored, f"{name}.intermediate.dense", inner, width))
    narrow = _linear(_named(stored, f"{name}.output.dense", width, inner))
    attention_norm, norm = (_norm(stored, f"{name}.{part}.LayerNorm", width) for part in ("attention.output", "output"))

    def layer(states: Floats, spans: list[slice]) -> Floats:
        attended = outside(_attention(inside(states), spans, heads))
        attended += states
        _normalise(attended, attention_norm, epsilon)
        hidden = wide(attended)
        _gelu(hidden)
        result = narrow(hidden)
        result += attended
        _normalise(result, norm, epsilon)
        return result

    return layer


def _attention(inside: Floats, spans: list[slice], heads: int) -> Floats:
    """`inside` has query, key and value of each token side by side."""
    dimensions = inside.shape[1] // 3
    mixed = np.empty((len(inside), dimensions), np.float32)
    for span in spans:
        parts = inside[span].reshape(-1, 3, heads, dimensions // heads)
        query, key, value = (parts[:, number].transpose(1, 0, 2) for number in range(3))
        shares = query @ key.transpose(0, 2, 1)
        shares -= shares.max(-1, keepdims=True)
        np.exp(shares, out=shares)
        shares /= shares.sum(-1, keepdims=True)
        mixed[span] = (shares @ value).transpose(1, 0, 2).reshape(-1, dimensions)
    return mixed


def _linear(*parts: _Packed) -> Linear:
    """States times weights, plus a bias; what the parts make lies side by side."""
    weight, scale, bias = (np.concatenate(some) for some in zip(*parts, strict=True))
    width, inner = weight.shape
    rows = min(_ROWS, _SMALL_PRODUCT // (inner * _COLUMNS))
    small = rows > 0 and width % _COLUMNS == 0 and _has_small_kernels()
    columns = _COLUMNS if small else width
    blocks: Floats = np.ascontiguousarray(weight.reshape(-1, columns, inner).transpose(0, 2, 1)).astype(np.float32)
    blocks *= scale.reshape(-1, 1, columns)

    def whole(states: Floats) -> Floats:
        made: Floats = states @ blocks[0]
        made += bias
        return made

    def blockwise(states: Floats) -> Floats:
        made = np.empty((len(states), width), np.float32)
        full = len(states) // rows * rows
        first = made[:full].reshape(-1, rows, len(blocks), columns).transpose(2, 0, 1, 3)
        rest = made[full:].reshape(-1, len(blocks), columns).transpose(1, 0, 2)
        np.matmul(states[:full].reshape(-1, rows, inner), blocks[:, None], out=first)
        np.matmul(states[full:], blocks, out=rest)
        made += bias
        return made

    return blockwise if small else whole


def _normalise(states: Floats, norm: tuple[Floats, Floats], epsilon: float) -> None:
    """Layer normalisation, in place."""
    for rows in _blocks(states, 8 * _ROWS):
        rows -= rows.mean(-1, keepdims=True)
        variance = np.einsum("ij,ij->i", rows, rows) / np.float32(rows.shape[1])
        rows /= np.sqrt(variance + np.float32(epsilon))[:, None]
        rows *= norm[0]
        rows += norm[1]


# erf(x) in float32 is x P(x²) / Q(x²) for |x| < 4 and its sign beyond, as Eigen and XLA have it.
_P = (
    *(-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05),
    *(-7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02),
)
_Q = (
    *(-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03),
    -1.42647390514189e-02,
)


def _gelu(states: Floats) -> None:
    """x/2 (1 + erf(x/√2)), in place."""
    for rows in _blocks(states, _ROWS):
        x = np.clip(rows * np.float32(math.sqrt(0.5)), -4, 4)
        square = x * x
        above, below = _polynomial(_P, square), _polynomial(_Q, square)
        x *= above
        x /= below
        x += 1
        rows *= x
        rows *= np.float32(0.5)


def _polynomial(coefficients: Sequence[float], x: Floats) -> Floats:
    made: Floats = x * np.float32(coefficients[0])
    for coefficient in coefficients[1:-1]:
        made += np.float32(coefficient)
        made *= x
    made += np.float32(coefficients[-1])
    return made


def _blocks(states: Floats, rows: int) -> Iterator[Floats]:
    """Views of so many rows each."""
    return (states[start : start + rows] for start in range(0, len(states), rows))


class _Packed(NamedTuple):
    """A layer's weight as it is stored, shape [out, in], what its rows are to be multiplied by, and its bias."""

    weight: NDArray[Any]
    scale: Floats
    bias: Floats

    def times(self, factor: float) -> _Packed:
        return _Packed(self.weight, self.scale * np.float32(factor), self.bias * np.float32(factor))


def _named(stored: Mapping[str, NDArray[Any]], name: str, *shape: int) -> _Packed:
    """Raises LookupError or ValueError if the weights aren't there or have another shape."""
    weight, bias = stored[f"{name}.weight"], stored[f"{name}.bias"]
    if weight.shape != shape or bias.shape != shape[:1]:
        raise ValueError(f"{name} has the shape {weight.shape}, with {bias.shape} for its bias, not {shape}")
    scale = stored[f"{name}.weight{SCALE}"] if weight.dtype == np.int8 else np.ones(shape[0])
    return _Packed(weight, scale.astype(np.float32, copy=False), bias.astype(np.float32, copy=False))


def _norm(stored: Mapping[str, NDArray[Any]], name: str, width: int) -> tuple[Floats, Floats]:
    """The weight and bias of a layer normalisation."""
    weight, _, bias = _named(stored, name, width)
    return weight.astype(np.float32, copy=False), bias


# -- threads


@functools.cache
def _library() -> ThreadpoolController:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


@functools.cache
def _has_small_kernels() -> bool:
    return any(library.get("architecture") in _SMALL_KERNELS for library in _library().info())


class _OneThreadEach:
    """Matrix products take one thread each: several wait for each other, busily, longer than they calculate.

    That is a setting of the process. It holds from when the first user comes until the last one goes.
    """

    def __init__(self) -> None:
        self._lock, self._users = threading.Lock(), 0

    def __enter__(self) -> None:
        with self._lock:
            if not self._users:
                self._limit = _library().limit(limits=1)
                _let_others_change_it()
            self._users += 1

    def __exit__(self, *raised: object) -> None:
        with self._lock:
            self._users -= 1
            if not self._users:
                self._limit.restore_original_limits()
                _let_others_change_it()


def _let_others_change_it() -> None:
    """Since threadpoolctl 3.8, only the thread that set OpenBLAS's threads can change them, until it calls this."""
    from threadpoolctl import OpenBLASController

    getattr(OpenBLASController, "clear_controlling_thread", lambda: None)()


def threads() -> int:
    """How many threads this process may run side by side."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_one_thread_each, _processors = _OneThreadEach(), threading.BoundedSemaphore(threads())


def in_threads(run: Callable[[list[int]], None], batches: Sequence[list[int]]) -> None:
    """Each batch in one thread, and no more of all callers' at once than there are processors."""
    from concurrent.futures import ThreadPoolExecutor

    def one(batch: list[int]) -> None:
        with _processors:
            run(batch)

    workers = min(len(batches), threads())
    with _one_thread_each:
        if workers < 2:
            for batch in batches:
                one(batch)
            return
        with ThreadPoolExecutor(workers, "ccheck-embed") as pool:
            for _ in pool.map(one, batches):
                pass
