"""Opening the reranker of a recipe's stage, with the settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import MissingExtra, NotFound
from ..core.keys import is_yours, key_for
from ..core.runtime import Runtime
from ..core.settings import Settings
from ..core.stages import EnsembleStage, LateStage, ListwiseStage, ModelStage, RerankerStage
from .several import EnsembleReranker, LocalReranker, OwnReranker, RememberedReranker, Score
from .types import Reranker

if TYPE_CHECKING:
    from .remote import RemoteReranker
    from .shared import SharedReranker

BEST_MODEL = "BAAI/bge-reranker-v2-gemma"
"""The choice of `auto` with a GPU: the best of the models that ccheck scores exactly and fast."""
AUTO = "auto"


def open_reranker(stage: RerankerStage, runtime: Runtime) -> Reranker:
    """The reranker of a stage. The memory keeps the scores of models on this machine.

    Raises NotFound or MissingExtra for a model that is missing, with what to do; UsageError and InvalidData for one
    that can't be used.
    """
    if isinstance(stage, ListwiseStage):  # the language model itself is opened once
        return _opened(stage, runtime)
    return runtime.once(*_key(stage, runtime), make=lambda: _opened(stage, runtime))


def bring(function: Score | Reranker, runtime: Runtime) -> ModelStage:
    """The stage of a program's own reranker, which `open_reranker` then finds in the runtime."""
    own = OwnReranker(function)
    stage = ModelStage(model=own.name, required=True)
    runtime.once(*_key(stage, runtime), make=lambda: own)
    return stage


def _key(stage: RerankerStage, runtime: Runtime) -> tuple[str | None, ...]:
    return "reranker", stage.model_dump_json(exclude={"depth", "required", "alpha"}), runtime.settings.rerank_url


def _opened(stage: RerankerStage, runtime: Runtime) -> Reranker:
    if isinstance(stage, ListwiseStage):
        from ..llm.model import open_llm
        from .listwise import ListwiseReranker

        return ListwiseReranker(open_llm(runtime, stage.llm), stage)
    if isinstance(stage, LateStage):
        from .late import LateReranker, load_late_encoder

        encoder = load_late_encoder(stage.model, runtime, documents=stage.documents, max_tokens=stage.max_tokens)
        return _remembered(LateReranker(encoder, stage.model, stage.window, stage.idf), stage, stage.model, runtime)
    if isinstance(stage, EnsembleStage):
        options = ModelStage(max_tokens=stage.max_tokens)
        models = [_open(name, options, runtime) for name in stage.models]
        return EnsembleReranker(models, stage.k)
    return _open(stage.model, stage, runtime)


def open_matcher(runtime: Runtime) -> Callable[[str, Sequence[str]], Sequence[float]]:
    """Returns the function that compares a claim's tokens with those of sentences. See `StaticEncoder`."""
    from ..encode.dense import DEFAULT_MODEL
    from .late import LateReranker, load_late_encoder

    def load() -> Callable[[str, Sequence[str]], Sequence[float]]:
        return LateReranker(load_late_encoder(DEFAULT_MODEL, runtime), DEFAULT_MODEL, window=0).values

    return runtime.once("matcher", make=load)


def choose_model(settings: Settings) -> str:
    """The model that `auto` chooses: the URL of the settings' server, or with a GPU the name of a model.

    Raises MissingExtra if no model can run, and NotFound without a GPU: a model small enough for a processor ranks
    worse than late interaction, which needs no reranking model.
    """
    if settings.rerank_url is not None:
        return settings.rerank_url
    from ..core.models import best_device, models_installed

    if not models_installed():
        raise MissingExtra("reranking on this machine", "models")
    if not (settings.device or best_device()).startswith("cuda"):
        raise NotFound(
            "auto chooses a reranking model only with a GPU or a reranking server (the setting rerank_url). Use "
            "--rerank late, or name a model"
        )
    return BEST_MODEL


def is_url(name: str) -> bool:
    """Whether the name of a reranker is the URL of a server."""
    return name.lower().startswith(("http://", "https://"))


def open_remote(urls: str, runtime: Runtime) -> RemoteReranker | SharedReranker:
    """The reranker at a URL, or at several with commas between them, which share the work."""
    several = [url.strip() for url in urls.split(",") if url.strip()]
    if len(several) == 1:
        return _open_server(urls, runtime, runtime.settings.rerank_retry_seconds)
    from ..core.http import Patience
    from .shared import SharedReranker

    patience = Patience(runtime.settings.rerank_retry_seconds, runtime.notify)
    return SharedReranker([_open_server(url, runtime, 0) for url in several], patience)


def _open_server(url: str, runtime: Runtime, retry_seconds: float) -> RemoteReranker:
    """The reranker at a URL. It gets the user's key only if the user named that server for it."""
    from .remote import RemoteReranker

    settings = runtime.settings
    key = key_for(settings, "rerank_api_key", url)
    reranker = RemoteReranker(
        url,
        api_key=key.value,
        timeout=settings.rerank_timeout,
        retry_seconds=retry_seconds,
        notify=runtime.notify,
    )
    if not is_yours(settings, "rerank_api_key", url):
        reranker.notice = f"claims and passages are sent to {reranker.name}, which was set by a recipe or ./ccheck.toml"
        reranker.notice += f"; {key.withheld}" if key.withheld else ""
    return reranker


def _open(name: str, stage: ModelStage, runtime: Runtime) -> Reranker:
    settings = runtime.settings
    automatic = name == AUTO
    if automatic:
        name = choose_model(settings)
    if is_url(name):
        return open_remote(name, runtime)
    from ..core.models import require_models

    require_models("reranking on this machine")
    try:
        if automatic:
            runtime.find(name)  # before the seconds that importing torch takes
        from .load import load_scorer

        scorer = load_scorer(name, runtime, stage)
    except NotFound as error:
        if Path(name).exists():
            raise
        said = f"{error}; or choose another reranker with --rerank, --rerank late or --rerank none"
        raise NotFound(said, model=error.model) from error
    return _remembered(LocalReranker(scorer), stage, name, runtime)


def _remembered(reranker: Reranker, stage: ModelStage | LateStage, name: str, runtime: Runtime) -> Reranker:
    if runtime.memory is None:
        return reranker
    from ..core.models import fingerprint

    options = stage.model_dump_json(exclude={"model", "depth", "alpha", "required"})
    identity = f"{fingerprint(runtime.find(name).path)} {runtime.device} {options}"
    together = isinstance(stage, LateStage) and stage.idf
    return RememberedReranker(reranker, runtime.memory, identity, together=together)
