"""`ccheck serve`: models over HTTP."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

import click

from ..core.redaction import keep_secret
from . import opt
from .common import notice

KEY = "CCHECK_SERVE_API_KEY"
MODEL = ("dtype", "max_tokens", "yes_token", "prompt", "trust_remote_code")
"""Options that are keys of a recipe's reranker, too."""


@click.group()
def serve() -> None:
    """Serve models over HTTP.

    \b
    ccheck serve rerank --model BAAI/bge-reranker-v2-m3
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The model to serve, how, and within what limits."""

    model: str = opt.option(
        "Reranker to serve: a name or a folder; ALIAS=NAME serves it under another name.",
        "NAME|FOLDER",
        heading=opt.EVERYDAY,
        required=True,
    )
    device: str | None = opt.option("Device that the model runs on: cpu, cuda or mps. By default the fastest.", "NAME")
    host: str = opt.option("Address to listen on.", "ADDRESS", default="127.0.0.1")
    port: int = opt.option("Port to listen on; 0 picks a free one.", least=0, most=65_535, default=8080)
    allow_host: tuple[str, ...] = opt.option(
        "Host name that clients may use for this server, such as rerank.example.org. Without a key, requests for names "
        "other than localhost and --host get 421, to prevent DNS rebinding. Repeatable. In the environment, separate "
        "them with spaces.",
        "NAME",
    )
    dtype: Literal["float32", "bfloat16", "float16"] | None = opt.option(
        "Number format of the model. By default bfloat16 on a GPU that supports it, else float32.",
        heading=opt.ADVANCED,
    )
    max_tokens: int | None = opt.option(
        "Longest pair of query and text, in tokens. By default the model's limit, at most 512.", least=32, most=131_072
    )
    yes_token: str | None = opt.option("For an unknown decoder: the token whose logit is the score.", "TOKEN")
    prompt: str | None = opt.option("For an unknown decoder: the prompt after query and text.", "TEXT")
    queue: int = opt.option("Largest number of requests at once. Further ones get 429.", least=1, default=256)
    timeout: float = opt.option(
        "Longest time for a request, in seconds. After that it gets 504.", "S", least=0.1, default=60.0
    )
    batch_tokens: int | None = opt.option("Largest batch, in tokens. By default 4096, or 16384 on a GPU.", least=32)
    connections: int = opt.option(
        "Largest number of open connections. Further ones get 503 and are closed.", least=1, default=512
    )
    head_timeout: float = opt.option(
        "Longest time, in seconds, that a connection may stay open without a request being answered, for example while "
        "it sends headers.",
        "S",
        least=0.1,
        default=10.0,
    )
    max_body: int = opt.option("Largest request body, in bytes.", "BYTES", least=1024, default=16 << 20)
    max_texts: int = opt.option("Largest number of texts in a request.", least=1, default=1000)
    max_chars: int = opt.option("Longest query, in characters. Longer texts are cut.", least=1, default=200_000)
    trust_remote_code: bool = opt.option(
        "Run the Python code that comes with a model's weights. Use it only if you trust the author."
    )
    canary: Literal["order", "repeat"] = opt.option(
        "Check before a model is served: order (it must rank known pairs correctly) or repeat (it must give the same "
        "scores twice, for untrained models).",
        default="order",
    )


@opt.command(env="CCHECK_SERVE")
def rerank(asked: Served) -> None:
    """Serve a reranker over HTTP.

    \b
    ccheck serve rerank --model BAAI/bge-reranker-v2-gemma --device cuda
    ccheck serve rerank --model ./my-reranker --port 8181
    CCHECK_RERANK_URL=http://127.0.0.1:8080 ccheck query "coffee is healthy"

    Works with Elasticsearch and with clients of TEI, Cohere and Jina; docs/rerank-server.md lists the routes and
    errors. Only this machine can reach the server unless you change --host. If CCHECK_SERVE_API_KEY is set, clients
    must send that key. On SIGTERM the server finishes the requests it has accepted.
    """
    from ..core.models import require_models
    from ..core.runtime import Runtime, silent
    from ..core.settings import Settings
    from ..core.stages import ModelStage
    from ..rerank.server.run import named_model, require_server

    keep_secret(os.environ.get(KEY))
    require_server()
    require_models("the reranking server")
    name, where = named_model(asked.model)
    from ..core.serving import listen, public, run_server

    listening = listen(asked.host, asked.port)
    with listening:
        from ..core.models import best_device
        from ..rerank.load import batch_tokens_for
        from ..rerank.server.app import load_app
        from ..rerank.server.guard import Access, Limits

        say = silent if opt.is_quiet() else notice  # also in other threads, which know of no command
        limits = Limits(
            body=asked.max_body,
            texts=asked.max_texts,
            characters=asked.max_chars,
            requests=asked.queue,
            timeout=asked.timeout,
            connections=asked.connections,
            head=asked.head_timeout,
            batch_tokens=asked.batch_tokens or batch_tokens_for(asked.device or best_device()),
        )
        key = os.environ.get(KEY) or None
        app = load_app(
            name,
            Runtime(Settings(device=asked.device), say),
            ModelStage.model_validate({"model": where} | {key: getattr(asked, key) for key in MODEL}),
            limits,
            Access(key, (asked.host, *asked.allow_host)),
            asked.canary,
        )

        def started(url: str) -> None:
            say(f"serving {name if name == where else f'{name} ({where})'} at {url}. Stop with Ctrl-C")
            if public(asked.host) and key is None:
                say(f"anyone who can reach {url} can use it. Set a key with {KEY}")

        run_server(app, listening, limits, started)


serve.add_command(rerank)
