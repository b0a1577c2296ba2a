"""The reranking server's application with its models loaded: what `ccheck serve rerank` serves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...core.models import best_device
from ...core.runtime import Runtime
from ...core.stages import ModelStage
from ..load import batch_tokens_for, is_decoder, load_scorer
from .app import create_app
from .canary import Canary, check_scorer
from .config import Access, Limits
from .run import named_models

if TYPE_CHECKING:
    from fastapi import FastAPI


def load_app(
    models: Mapping[str, str],
    runtime: Runtime,
    options: ModelStage,
    *,
    limits: Limits,
    access: Access,
    embedding_model: str | None = None,
    batch_tokens: int | None = None,
    canary: Canary = "order",
) -> FastAPI:
    """Load rerankers by their aliases, check each with the canary, and make the application that serves them.

    The `options` `yes_token` and `prompt` apply to decoders only. A single model that is not a decoder refuses them.
    Raises NotFound, UsageError, InvalidData or MissingExtra.
    """
    scorers = {}
    for name, where in models.items():
        own = options
        if len(models) > 1 and not is_decoder(where):
            own = options.model_copy(update={"yes_token": None, "prompt": None})
        scorers[name] = load_scorer(where, runtime, own, batch_tokens)
        check_scorer(scorers[name], canary)
    embedder = None
    if embedding_model is not None:
        from ...encode.dense import load_embedder

        loaded = load_embedder(embedding_model, runtime)
        embedder = (next(iter(named_models([embedding_model]))), loaded)
    return create_app(
        scorers,
        embedder=embedder,
        limits=limits,
        access=access,
        batch_tokens=batch_tokens or batch_tokens_for(runtime.device or best_device()),
    )
