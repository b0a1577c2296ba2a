"""`ccheck serve`: models over HTTP."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import click

from ..core.redaction import keep_secret
from . import opt
from .common import notice
from .opt import options

if TYPE_CHECKING:
    from ..rerank.server.canary import Canary

KEY = "CCHECK_SERVE_API_KEY"


def _option(name: str, declare: Callable[..., opt.Option] = click.option, **given: Any) -> opt.Option:
    """An option that an environment variable can set as well; the help names both."""
    variable = f"CCHECK_SERVE_{name.removeprefix('--').replace('-', '_').upper()}"
    return declare(name, envvar=variable, show_envvar=True, **given)


@click.group()
def serve() -> None:
    """Serve models over HTTP.

    \b
    ccheck serve rerank --model BAAI/bge-reranker-v2-m3
    """


@serve.command()
@options(
    _option(
        "--model",
        metavar="NAME|FOLDER",
        multiple=True,
        required=True,
        help="Reranker to serve: a name, a folder, or ALIAS=NAME. Repeatable. The first one answers requests that name "
        "no model. In the environment, separate them with spaces.",
    ),
    _option("--host", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="Address to listen on."),
    _option("--port", opt.number, least=0, most=65_535, default=8080, help="Port to listen on; 0 picks a free one."),
    _option("--device", metavar="NAME", help="Device that models run on: cpu, cuda or mps. By default the fastest."),
    _option(
        "--dtype",
        type=click.Choice(["float32", "bfloat16", "float16"]),
        help="Number format of the models. By default bfloat16 on a GPU that supports it, else float32.",
    ),
    _option(
        "--max-tokens",
        opt.number,
        least=32,
        most=131_072,
        help="Longest pair of query and text, in tokens. By default the model's limit, at most 512.",
    ),
    _option(
        "--long",
        default="cut",
        show_default=True,
        type=click.Choice(["cut", "windows"]),
        help="What to do with long texts: cut them, or score them in windows and use the best score.",
    ),
    _option("--yes-token", metavar="TOKEN", help="For an unknown decoder: the token whose logit is the score."),
    _option("--prompt", metavar="TEXT", help="For an unknown decoder: the prompt after query and text."),
    _option(
        "--embedding-model",
        metavar="NAME|FOLDER",
        help="Embedding model to serve as well, at /v1/embeddings and /embed.",
    ),
    _option(
        "--queue", opt.number, least=1, default=256, help="Largest number of requests at once. Further ones get 429."
    ),
    _option(
        "--timeout",
        metavar="S",
        default=60.0,
        show_default=True,
        type=click.FloatRange(0.1),
        help="Longest time for a request, in seconds. After that it gets 504.",
    ),
    _option(
        "--batch-tokens", opt.number, least=32, help="Largest batch, in tokens. By default 4096, or 16384 on a GPU."
    ),
    _option(
        "--connections",
        opt.number,
        least=1,
        default=512,
        help="Largest number of open connections. Further ones get 503 and are closed.",
    ),
    _option(
        "--head-timeout",
        metavar="S",
        default=10.0,
        show_default=True,
        type=click.FloatRange(0.1),
        help="Longest time, in seconds, that a connection may stay open without a request being answered, for example "
        "while it sends headers.",
    ),
    _option(
        "--allow-host",
        metavar="NAME",
        multiple=True,
        help="Host name that clients may use for this server, such as rerank.example.org. Without a key, requests for "
        "names other than localhost and --host get 421, to prevent DNS rebinding. Repeatable. In the environment, "
        "separate them with spaces.",
    ),
    _option(
        "--max-body",
        metavar="BYTES",
        default=16 << 20,
        show_default=True,
        type=click.IntRange(1024),
        help="Largest request body, in bytes.",
    ),
    _option("--max-texts", opt.number, least=1, default=1000, help="Largest number of texts in a request."),
    _option("--max-chars", opt.number, least=1, default=200_000, help="Longest text, in characters."),
    _option(
        "--trust-remote-code",
        is_flag=True,
        help="Run the Python code that comes with a model's weights. Use it only if you trust the author.",
    ),
    _option(
        "--canary",
        default="order",
        show_default=True,
        type=click.Choice(["order", "repeat"]),
        help="Check before a model is served: order (it must rank known pairs correctly) or repeat (it must give the "
        "same scores twice, for untrained models).",
    ),
    opt.quiet,
)
def rerank(
    *,
    model: tuple[str, ...],
    host: str,
    port: int,
    device: str | None,
    dtype: str | None,
    max_tokens: int | None,
    long: Literal["cut", "windows"],
    yes_token: str | None,
    prompt: str | None,
    embedding_model: str | None,
    queue: int,
    timeout: float,
    batch_tokens: int | None,
    connections: int,
    head_timeout: float,
    allow_host: tuple[str, ...],
    max_body: int,
    max_texts: int,
    max_chars: int,
    trust_remote_code: bool,
    canary: Canary,
    quiet: bool,
) -> None:
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
    models = named_models(model)
    listening = listen(host, port)
    with listening:
        from ..rerank.server.config import Access, Limits
        from ..rerank.server.load import load_app

        def say(message: str) -> None:
            if not quiet:
                notice(message)

        limits = Limits(max_body, max_texts, max_chars, queue, timeout, connections, head_timeout)
        key = os.environ.get(KEY) or None
        app = load_app(
            models,
            Runtime(Settings(device=device), say),
            ModelStage.model_validate(
                {
                    "dtype": dtype,
                    "max_tokens": max_tokens,
                    "long": long,
                    "yes_token": yes_token,
                    "prompt": prompt,
                    "trust_remote_code": trust_remote_code,
                }
            ),
            limits=limits,
            access=Access(key, (host, *allow_host)),
            embedding_model=embedding_model,
            batch_tokens=batch_tokens,
            canary=canary,
        )

        def started(url: str) -> None:
            say(f"serving {aliases(models)} at {url}. Stop with Ctrl-C")
            if public(host) and key is None:
                say(f"anyone who can reach {url} can use it. Set a key with {KEY}")

        run_server(app, listening, limits, started)
