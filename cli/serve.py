"""`ccheck serve`: models over HTTP."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import click

from ..core.redaction import keep_secret
from . import opt
from .common import notice
from .opt import given

if TYPE_CHECKING:
    from ..rerank.server.canary import Canary

KEY = "CCHECK_SERVE_API_KEY"


def _given(name: str, declare: Callable[..., opt.Option] = click.option, **settings: Any) -> Any:
    """An option that an environment variable can set as well; the help names both."""
    variable = f"CCHECK_SERVE_{name.removeprefix('--').replace('-', '_').upper()}"
    return given(name, by=declare, envvar=variable, show_envvar=True, **settings)


@click.group()
def serve() -> None:
    """Serve models over HTTP.

    \b
    ccheck serve rerank --model BAAI/bge-reranker-v2-m3
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The models to serve, how, and within what limits."""

    model: tuple[str, ...] = _given(
        "--model",
        heading="Everyday options",
        metavar="NAME|FOLDER",
        multiple=True,
        required=True,
        help="Reranker to serve: a name, a folder, or ALIAS=NAME. Repeatable. The first one answers requests that name "
        "no model. In the environment, separate them with spaces.",
    )
    embedding_model: str | None = _given(
        "--embedding-model",
        metavar="NAME|FOLDER",
        help="Embedding model to serve as well, at /v1/embeddings and /embed.",
    )
    device: str | None = _given(
        "--device", metavar="NAME", help="Device that models run on: cpu, cuda or mps. By default the fastest."
    )
    host: str = _given(
        "--host", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="Address to listen on."
    )
    port: int = _given(
        "--port", opt.number, least=0, most=65_535, default=8080, help="Port to listen on; 0 picks a free one."
    )
    allow_host: tuple[str, ...] = _given(
        "--allow-host",
        metavar="NAME",
        multiple=True,
        help="Host name that clients may use for this server, such as rerank.example.org. Without a key, requests for "
        "names other than localhost and --host get 421, to prevent DNS rebinding. Repeatable. In the environment, "
        "separate them with spaces.",
    )
    quiet: bool = given(opt.quiet)
    dtype: str | None = _given(
        "--dtype",
        heading="Advanced",
        type=click.Choice(["float32", "bfloat16", "float16"]),
        help="Number format of the models. By default bfloat16 on a GPU that supports it, else float32.",
    )
    max_tokens: int | None = _given(
        "--max-tokens",
        opt.number,
        least=32,
        most=131_072,
        help="Longest pair of query and text, in tokens. By default the model's limit, at most 512.",
    )
    long: Literal["cut", "windows"] = _given(
        "--long",
        default="cut",
        show_default=True,
        type=click.Choice(["cut", "windows"]),
        help="What to do with long texts: cut them, or score them in windows and use the best score.",
    )
    yes_token: str | None = _given(
        "--yes-token", metavar="TOKEN", help="For an unknown decoder: the token whose logit is the score."
    )
    prompt: str | None = _given(
        "--prompt", metavar="TEXT", help="For an unknown decoder: the prompt after query and text."
    )
    queue: int = _given(
        "--queue", opt.number, least=1, default=256, help="Largest number of requests at once. Further ones get 429."
    )
    timeout: float = _given(
        "--timeout",
        metavar="S",
        default=60.0,
        show_default=True,
        type=click.FloatRange(0.1),
        help="Longest time for a request, in seconds. After that it gets 504.",
    )
    batch_tokens: int | None = _given(
        "--batch-tokens", opt.number, least=32, help="Largest batch, in tokens. By default 4096, or 16384 on a GPU."
    )
    connections: int = _given(
        "--connections",
        opt.number,
        least=1,
        default=512,
        help="Largest number of open connections. Further ones get 503 and are closed.",
    )
    head_timeout: float = _given(
        "--head-timeout",
        metavar="S",
        default=10.0,
        show_default=True,
        type=click.FloatRange(0.1),
        help="Longest time, in seconds, that a connection may stay open without a request being answered, for example "
        "while it sends headers.",
    )
    max_body: int = _given(
        "--max-body",
        metavar="BYTES",
        default=16 << 20,
        show_default=True,
        type=click.IntRange(1024),
        help="Largest request body, in bytes.",
    )
    max_texts: int = _given(
        "--max-texts", opt.number, least=1, default=1000, help="Largest number of texts in a request."
    )
    max_chars: int = _given("--max-chars", opt.number, least=1, default=200_000, help="Longest text, in characters.")
    trust_remote_code: bool = _given(
        "--trust-remote-code",
        is_flag=True,
        help="Run the Python code that comes with a model's weights. Use it only if you trust the author.",
    )
    canary: Canary = _given(  # noqa: RUF009 - it makes a field
        "--canary",
        default="order",
        show_default=True,
        type=click.Choice(["order", "repeat"]),
        help="Check before a model is served: order (it must rank known pairs correctly) or repeat (it must give the "
        "same scores twice, for untrained models).",
    )


@opt.command(Served, group=serve)
def rerank(asked: Served) -> None:
    """Serve rerankers and an embedding model over HTTP.

    \b
    ccheck serve rerank --model BAAI/bge-reranker-v2-gemma --device cuda
    ccheck serve rerank --model ./my-reranker --port 8181
    CCHECK_RERANK_URL=http://127.0.0.1:8080 ccheck query "coffee is healthy"

    Works with Elasticsearch and with clients of TEI, Cohere, Jina and OpenAI; docs/rerank-server.md lists the routes
    and errors. Only this machine can reach the server unless you change --host. If CCHECK_SERVE_API_KEY is set, clients
    must send that key. On SIGTERM the server finishes the requests it has accepted.
    """
    from ..core.models import require_models
    from ..core.runtime import Runtime
    from ..core.settings import Settings
    from ..core.stages import ModelStage
    from ..rerank.server.run import aliases, listen, named_models, public, require_server, run_server

    keep_secret(os.environ.get(KEY))
    require_server()
    require_models("the reranking server")
    models = named_models(asked.model)
    listening = listen(asked.host, asked.port)
    with listening:
        from ..rerank.server.config import Access, Limits
        from ..rerank.server.load import load_app

        def say(message: str) -> None:
            if not asked.quiet:
                notice(message)

        limits = Limits(
            asked.max_body,
            asked.max_texts,
            asked.max_chars,
            asked.queue,
            asked.timeout,
            asked.connections,
            asked.head_timeout,
        )
        key = os.environ.get(KEY) or None
        app = load_app(
            models,
            Runtime(Settings(device=asked.device), say),
            ModelStage.model_validate(
                {
                    "dtype": asked.dtype,
                    "max_tokens": asked.max_tokens,
                    "long": asked.long,
                    "yes_token": asked.yes_token,
                    "prompt": asked.prompt,
                    "trust_remote_code": asked.trust_remote_code,
                }
            ),
            limits=limits,
            access=Access(key, (asked.host, *asked.allow_host)),
            embedding_model=asked.embedding_model,
            batch_tokens=asked.batch_tokens,
            canary=asked.canary,
        )

        def started(url: str) -> None:
            say(f"serving {aliases(models)} at {url}. Stop with Ctrl-C")
            if public(asked.host) and key is None:
                say(f"anyone who can reach {url} can use it. Set a key with {KEY}")

        run_server(app, listening, limits, started)
