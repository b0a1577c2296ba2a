"""The reranking server's application with its models loaded: what `ccheck serve rerank` serves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

from ...core.models import best_device
from ..load import batch_tokens_for, is_decoder, load_scorer
from .app import create_app
from .canary import Canary, check_scorer
from .config import Access, Limits
from .run import named_models

if TYPE_CHECKING:
    from fastapi import FastAPI


def load_app(
    models: Mapping[str, str],
    *,
    limits: Limits,
    access: Access,
    embedding_model: str | None = None,
    device: str | None = None,
    dtype: str | None = None,
    max_tokens: int | None = None,
    batch_tokens: int | None = None,
    long: Literal["cut", "windows"] = "cut",
    yes_token: str | None = None,
    prompt: str | None = None,
    trust_remote_code: bool = False,
    canary: Canary = "order",
    notify: Callable[[str], None] = lambda message: None,
) -> FastAPI:
    """Load rerankers by their aliases, check each with the canary, and make the application that serves them.

    `yes_token` and `prompt` apply to decoders only. A single model that is not a decoder refuses them. `notify` is told
    what is being loaded. Raises NotFound, UsageError, InvalidData or MissingExtra.
    """
    scorers = {}
    for name, where in models.items():
        for_decoder = len(models) == 1 or is_decoder(where)
        scorers[name] = load_scorer(
            where,
            device=device,
            max_tokens=max_tokens,
            long=long,
            yes_token=yes_token if for_decoder else None,
            prompt=prompt if for_decoder else None,
            trust_remote_code=trust_remote_code,
            dtype=dtype,
            batch_tokens=batch_tokens,
            on_load=lambda where=where: notify(f"loading {where}"),  # type: ignore[misc]
        )
        check_scorer(scorers[name], canary)
    embedder = None
    if embedding_model is not None:
        from ...encode.dense import load_embedder

        loaded = load_embedder(embedding_model, device, on_load=lambda: notify(f"loading {embedding_model}"))
        embedder = (next(iter(named_models([embedding_model]))), loaded)
    return create_app(
        scorers,
        embedder=embedder,
        limits=limits,
        access=access,
        batch_tokens=batch_tokens or batch_tokens_for(device or best_device()),
    )
