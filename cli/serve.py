"""`ccheck serve`: models over HTTP."""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any, Literal

import click

from ..redaction import keep_secret
from .common import notice, options, quiet_option

if TYPE_CHECKING:
    from ..rerank.server.canary import Canary

KEY = "CCHECK_SERVE_API_KEY"


def _option(name: str, **given: Any) -> Any:
    """An option with its twin in the environment, both of which its help names."""
    variable = f"CCHECK_SERVE_{name.removeprefix('--').replace('-', '_').upper()}"
    return click.option(name, envvar=variable, show_envvar=True, show_default="default" in given, **given)


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
        help="A reranker: a name, a folder, or ALIAS=NAME to call it otherwise. Again for several; the first is what "
        "requests get that name none. In the environment, with blanks between.",
    ),
    _option("--host", metavar="ADDRESS", default="127.0.0.1", help="Where to listen."),
    _option("--port", metavar="N", default=8080, type=click.IntRange(0, 65_535), help="The port; 0 takes a free one."),
    _option("--device", metavar="NAME", help="Where models run: cpu, cuda, mps. By default the fastest."),
    _option(
        "--dtype",
        type=click.Choice(["float32", "bfloat16", "float16"]),
        help="Of the models' numbers. By default bfloat16 on a GPU that has it, else float32.",
    ),
    _option(
        "--max-tokens",
        metavar="N",
        type=click.IntRange(32, 131_072),
        help="The longest pair of query and text; the rest of the text is cut. By default the model's own, at most "
        "512.",
    ),
    _option(
        "--long",
        default="cut",
        type=click.Choice(["cut", "windows"]),
        help="Long texts: cut them, or score them by windows, of which the best counts.",
    ),
    _option("--yes-token", metavar="TOKEN", help="Of a decoder that is not known: the token whose logit is the score."),
    _option("--prompt", metavar="TEXT", help="Of a decoder that is not known: what stands after query and text."),
    _option(
        "--embedding-model",
        metavar="NAME|FOLDER",
        help="An embedding model to serve beside, at /v1/embeddings and /embed.",
    ),
    _option(
        "--queue", metavar="N", default=256, type=click.IntRange(1), help="Requests in work; more are answered 429."
    ),
    _option(
        "--timeout", metavar="S", default=60.0, type=click.FloatRange(0.1), help="Seconds for one request; then 504."
    ),
    _option(
        "--batch-tokens",
        metavar="N",
        type=click.IntRange(32),
        help="Tokens that the model is given at once. By default 4096, on a GPU 16384.",
    ),
    _option(
        "--connections",
        metavar="N",
        default=512,
        type=click.IntRange(1),
        help="Connections open at once. More get 503 and are closed.",
    ),
    _option(
        "--head-timeout",
        metavar="S",
        default=10.0,
        type=click.FloatRange(0.1),
        help="Seconds that a connection may stay open while none of its requests is being answered. It limits how long "
        "the head of a request may take.",
    ),
    _option(
        "--allow-host",
        metavar="NAME",
        multiple=True,
        help="A name by which clients call this server, such as rerank.example.org. Without a key, requests for other "
        "names than localhost and --host get 421, against DNS rebinding. Again for several. In the environment, with "
        "blanks between.",
    ),
    _option("--max-body", metavar="BYTES", default=16 << 20, type=click.IntRange(1024), help="Of one request."),
    _option("--max-texts", metavar="N", default=1000, type=click.IntRange(1), help="Of one request."),
    _option("--max-chars", metavar="N", default=200_000, type=click.IntRange(1), help="Of one text."),
    _option(
        "--trust-remote-code",
        is_flag=True,
        help="Run the Python code that comes with a model's weights. Only of authors that you trust.",
    ),
    _option(
        "--canary",
        default="order",
        type=click.Choice(["order", "repeat"]),
        help="What a model must do before it is served: put known pairs in the right order, or, of one that was not "
        "trained, only give the same scores again.",
    ),
    quiet_option,
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
    """Serve rerankers, and an embedding model.

    \b
    ccheck serve rerank --model BAAI/bge-reranker-v2-gemma --device cuda
    ccheck serve rerank --model ./my-reranker --port 8181
    CCHECK_RERANK_URL=http://127.0.0.1:8080 ccheck query "coffee is healthy"

    Answers Elasticsearch, and the clients of TEI, Cohere, Jina and OpenAI: docs/rerank-server.md has the routes and
    their errors. Takes requests of this machine alone, unless --host says otherwise. With a key in
    CCHECK_SERVE_API_KEY whoever asks must send it. SIGTERM finishes what was taken.
    """
    from ..models import require_models
    from ..rerank.server.run import aliases, listen, named_models, public, require_server, run_server

    keep_secret(os.environ.get(KEY))
    require_server()
    require_models("the reranking server")
    models = named_models(model)
    listening = listen(host, port)
    with listening:
        from ..models import best_device
        from ..rerank.load import batch_tokens_for, is_decoder, load_scorer
        from ..rerank.server.app import create_app
        from ..rerank.server.canary import check_scorer
        from ..rerank.server.config import Access, Limits

        def say(message: str) -> None:
            if not quiet:
                notice(message)

        scorers = {}
        for name, where in models.items():
            # Of several models, these are for the decoders; an only one refuses what makes no sense.
            asked = len(models) == 1 or is_decoder(where)
            scorers[name] = load_scorer(
                where,
                device=device,
                max_tokens=max_tokens,
                long=long,
                yes_token=yes_token if asked else None,
                prompt=prompt if asked else None,
                trust_remote_code=trust_remote_code,
                dtype=dtype,
                batch_tokens=batch_tokens,
                on_load=functools.partial(say, f"loading {where}"),
            )
            check_scorer(scorers[name], canary)
        embedder = None
        if embedding_model is not None:
            from ..encode.dense import load_embedder

            on_load = functools.partial(say, f"loading {embedding_model}")
            loaded = load_embedder(embedding_model, device, on_load=on_load)
            embedder = (next(iter(named_models([embedding_model]))), loaded)
        limits = Limits(max_body, max_texts, max_chars, queue, timeout, connections, head_timeout)
        key = os.environ.get(KEY) or None
        app = create_app(
            scorers,
            embedder=embedder,
            limits=limits,
            access=Access(key, (host, *allow_host)),
            batch_tokens=batch_tokens or batch_tokens_for(device or best_device()),
        )

        def started(url: str) -> None:
            say(f"{aliases(models)} at {url}, until Ctrl-C")
            if public(host) and key is None:
                say(f"everyone who reaches {url} can use it: set a key by {KEY}")

        run_server(app, listening, limits, started)
