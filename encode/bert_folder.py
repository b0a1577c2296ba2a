"""Folders of BERT-type embedding models that numpy can run: what they say, their weights and their tokenizers."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import orjson
import tokenizers
from numpy.typing import NDArray

from ..core.special_tokens import read_tokenizer, words_only

Floats: TypeAlias = NDArray[np.float32]
_POOLING = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
}
_WEIGHTS = "model.safetensors"
_TYPES = {"F32": np.float32, "I8": np.int8}
WORDS = "embeddings.word_embeddings.weight"
SCALE = ".scale"
"""What the name of a packed matrix's scale ends with."""
_USUAL: dict[str, Any] = {
    "transformer_task": "feature-extraction",
    "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
    "module_output_name": "token_embeddings",
}
"""sentence-transformers' usual settings of a transformer. With any other value, numpy can't run the model."""


@dataclass(frozen=True, slots=True)
class BertFolder:
    """The facts that a folder states about its embedding model. `max_tokens` counts the two special tokens. `packed`:
    matrices W are in int8, and W.scale has a number for each row, which only ccheck reads so."""

    path: Path
    layers: int
    heads: int
    dimensions: int
    epsilon: float
    max_tokens: int
    pooling: Literal["mean", "cls", "max"]
    packed: bool = False


def read_bert_folder(path: Path) -> BertFolder | None:
    """The facts that `NumpyBert` needs about a sentence-transformers folder; None if it can't run the model.

    It can run a BERT in float32, or packed, with the usual activation and positions, whose tokens are pooled in one
    way. Prompts, further modules and other settings are left to sentence-transformers.
    """
    try:
        kinds = [(str(module["type"]).rpartition(".")[2], path / module["path"]) for module in _json(path, "modules")]
        if [kind for kind, _ in kinds] not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
            return None
        folder, pooling = kinds[0][1], _pooling(_json(kinds[1][1], "config"))
        config, tokenizer = _json(folder, "config"), _json(folder, "tokenizer_config")
        settings = _json(folder, "sentence_bert_config")
        window = settings.pop("max_seq_length", None) or tokenizer["model_max_length"]
        lowers = settings.pop("do_lower_case", False)  # adds nothing to a tokenizer that does it already
        runs = (
            config["model_type"] == "bert"
            and config["hidden_act"] == "gelu"
            and config.get("position_embedding_type", "absolute") == "absolute"
            and not config.get("is_decoder")
            and all(_USUAL[name] == value for name, value in settings.items())
            and (not lowers or tokenizer.get("do_lower_case", True))
            and not _has_prompts(path)
            and 2 < window <= config["max_position_embeddings"]
            and (stored := _stored(folder / _WEIGHTS)) is not None
            and _plain_tokenizer(folder / "tokenizer.json", tokenizer)
        )
        if not runs or pooling is None:
            return None
        layers, heads, dimensions = (
            int(config[name]) for name in ("num_hidden_layers", "num_attention_heads", "hidden_size")
        )
        epsilon = float(config["layer_norm_eps"])
        return BertFolder(folder, layers, heads, dimensions, epsilon, int(window), pooling, stored == "packed")
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def read_stored(folder: BertFolder) -> dict[str, NDArray[Any]]:
    """All tensors as the file has them, read only and from the file's pages: what is not looked at is not read. Raises
    SafetensorError for a broken file.
    """
    from safetensors import safe_open

    file = folder.path / _WEIGHTS
    with safe_open(file, framework="numpy"):
        pass  # from here on, the header is known to be true
    header, start = _header(file)
    stored = np.asarray(np.memmap(file, np.uint8, "r", start))
    return {
        name: stored[slice(*tensor["data_offsets"])].view(_TYPES[tensor["dtype"]]).reshape(tensor["shape"])
        for name, tensor in header.items()
    }


def read_weights(folder: BertFolder) -> dict[str, Floats]:
    """All tensors in float32; those that are stored so are read only. Raises SafetensorError for a broken file."""
    return in_full(read_stored(folder))


def in_full(stored: Mapping[str, NDArray[Any]]) -> dict[str, Floats]:
    """Tensors in float32, packed or not. Raises KeyError if a matrix in int8 has no scale."""
    made = {}
    for name, values in stored.items():
        if not name.endswith(SCALE):
            made[name] = values.astype(np.float32, copy=False)
            if values.dtype == np.int8:
                made[name] *= stored[name + SCALE].astype(np.float32, copy=False)[:, None]
    return made


def in_int8(matrix: Floats) -> tuple[NDArray[np.int8], Floats]:
    """A matrix packed, and its rows' scales: their product is the matrix, to a 254th of each row's largest value.

    Shapes: [rows, columns], [rows].
    """
    scales = np.maximum(np.abs(matrix).max(1), np.finfo(np.float32).tiny) / np.float32(127)
    return np.round(matrix / scales[:, None]).astype(np.int8), scales.astype(np.float32)


@contextlib.contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """A folder with the model as others load it, while the context lasts: a copy if it is packed."""
    from safetensors.numpy import save_file

    folder = read_bert_folder(path)
    if folder is None or not folder.packed:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="ccheck-") as made:
        copy = Path(made, "model")
        shutil.copytree(folder.path, copy, ignore=shutil.ignore_patterns(_WEIGHTS))
        save_file(read_weights(folder), copy / _WEIGHTS, {"format": "pt"})
        yield copy


def _pooling(config: dict[str, Any]) -> Literal["mean", "cls", "max"] | None:
    """How the vectors of tokens become one; None for several ways together, and for others."""
    modes = config.get("pooling_mode")
    if modes is None:
        modes = [
            _POOLING.get(name, name) for name, on in config.items() if name.startswith("pooling_mode_") and on is True
        ]
    modes = [modes] if isinstance(modes, str) else modes
    return modes[0] if len(modes) == 1 and modes[0] in _POOLING.values() else None


def _stored(file: Path) -> Literal["plain", "packed"] | None:
    """How all weights are stored, by the file's header; None for a way that ccheck does not read."""
    header, _ = _header(file)
    found = {tensor["dtype"] for tensor in header.values()}
    if "encoder.layer.0.attention.self.query.weight" not in header or not found <= _TYPES.keys():
        return None
    return "packed" if "I8" in found else "plain"


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
    tokenizer = orjson.loads(file.read_bytes())
    normalizer = tokenizer["normalizer"]
    if normalizer["type"] == "Sequence":
        normalizer = normalizer["normalizers"][0]
    words = tokenizer["model"]["vocab"]
    ids = list(words.values()) if isinstance(words, dict) else list(range(len(words)))
    ids += [token["id"] for token in tokenizer.get("added_tokens") or ()]
    return tokenizer["model"]["type"], normalizer, max(ids, default=0)


def open_tokenizer(folder: Path, words: int) -> tokenizers.Tokenizer:
    """Raises InvalidData for a tokenizer that is broken, ValueError if it knows more words than the model."""
    file = folder / "tokenizer.json"
    tokenizer = read_tokenizer(file)
    if _tokenizer_facts(file)[2] >= words:
        raise ValueError(f"the tokenizer has more than the model's {words:,} words")
    words_only(tokenizer)
    return tokenizer


def _json(folder: Path, name: str) -> Any:
    return json.loads((folder / f"{name}.json").read_bytes())
