"""BERT-type embedding models run by numpy, with tokenizers and safetensors: no torch, which takes seconds to import.

The vectors are those of sentence-transformers in float32, to about 1e-6.
"""

from __future__ import annotations

import copy
import functools
import itertools
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..core.errors import InvalidData
from ..core.special_tokens import words_only
from .bert_layers import named, normalise, read_layer
from .blas import in_threads, one_thread_each

if TYPE_CHECKING:
    import numpy as np
    import tokenizers
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

TOKENS_AT_ONCE = 4096
"""How many tokens go through the model together, of one or more texts."""
_POOLING = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
}
_WEIGHTS = "model.safetensors"
_USUAL: dict[str, Any] = {
    "do_lower_case": False,
    "transformer_task": "feature-extraction",
    "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
    "module_output_name": "token_embeddings",
}
"""sentence-transformers' usual settings of a transformer. With any other value, numpy can't run the model."""


@dataclass(frozen=True, slots=True)
class BertFolder:
    """The facts that a folder states about its embedding model. `max_tokens` counts the two special tokens."""

    path: Path
    layers: int
    heads: int
    dimensions: int
    epsilon: float
    max_tokens: int
    pooling: Literal["mean", "cls", "max"]


def read_bert_folder(path: Path) -> BertFolder | None:
    """The facts that `NumpyBert` needs about a sentence-transformers folder; None if it can't run the model.

    It can run a BERT in float32 with the usual activation and positions, whose tokens are pooled in one way. Prompts,
    further modules and other settings are left to sentence-transformers.
    """
    try:
        kinds = [(str(module["type"]).rpartition(".")[2], path / module["path"]) for module in _json(path, "modules")]
        if [kind for kind, _ in kinds] not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
            return None
        folder, pooling = kinds[0][1], _pooling(_json(kinds[1][1], "config"))
        config, tokenizer = _json(folder, "config"), _json(folder, "tokenizer_config")
        settings = _json(folder, "sentence_bert_config")
        window = settings.pop("max_seq_length", None) or tokenizer["model_max_length"]
        runs = (
            config["model_type"] == "bert"
            and config["hidden_act"] == "gelu"
            and config.get("position_embedding_type", "absolute") == "absolute"
            and not config.get("is_decoder")
            and all(_USUAL[name] == value for name, value in settings.items())
            and not _has_prompts(path)
            and 2 < window <= config["max_position_embeddings"]
            and _has_float32(folder / _WEIGHTS)
            and _plain_tokenizer(folder / "tokenizer.json", tokenizer)
        )
        if not runs or pooling is None:
            return None
        layers, heads, dimensions = (
            int(config[name]) for name in ("num_hidden_layers", "num_attention_heads", "hidden_size")
        )
        return BertFolder(folder, layers, heads, dimensions, float(config["layer_norm_eps"]), int(window), pooling)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


class NumpyBert:
    """A model that is loaded; any number of threads may use it."""

    def __init__(self, folder: BertFolder) -> None:
        """Raises InvalidData for a folder that is broken."""
        from safetensors import SafetensorError

        self._folder = folder
        try:
            weights = _read_weights(folder)
            self._words = weights["embeddings.word_embeddings.weight"]
            self._layers = _layers(folder, weights)
            self._places = weights["embeddings.position_embeddings.weight"]
            self._types = weights["embeddings.token_type_embeddings.weight"]
            self._norm = named(weights, "embeddings.LayerNorm")
            self._tokenizer = _open_tokenizer(folder.path, len(self._words))
            if self._words.shape[1] != folder.dimensions or len(self._places) < folder.max_tokens:
                raise ValueError("config.json does not describe its weights")
            # Layers that do not fit each other show at once.
            in_threads(self._try, [[0, 0]])
        except (OSError, SafetensorError, LookupError, ValueError) as error:
            raise InvalidData(f"{folder.path} can't be loaded as an embedding model: {error}") from error

    def changed(self, change: Callable[[dict[str, Floats]], None]) -> NumpyBert:
        """The model with other weights: `change` gets those of its layers by their names, and may replace them.

        Raises ValueError if these don't fit each other, and what `change` raises.
        """
        weights = _read_weights(self._folder)
        with one_thread_each():
            change(weights)
        made = copy.copy(self)
        made._layers = _layers(self._folder, weights)
        in_threads(made._try, [[0, 0]])
        return made

    def _read(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, special ones at its ends, cut at the model's window."""
        most = self._folder.max_tokens
        read = [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]
        return [ids if len(ids) <= most else [*ids[: most - 1], ids[-1]] for ids in read]

    def _try(self, ids: list[int]) -> None:
        self._forward([ids])

    def encode(self, texts: Sequence[str]) -> Floats:
        """The pooled vectors, not normalised, shape [texts, dimensions]. A text is cut at the model's window."""
        import numpy as np

        answer = np.empty((len(texts), self._folder.dimensions), np.float32)
        ids = self._read(texts)

        def fill(rows: list[int]) -> None:
            answer[rows] = self._forward([ids[row] for row in rows])

        in_threads(fill, list(_batches([len(one) for one in ids])))
        return answer

    def encode_pairs(self, pairs: Sequence[tuple[str, str]], most: int) -> Floats:
        """Two texts are read as one: the vector of the first token and the mean of all, shape [pairs, 2 * dimensions].

        Of `most` tokens, with the three special ones, the first text gets up to a half.
        """
        import numpy as np

        answer = np.empty((len(pairs), 2 * self._folder.dimensions), np.float32)
        first, last = self._tokenizer.encode("").ids
        one, other = (self.token_ids([pair[side] for pair in pairs]) for side in (0, 1))
        ids, kinds = [], []
        for mine, given in zip(one, other, strict=True):
            mine = mine[: (most - 3) // 2]
            given = given[: most - 3 - len(mine)]
            ids.append([first, *mine, last, *given, last])
            kinds.append([0] * (len(mine) + 2) + [1] * (len(given) + 1))

        def fill(rows: list[int]) -> None:
            states, spans = self._states([ids[row] for row in rows], [kinds[row] for row in rows])
            for row, span in zip(rows, spans, strict=True):
                answer[row] = np.concatenate([states[span][0], states[span].mean(0)])

        in_threads(fill, list(_batches([len(one) for one in ids])))
        return answer

    def encode_tokens(self, texts: Sequence[str]) -> list[Floats]:
        """The vectors of each text's tokens, not normalised, without the special ones at its ends: each of shape
        [tokens, dimensions]. There is one for each of `token_ids` that fits the model's window."""
        ids = self._read(texts)
        answer: list[Floats] = [self._words[:0]] * len(texts)

        def fill(rows: list[int]) -> None:
            states, spans = self._states([ids[row] for row in rows])
            for row, span in zip(rows, spans, strict=True):
                answer[row] = states[span][1:-1].copy()

        in_threads(fill, list(_batches([len(one) for one in ids])))
        return answer

    def encode_alone(self, ids: Sequence[int]) -> Floats:
        """The vector of each of these tokens as a text of its own, shape [ids, dimensions]."""
        import numpy as np

        first, last = self._tokenizer.encode("").ids
        rows = len(ids)
        answer = np.empty((rows, self._folder.dimensions), np.float32)

        def fill(some: list[int]) -> None:
            states, _ = self._states([(first, ids[row], last) for row in some])
            answer[some] = states[1::3]

        in_threads(fill, [list(range(at, min(at + 1024, rows))) for at in range(0, rows, 1024)])
        return answer

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text's tokens, special ones left out; nothing is cut."""
        return [one.ids for one in self._tokenizer.encode_batch(list(texts), add_special_tokens=False)]

    def count_tokens(self, texts: Sequence[str]) -> list[int]:
        """The number of tokens of each text, special ones left out; nothing is cut."""
        return [len(ids) for ids in self.token_ids(texts)]

    @property
    def vocabulary(self) -> int:
        """How many tokens the model has vectors for."""
        return len(self._words)

    @property
    def unknown(self) -> int | None:
        """The id of the token for what the tokenizer does not know."""
        made: int | None = self._tokenizer.token_to_id(self._tokenizer.model.unk_token)
        return made

    def _forward(self, ids: Sequence[Sequence[int]]) -> Floats:
        """The pooled vectors of texts, as ids."""
        import numpy as np

        states, spans = self._states(ids)
        return np.stack([self._pool(states[span]) for span in spans])

    def _states(
        self, ids: Sequence[Sequence[int]], kinds: Sequence[Sequence[int]] | None = None
    ) -> tuple[Floats, list[slice]]:
        """The last layer's states of all tokens, and where each text's are. `kinds` tells a first from a second text.

        The texts lie one behind the other, so that nothing is padded; only attention takes them one by one.
        """
        import numpy as np

        lengths = [len(one) for one in ids]
        ends = list(itertools.accumulate(lengths))
        spans = [slice(end - length, end) for end, length in zip(ends, lengths, strict=True)]
        places = np.concatenate([np.arange(length) for length in lengths])
        states = self._words[np.concatenate(ids)] + self._places[places]
        states += self._types[0] if kinds is None else self._types[np.concatenate(kinds)]
        normalise(states, self._norm, self._folder.epsilon)
        for layer in self._layers:
            states = layer(states, spans)
        return states, spans

    def _pool(self, states: Floats) -> Floats:
        pooled: Floats = states[0]
        if self._folder.pooling != "cls":
            pooled = states.mean(0) if self._folder.pooling == "mean" else states.max(0)
        return pooled


@functools.lru_cache(maxsize=1)
def load_bert(folder: BertFolder) -> NumpyBert:
    """The model of a folder. The last one is kept: ranking and judging mostly use the same. Raises InvalidData."""
    return NumpyBert(folder)


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """The numbers of texts that go through the model together, those of like length next to each other."""
    batch: list[int] = []
    size = 0
    for number in sorted(range(len(lengths)), key=lambda number: -lengths[number]):
        if batch and size + lengths[number] > TOKENS_AT_ONCE:
            yield batch
            batch, size = [], 0
        batch.append(number)
        size += lengths[number]
    if batch:
        yield batch


# -- folders


def _layers(folder: BertFolder, weights: dict[str, Floats]) -> list[Callable[[Floats, list[slice]], Floats]]:
    return [read_layer(weights, number, folder.heads, folder.epsilon) for number in range(folder.layers)]


def _read_weights(folder: BertFolder) -> dict[str, Floats]:
    """All tensors, which must be in float32, read only and from the file's pages: what is not looked at is not read. A
    claim has few of the vocabulary's words, which are half of a small model. Raises SafetensorError for a broken file.
    """
    import numpy as np
    from safetensors import safe_open

    file = folder.path / _WEIGHTS
    with safe_open(file, framework="numpy"):
        pass  # from here on, the header is known to be true
    header, start = _header(file)
    stored = np.asarray(np.memmap(file, np.uint8, "r", start))
    return {
        name: stored[slice(*tensor["data_offsets"])].view(np.float32).reshape(tensor["shape"])
        for name, tensor in header.items()
    }


def _pooling(config: dict[str, Any]) -> Literal["mean", "cls", "max"] | None:
    """How the vectors of tokens become one; None for several ways together, and for others."""
    modes = config.get("pooling_mode")
    if modes is None:
        modes = [
            _POOLING.get(name, name) for name, on in config.items() if name.startswith("pooling_mode_") and on is True
        ]
    modes = [modes] if isinstance(modes, str) else modes
    return modes[0] if len(modes) == 1 and modes[0] in _POOLING.values() else None


def _has_float32(file: Path) -> bool:
    """Whether all weights are in float32, by the file's header."""
    header, _ = _header(file)
    return "encoder.layer.0.attention.self.query.weight" in header and all(
        tensor["dtype"] == "F32" for tensor in header.values()
    )


def _header(file: Path) -> tuple[dict[str, Any], int]:
    """The tensors in a safetensors file's header, without those that the model does not use, and where their bytes
    begin. The file starts with 8 bytes with the header's length, then JSON. Raises ValueError without a header."""
    with file.open("rb") as stream:
        size = int.from_bytes(stream.read(8), "little")
        if size > os.fstat(stream.fileno()).st_size:
            raise ValueError(f"{file} has no header")
        header = json.loads(stream.read(size))
    return {name: header[name] for name in header.keys() - {"__metadata__", "embeddings.position_ids"}}, 8 + size


def _has_prompts(path: Path) -> bool:
    """Whether the model puts words of its own before texts."""
    file = path / "config_sentence_transformers.json"
    settings = json.loads(file.read_bytes()) if file.is_file() else {}
    return bool(settings.get("default_prompt_name")) or any((settings.get("prompts") or {}).values())


def _plain_tokenizer(file: Path, config: dict[str, Any]) -> bool:
    """Whether the tokenizer does what its own file says, whatever its configuration says beside it."""
    kind, normalizer, _ = _tokenizer_facts(file)
    return bool(
        kind == "WordPiece"
        and normalizer["type"] == "BertNormalizer"
        and config.get("do_lower_case", True) == normalizer["lowercase"]
        and config.get("strip_accents") == normalizer["strip_accents"]
        and config.get("tokenize_chinese_chars", True) == normalizer["handle_chinese_chars"]
    )


def _tokenizer_facts(file: Path) -> tuple[str, dict[str, Any], int]:
    """The types of a tokenizer's model and of its first normaliser, and its tokens' highest id."""
    status = file.stat()
    return _read_tokenizer(file, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


@functools.lru_cache(maxsize=8)
def _read_tokenizer(file: Path, *state: int) -> tuple[str, dict[str, Any], int]:
    """`state` changes with the file, whose vocabulary takes longer to read than the rest of a folder."""
    tokenizer = json.loads(file.read_bytes())
    normalizer = tokenizer["normalizer"]
    if normalizer["type"] == "Sequence":
        normalizer = normalizer["normalizers"][0]
    words = tokenizer["model"]["vocab"]
    ids = list(words.values()) if isinstance(words, dict) else list(range(len(words)))
    ids += [token["id"] for token in tokenizer.get("added_tokens") or ()]
    return tokenizer["model"]["type"], normalizer, max(ids, default=0)


def _open_tokenizer(folder: Path, words: int) -> tokenizers.Tokenizer:
    """Raises ValueError for a tokenizer that is broken, or knows more words than the model."""
    import tokenizers

    file = folder / "tokenizer.json"
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises nothing narrower
        raise ValueError(f"tokenizer.json: {error}") from error
    if _tokenizer_facts(file)[2] >= words:
        raise ValueError(f"the tokenizer has more than the model's {words:,} words")
    tokenizer.no_padding()
    tokenizer.no_truncation()
    words_only(tokenizer)
    return tokenizer


def _json(folder: Path, name: str) -> Any:
    return json.loads((folder / f"{name}.json").read_bytes())
