"""The models and connections of a run, each opened once: encoders, rerankers, judges, language models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ..core.closing import Closing
from ..core.errors import MissingExtra, NotFound
from ..core.memory import Memory
from ..core.models import slow_to_load
from ..core.settings import Settings
from ..core.stages import RerankerStage, VerdictStage
from ..rerank.open import open_reranker
from ..verdict.open import open_method

if TYPE_CHECKING:
    from ..core.layout import Embedding, SparseField
    from ..core.types import Vector
    from ..encode.clip import Clip
    from ..encode.dense import Embedder
    from ..encode.sparse import SparseEmbedder
    from ..llm import Budget, LanguageModel
    from ..rerank import AnyReranker
    from ..verdict import StanceMethod
    from ..verdict.evidence import Rerank

T = TypeVar("T")


class Resources(Closing):
    """Models of this machine and language models of the settings' server.

    Several checkers may share one, so that comparing recipes loads nothing twice. All language models of it spend from
    one budget. `notify` is told, in a few words, before something is loaded. Close it when all are done.
    """

    def __init__(
        self, settings: Settings, memory: Memory | None = None, notify: Callable[[str], None] = lambda message: None
    ) -> None:
        self.settings, self.memory = settings, memory
        self._notify = notify
        self._things: dict[tuple[str, ...], object] = {}
        self._llms: dict[str, LanguageModel] = {}
        self._budget: Budget | None = None

    def embedder(self, name: str, known: Embedding | None = None) -> Embedder:
        """See `load_embedder`."""
        from ..encode.dense import load_embedder

        load = lambda: load_embedder(name, self.settings.device, known, lambda: self._notify(slow_to_load(name)))  # noqa: E731
        return self._once(("embedder", name), load)

    def sparse_embedder(self, name: str, known: SparseField | None = None) -> SparseEmbedder:
        """See `load_sparse_embedder`."""
        from ..encode.sparse import load_sparse_embedder

        load = lambda: load_sparse_embedder(name, self.settings.device, known, lambda: self._notify(slow_to_load(name)))  # noqa: E731
        return self._once(("sparse", name), load)

    def clip(self, name: str) -> Clip:
        """See `load_clip`."""
        from ..encode.clip import load_clip

        return self._once(("clip", name), lambda: load_clip(name, self.settings.device))

    def adapter(self, folder: Path, fingerprint: str) -> Callable[[Vector], Vector]:
        """See `load_adapter`."""
        from ..encode.adapter import load_adapter

        return self._once(("adapter", str(folder), fingerprint), lambda: load_adapter(folder, fingerprint))

    def reranker(self, stage: RerankerStage) -> AnyReranker:
        """See `open_reranker`."""
        key = stage.model_dump_json(exclude={"depth", "required", "alpha"})
        return self._once(
            ("reranker", key),
            lambda: open_reranker(stage, self.settings, self.language_model, self._notify, self.memory),
        )

    def matcher(self) -> Rerank | None:
        """Returns the function that compares a claim's tokens with those of sentences; None without its model.

        See `StaticEncoder`.
        """
        from ..encode.dense import DEFAULT_MODEL
        from ..encode.late import load_late_encoder
        from ..rerank.late import LateReranker

        def load() -> Rerank | None:
            try:
                encoder = load_late_encoder(DEFAULT_MODEL, cache=self.settings.cache_dir, allow_download=False)
            except (NotFound, MissingExtra):
                return None
            late = LateReranker(encoder, DEFAULT_MODEL, window=0)
            return lambda claim, sentences: late(claim, sentences).values

        return self._once(("matcher",), load)

    def stance_method(self, stage: VerdictStage, embed: Callable[[Sequence[str]], Vector] | None) -> StanceMethod:
        """See `open_method`."""
        key = stage.model_dump_json(exclude={"documents", "conclude"})
        return self._once(
            ("stances", key), lambda: open_method(stage, self.settings, self.language_model, self._notify, embed)
        )

    def language_model(self, name: str | None) -> LanguageModel:
        """The language model of that name, else of the settings."""
        from ..llm import open_budget, open_llm

        self._budget = self._budget or open_budget(self.settings)
        name = name or self.settings.llm_model or ""
        if name not in self._llms:
            self._llms[name] = open_llm(self.settings, name, budget=self._budget, notify=self._notify)
        return self._llms[name]

    @property
    def notices(self) -> list[str]:
        """The notices about connections to language models that the user should know."""
        return [llm.notice for llm in self._llms.values() if llm.notice]

    def close(self) -> None:
        for llm in self._llms.values():
            llm.close()
        self._llms.clear()
        self._things.clear()

    def _once(self, key: tuple[str, ...], make: Callable[[], T]) -> T:
        if key not in self._things:
            self._things[key] = make()
        return self._things[key]  # type: ignore[return-value]
