"""Opening the reranker of a recipe's stage, with the settings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import MissingExtra, NotFound, UsageError
from ..core.keys import is_yours, key_for
from ..core.memory import Memory
from ..core.settings import Settings
from ..core.stages import EnsembleStage, LateStage, LearnedStage, ListwiseStage, ModelStage, RerankerStage
from .ensemble import EnsembleReranker
from .types import AnyReranker, Reranker

if TYPE_CHECKING:
    from ..llm import LanguageModel
    from .remote import RemoteReranker

BEST_MODEL = "BAAI/bge-reranker-v2-gemma"
"""The choice of `auto` with a GPU: the best of the models that ccheck scores exactly and fast."""
AUTO = "auto"


def open_reranker(
    stage: RerankerStage,
    settings: Settings,
    language_model: Callable[[str | None], LanguageModel],
    notify: Callable[[str], None] = lambda message: None,
    memory: Memory | None = None,
) -> AnyReranker:
    """The reranker of a stage. `language_model` opens a language model by its name; `notify` is called with a few words
    before a model is loaded. A `memory` keeps the scores of models on this machine.

    Raises NotFound or MissingExtra for a model that is missing, with what to do; UsageError and InvalidData for one
    that can't be used.
    """
    if isinstance(stage, ListwiseStage):
        from .listwise import ListwiseReranker

        prompt = "paper-listwise" if stage.prompts == "paper" else "listwise"
        return ListwiseReranker(language_model(stage.llm), stage.window, stage.stride, stage.examples, prompt)
    if isinstance(stage, LearnedStage):
        from .learned import load_learned

        return load_learned(stage.model)
    if isinstance(stage, LateStage):
        return _open_late(stage, settings, notify, memory)
    if isinstance(stage, EnsembleStage):
        options = ModelStage(max_tokens=stage.max_tokens, long=stage.long)
        models = [_open(name, options, settings, notify, memory) for name in stage.models]
        return EnsembleReranker(models, stage.method, stage.k)
    return _open(stage.model, stage, settings, notify, memory)


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


def open_remote(
    url: str,
    settings: Settings,
    timeout: float,
    retry_seconds: float,
    notify: Callable[[str], None] = lambda message: None,
) -> RemoteReranker:
    """The reranker at a URL. It gets the user's key only if the user named that server for it. `notify` is called when
    ccheck has to wait for it."""
    from .remote import RemoteReranker

    key = key_for(settings, "rerank_api_key", url)
    reranker = RemoteReranker(url, api_key=key.value, timeout=timeout, retry_seconds=retry_seconds, notify=notify)
    if not is_yours(settings, "rerank_api_key", url):
        reranker.notice = f"claims and passages are sent to {reranker.name}, which was set by a recipe or ./ccheck.toml"
        reranker.notice += f"; {key.withheld}" if key.withheld else ""
    return reranker


def _open(
    name: str, stage: ModelStage, settings: Settings, notify: Callable[[str], None], memory: Memory | None
) -> Reranker:
    automatic = name == AUTO
    if automatic:
        name = choose_model(settings)
    if is_url(name):
        return open_remote(name, settings, settings.rerank_timeout, settings.rerank_retry_seconds, notify)
    if stage.trust_remote_code and not settings.trust_remote_code:
        raise UsageError(
            f"the recipe says that {name} needs its authors' Python code (trust_remote_code). Read that code, "
            "then allow it to run with --trust-remote-code (in Python, trust_remote_code=True), or choose another "
            "reranker with --rerank"
        )
    from ..core.models import find_model, require_models, slow_to_load

    require_models("reranking on this machine")
    try:
        if automatic:
            find_model(name)  # before the seconds that importing torch takes
        from .load import load_scorer
        from .local import LocalReranker

        scorer = load_scorer(
            name,
            device=settings.device,
            max_tokens=stage.max_tokens,
            long=stage.long,
            cutoff_layer=stage.cutoff_layer,
            prompt=stage.prompt,
            yes_token=stage.yes_token,
            dtype=stage.dtype,
            trust_remote_code=stage.trust_remote_code,
            on_load=lambda: notify(slow_to_load(name)),
        )
    except NotFound as error:
        if automatic:
            raise NotFound(
                f"{name} is not installed and could not be downloaded. Choose another reranker with --rerank or in "
                "the recipe: a model's name, a folder, a URL, late (which needs no reranking model), or none"
            ) from error
        if Path(name).exists():
            raise
        raise NotFound(
            f"{error}; or choose another reranker with --rerank, or --rerank none", model=error.model
        ) from error
    return _remembered(LocalReranker(scorer), stage, name, settings, memory)


def _open_late(stage: LateStage, settings: Settings, notify: Callable[[str], None], memory: Memory | None) -> Reranker:
    from ..encode.late import load_late_encoder
    from .late import LateReranker

    encoder = load_late_encoder(
        stage.model,
        documents=stage.documents,
        device=settings.device,
        max_tokens=stage.max_tokens,
        cache=settings.cache_dir,
        on_load=notify,
    )
    reranker = LateReranker(encoder, stage.model, stage.window, stage.idf)
    return _remembered(reranker, stage, stage.model, settings, memory, together=stage.idf)


def _remembered(
    reranker: Reranker,
    stage: ModelStage | LateStage,
    name: str,
    settings: Settings,
    memory: Memory | None,
    *,
    together: bool = False,
) -> Reranker:
    if memory is None:
        return reranker
    from ..core.models import find_model, fingerprint
    from .remembered import RememberedReranker

    options = stage.model_dump_json(exclude={"model", "depth", "alpha", "required"})
    identity = f"{fingerprint(find_model(name).path)} {settings.device} {options}"
    return RememberedReranker(reranker, memory, identity, together=together)
