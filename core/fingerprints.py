"""Which weights a model's folder holds: a hash of everything that changes what the model makes of a text."""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from cachetools import LRUCache, cached

from .cache import Cache
from .errors import InvalidData, NotFound

_CONFIGURATION = ("*config*.json", "model.json", "modules.json", "tokenizer.json", "idf.json", "special_tokens*.json")
_VOCABULARIES = ("vocab.json", "added_tokens.json", "*.txt", "*.model")
_SAYS_NOTHING = {"_name_or_path", "name_or_path", "transformers_version", "__version__", "model_card_data"}
"""Keys of configurations that differ between copies of the same model."""
_NO_PART = {"data_config.json", "generation_config.json", "requirements.txt", "README.txt", "LICENSE.txt"}
_OTHER_FORMATS = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt", "*.h5", "*.msgpack")
_CACHE_BYTES = 16 << 20
_SETTLED_NS = 2_000_000_000
"""A file that changed less than this ago could change again within one tick of the file system's clock."""


def fingerprint(path: Path) -> str:
    """Identifies a model's weights wherever they are: SHA-256 over all safetensors files, and over the configuration
    and vocabulary of the model, its tokenizer and its modules, however their JSON is written.

    Raises NotFound without safetensors weights, and as `check_modules`.
    """
    weights = sorted(path.rglob("*.safetensors"))
    if not weights:
        raise without_safetensors(path)
    parts = [file for folder in [path, *check_modules(path)] for file in _parts(folder)]

    def make() -> bytes:
        digest = hashlib.sha256()
        for file in parts:
            _add(digest, file.relative_to(path), _content(file))
        for file in weights:
            _add(digest, file.relative_to(path), file_hash(file).encode())
        return digest.digest()

    # Reading a tokenizer and writing it again takes longer than the rest of a small model's opening.
    return _remembered("fingerprint", [*parts, *weights], make).hex()


def without_safetensors(model: str | Path) -> NotFound:
    """The error for a model, by its name or folder, whose weights are in another format or missing."""
    said = f"{model} has no safetensors weights, and ccheck loads no other format"
    convert = f"If it has weights that torch saved, convert them once: ccheck convert {model} FOLDER"
    return NotFound(f"{said}. {convert}", model=str(model))


def check_modules(path: Path) -> list[Path]:
    """The folders of the modules that sentence-transformers puts together, other than `path` itself.

    Raises InvalidData if one lies outside of the folder, or has weights that are not safetensors: loading such runs
    what their author wrote.
    """
    whole, file = path.resolve(), path / "modules.json"
    try:
        named = [path / str(module["path"]) for module in json.loads(file.read_bytes())] if file.is_file() else []
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidData(f"{file} is not a list of modules: {error}") from error
    # The transformer itself usually lies in the folder, and its loading says what it lacks.
    folders = [folder for folder in dict.fromkeys(named) if folder.resolve() != whole]
    for folder in folders:
        if not folder.resolve().is_relative_to(whole):
            raise InvalidData(f"{file} names a module outside of its folder: {folder}")
        others = [file for pattern in _OTHER_FORMATS for file in folder.glob(pattern)]
        if others and not any(folder.glob("*.safetensors")):
            raise InvalidData(
                f"{others[0]} has weights in a format that can run code. ccheck loads only safetensors: convert "
                "the weights, or choose another model"
            )
    return [folder for folder in folders if folder.is_dir()]


def file_hash(file: Path) -> str:
    """SHA-256 of a file, in hexadecimal. It is read again when its size, times or inode have changed."""

    def make() -> bytes:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").digest()

    return _remembered("", [file], make).hex()


def _remembered(what: str, files: Sequence[Path], make: Callable[[], bytes]) -> bytes:
    """Returns the SHA-256 that `make` computes for files, from the cache unless one of them has changed since."""
    before = [_state(file) for file in files]
    named = [(str(file.absolute()), str(file.resolve()), state) for file, state in zip(files, before, strict=True)]
    key = hashlib.sha256(repr((what, named)).encode("utf-8", "surrogatepass")).digest()
    cache = _hashes(os.environ.get("CCHECK_CACHE_DIR"), os.getpid())
    known = cache.get([key]).get(key)
    if known is not None and len(known) == hashlib.sha256().digest_size:
        return known
    made = make()
    latest = max(max(changed, modified) for changed, modified, *_ in before)
    if time.time_ns() - latest > _SETTLED_NS and [_state(file) for file in files] == before:
        cache.put({key: made})
    return made


def _state(file: Path) -> tuple[int, int, int, int, int]:
    """Shows whether a file has changed: the time of the last change of any kind is one that nobody can set."""
    status = file.stat()
    return status.st_ctime_ns, status.st_mtime_ns, status.st_size, status.st_ino, status.st_dev


@cached(LRUCache(1), condition=threading.Condition())  # SQLite can refuse two threads that make one file together
def _hashes(folder: str | None, process: int) -> Cache:
    """`process`: a connection is not taken along into a fork."""
    import platformdirs

    path = Path(folder) if folder else platformdirs.user_cache_path("ccheck")
    return Cache(path / "hashes.sqlite", _CACHE_BYTES, "the cache of models' hashes")


@atexit.register
def _close() -> None:
    for cache in (_hashes.cache or {}).values():
        cache.close()


def _parts(folder: Path) -> list[Path]:
    """The files besides the weights that change what a model makes of a text."""
    found = {file for pattern in (*_CONFIGURATION, *_VOCABULARIES) for file in folder.glob(pattern)}
    return sorted(file for file in found if file.is_file() and file.name not in _NO_PART)


def _content(file: Path) -> bytes:
    data = file.read_bytes()
    if file.suffix != ".json":
        return data
    try:
        value = json.loads(data)
        if isinstance(value, dict):
            value = {key: inner for key, inner in value.items() if key not in _SAYS_NOTHING}
        return json.dumps(value, sort_keys=True).encode()
    except (ValueError, RecursionError):
        return data


def _add(digest: Any, name: Path, content: bytes) -> None:
    for part in (name.as_posix().encode("utf-8", "surrogatepass"), content):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
