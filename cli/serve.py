"""`ccheck serve`: the service over HTTP and MCP, and models."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from ..core.errors import CcheckError, UsageError, require
from ..core.events import written
from ..core.redaction import keep_secret
from ..core.telemetry import finish
from . import opt
from .common import inform, notice, settings_from, shared_options, user_name
from .progress import checker, runtime

if TYPE_CHECKING:
    from fastapi import FastAPI

    from ..core.serving import Limits
    from ..core.settings import Settings
    from ..pipeline.checker import Checker
    from ..service import Service

KEY = "CCHECK_SERVE_API_KEY"


@click.group()
def serve() -> None:
    """Serve the page, REST and MCP, or a reranker.

    \b
    ccheck serve web
    ccheck serve mcp
    ccheck serve rerank --model BAAI/bge-reranker-v2-m3
    """


def named_model(given: str) -> tuple[str, str]:
    """What requests call a model, and its place: `NAME`, `FOLDER` (called by its last part), or `ALIAS=` one of them.

    Raises UsageError for an alias of nothing.
    """
    alias, equals, rest = given.partition("=")
    if not equals or Path(given).expanduser().exists() or "/" in alias:
        alias, rest = "", given
    if not rest:
        raise UsageError(f"--model {given}: the name of the model is missing; write --model ALIAS=NAME")
    folder = Path(rest).expanduser()
    return alias or (folder.resolve().name if folder.exists() else rest), rest


@opt.command
def rerank(
    *,
    model: str = opt.option(
        "Reranker to serve: a name or a folder; ALIAS=NAME serves it under another name.",
        "NAME|FOLDER",
        heading=opt.EVERYDAY,
        required=True,
    ),
    device: str | None = opt.option("Device that the model runs on: cpu, cuda or mps. By default the fastest.", "NAME"),
    devices: str | None = opt.option(
        "Devices that share the work, with a process for each: cuda:0,cuda:1 or cpu,cpu. One that ends is replaced.",
        "NAME,NAME",
    ),
    host: str = opt.option("Address to listen on.", "ADDRESS", default="127.0.0.1"),
    port: int = opt.option("Port to listen on; 0 picks a free one.", least=0, most=65_535, default=8080),
    allow_host: tuple[str, ...] = opt.option(
        "Host name that clients may use for this server, such as rerank.example.org. Without a key, requests for names "
        "other than localhost and --host get 421, to prevent DNS rebinding. Repeatable. In the environment, separate "
        "them with spaces.",
        "NAME",
    ),
    dtype: Literal["float32", "bfloat16", "float16"] | None = opt.option(
        "Number format of the model. By default bfloat16 on a GPU that supports it, else float32.",
        heading=opt.ADVANCED,
    ),
    max_tokens: int | None = opt.option(
        "Longest pair of query and text, in tokens. By default the model's limit, at most 512.", least=32, most=131_072
    ),
    yes_token: str | None = opt.option("For an unknown decoder: the token whose logit is the score.", "TOKEN"),
    prompt: str | None = opt.option("For an unknown decoder: the prompt after query and text.", "TEXT"),
    queue: int = opt.option("Largest number of requests at once. Further ones get 429.", least=1, default=256),
    timeout: float = opt.option(
        "Longest time for a request, in seconds. After that it gets 504.", "S", least=0.1, default=60.0
    ),
    batch_tokens: int | None = opt.option("Largest batch, in tokens. By default 1024, or 16384 on a GPU.", least=32),
    max_body: int = opt.option(
        "Largest request, in bytes. All requests in progress may together take as many, or 256 MiB.",
        "BYTES",
        least=1024,
        default=64 << 20,
    ),
    max_texts: int = opt.option("Largest number of texts in a request.", least=1, default=1000),
    events: bool = opt.option("Write a line of JSON to standard error for each request."),
    canary: Literal["order", "repeat"] = opt.option(
        "Check before a model is served: order (it must rank known pairs correctly) or repeat (it must give the same "
        "scores twice, for untrained models).",
        default="order",
    ),
) -> None:
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
    from ..core.settings import Settings
    from ..core.stages import ModelStage

    keep_secret(os.environ.get(KEY))
    require("the reranking server", "server", "fastapi", "uvicorn", "prometheus_client")
    require_models("the reranking server")
    name, where = named_model(model)
    if device and devices is not None:
        raise UsageError("--device and --devices can't be given together")
    from ..core.http import public
    from ..core.serving import listen

    with listen(host, port) as listening, ExitStack() as opened:
        from ..core.models import best_device
        from ..rerank.load import batch_tokens_for, load_scorer
        from ..rerank.server.app import create_app
        from ..rerank.server.canary import check_scorer
        from ..rerank.server.guard import Access, Limits

        limits = Limits(
            body=max_body,
            texts=max_texts,
            requests=queue,
            timeout=timeout,
            batch_tokens=batch_tokens or batch_tokens_for(devices or device or best_device()),
        )
        key = os.environ.get(KEY) or None
        loading = runtime(Settings(device=device), lines=True)
        own = {"dtype": dtype, "max_tokens": max_tokens, "yes_token": yes_token, "prompt": prompt}
        stage = ModelStage.model_validate(own | {"model": where})
        if devices is None:
            workers, scorer = None, load_scorer(where, loading, stage, limits.batch_tokens)
            check_scorer(scorer, canary)
        else:
            from ..rerank.server.workers import Workers

            workers = opened.enter_context(Workers(devices, loading, stage, limits, canary))
            scorer = workers.scorer
        app = create_app(name, scorer, limits, Access(key, (host, *allow_host)))
        said = f"serving {name if name == where else f'{name} ({where})'} at {{}}. Stop with Ctrl-C"
        if public(host) and key is None:
            said += f"\nanyone who can reach {{}} can use it. Set a key with {KEY}"
        _run(app, [listening], limits, said, events=events)
        if workers is not None and workers.failed is not None:
            raise workers.failed


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedWeb:
    """The store to serve, to whom, and within what limits."""

    store: str | None = opt.under(opt.EVERYDAY, opt.store)
    host: str = opt.option("Address to listen on.", "ADDRESS", default="127.0.0.1")
    port: int = opt.option("Port to listen on; 0 picks a free one.", least=0, most=65_535, default=8350)
    recipe: str | None = opt.recipe("Recipe to check with.  [env: CCHECK_RECIPE; default: default]")
    llm: str | None = opt.llm
    rerank: str | None = opt.rerank
    no_record: bool = opt.option("Keep no record of checks: no history, no lasting links, no corrections.")
    pdfs: str | None = opt.option(
        "Folder with the PDFs that were ingested. The page opens them where evidence stands, if they are unchanged.",
        "FOLDER",
    )
    serve_reranker: bool = opt.option(
        "Serve the recipe's reranking model, too: at /reranker, as ccheck serve rerank does. It is loaded once."
    )
    allow_host: tuple[str, ...] = opt.option(
        "Host name that browsers may use for this server, such as ccheck.example.org. Repeatable.", "NAME"
    )
    events: bool = opt.option("Write a line of JSON to standard error for each request and each check.")
    https: bool = opt.option("A proxy before this server speaks HTTPS: send cookies over HTTPS alone.")
    workers: int | None = opt.option(
        "Check claims in so many further processes, each with models of its own. By default this one checks them.",
        least=1,
        most=64,
    )
    requests: int = opt.option("Requests of one caller in a minute.", least=1, default=1200, heading="Limits")
    checks: int = opt.option("Checks of one caller in a minute, those of files included.", least=1, default=600)
    at_once: int = opt.option("Checks and files of one caller that run at once.", least=1, default=8)
    tokens: int | None = opt.option("Tokens of language models for one caller in 24 hours.", least=1)
    claims: int = opt.option("Claims in one file.", least=1, default=5000)
    max_body: int = opt.option("Largest request, in bytes, but for files.", "BYTES", least=1024, default=1 << 20)
    max_upload: int = opt.option(
        "Largest upload of claims or papers, in bytes.", "BYTES", least=1024, default=256 << 20
    )
    timeout: float = opt.option(
        "Seconds that running checks may take when the server stops.", "S", least=0.1, default=60.0
    )
    connections: int = opt.option("Largest number of open connections.", least=1, default=1024)


@opt.command
def web(asked: ServedWeb) -> None:
    """Serve the page for people, REST for programs, and MCP at /mcp.

    \b
    ccheck serve web
    ccheck serve web --store local:papers --port 8350
    CCHECK_API_KEYS=desk:read+check:A-LONG-RANDOM-KEY ccheck serve web --host ::

    On this machine no key is needed. Any other address needs CCHECK_API_KEYS: NAME:RIGHTS:KEY, separated by spaces,
    with the rights read, check and write. On SIGTERM the server finishes the checks that run. Of an option's two
    environment variables, the one with WEB in its name wins. docs/serve.md has more.
    """
    from ..core.recipe import recipe_names

    require("the service", "server", "fastapi", "uvicorn", "prometheus_client", "python_multipart")
    from ..core.http import public
    from ..core.serving import listen
    from ..web import local
    from ..web.access import EXAMPLE, KEYS, Quotas, keys_from
    from ..web.app import create_app
    from ..web.shared import Limits, Served

    keys = keys_from(os.environ.get(KEYS))
    if public(asked.host) and not keys:
        raise UsageError(f"--host {asked.host} lets other machines in, so it needs keys: set {EXAMPLE}")
    pdfs = None if asked.pdfs is None else Path(asked.pdfs).expanduser()
    if pdfs is not None and not pdfs.is_dir():
        raise UsageError(f"--pdfs {asked.pdfs}: there is no such folder")
    names = ("body", "max_body"), ("upload", "max_upload"), ("timeout", "timeout"), ("connections", "connections")
    limits = Limits(**{name: getattr(asked, given) for name, given in names})
    quotas = Quotas(**{name: getattr(asked, name) for name in ("requests", "checks", "at_once", "tokens", "claims")})
    hosts = (asked.host, *asked.allow_host)
    settings = settings_from(**opt.settings_of(asked))
    # A recipe or prompts of one's own can change while the server runs: without it, they would be read again.
    lasting = settings.recipe in recipe_names() and settings.prompts_dir is None and not asked.no_record
    with (
        listen(asked.host, asked.port) as at,
        local.listening(shared_options(asked) | {"alone": not lasting}) as here,
        _service(settings, asked.llm, asked.rerank, record=not asked.no_record, workers=asked.workers) as service,
    ):
        served = Served(
            limits=limits, quotas=quotas, keys=keys, hosts=hosts, secure=asked.https, owner=user_name(), pdfs=pdfs
        )
        app = create_app(service, served, _reranker_of(service.checker) if asked.serve_reranker else None)
        said = f"{service.checker.store.name} is at {{}}. Stop with Ctrl-C"
        interrupt: KeyboardInterrupt | None = None
        try:
            _run(app, [at, *here], limits, said, events=asked.events)
        except KeyboardInterrupt as stop:  # uvicorn raises Ctrl-C again when it is done
            interrupt = stop
        if app.state.web.jobs.unfinished:
            # Their threads would hold up the end for as long as they wait for some server. What is kept is on the disk.
            if service.workers is not None:
                service.workers.close()
            finish()
            logging.shutdown()
            os._exit(0 if interrupt is None else 130)
        if interrupt is not None:
            raise interrupt


def _reranker_of(checked: Checker) -> FastAPI:
    """The application that serves the model with which a checker reranks. Raises UsageError if it has none here."""
    from ..rerank.server.app import create_app
    from ..rerank.server.canary import check_scorer
    from ..rerank.server.guard import Limits
    from ..rerank.several import LocalReranker

    models = [one for _, one in checked.plan().rerankers.values() if isinstance(one, LocalReranker)]
    if not models:
        raise UsageError(
            f"--serve-reranker: the recipe {checked.recipe.name} reranks with no model on this machine. Name one with "
            "--rerank"
        )
    check_scorer(models[0].scorer, "order")
    return create_app(models[0].name, models[0].scorer, Limits(), None)


@opt.command
def mcp(
    *,
    store: str | None = opt.store,
    recipe: str | None = opt.recipe("Recipe to check with.  [env: CCHECK_RECIPE; default: default]"),
    llm: str | None = opt.llm,
    rerank: str | None = opt.rerank,
    no_record: bool = opt.option("Keep no record of checks."),
) -> None:
    """Serve tools for language models, over MCP.

    \b
    ccheck serve mcp
    ccheck serve mcp --store local:papers

    The tools are check_claim, search_evidence, get_paper and describe_collection, of the Model Context Protocol, on
    standard input and output. ccheck serve web has the same tools at /mcp.
    """
    import asyncio

    require("MCP", "mcp", "mcp", "fastapi", "prometheus_client")
    from ..web.mcp import serve_stdio
    from ..web.shared import Served, Web

    settings = settings_from(store=store, recipe=recipe, llm_model=llm, rerank=rerank)
    with _service(settings, llm, rerank, record=not no_record) as service:

        async def run() -> None:
            await serve_stdio(Web(service, Served()))

        asyncio.run(run())


@contextmanager
def _service(
    settings: Settings, llm: str | None, rerank: str | None, *, record: bool, workers: int | None = None
) -> Iterator[Service]:
    """The service of a store, with a record if neither the command nor the settings say otherwise."""
    from ..core.adjust import Changes, resolved
    from ..service.service import Service
    from ..service.workers import Workers

    pipeline = resolved(settings, Changes(llm=llm, rerank=rerank))
    with (
        nullcontext() if workers is None else Workers(workers, settings, pipeline) as others,
        checker(settings, recipe=pipeline) as checked,
        Service(checked, record=None if record else False) as service,
    ):
        service.workers = others
        try:
            if service.record is not None:
                service.record.get([])  # opens a file, and asks no server
        except CcheckError as error:
            notice(f"checks are not recorded: {error}")
        yield service


def _run(app: FastAPI, at: list[socket.socket], limits: Limits, said: str, *, events: bool) -> None:
    """Serve until SIGINT or SIGTERM. `said` is what to say then, with `{}` for the address."""
    from ..core.serving import run_server

    web = getattr(app.state, "web", None)
    if events:
        written.set()

    def started(url: str) -> None:
        inform(*said.replace("{}", url).split("\n"))

    run_server(app, at, limits, started, (lambda: None) if web is None else web.jobs.stopping)


serve.add_command(opt.with_environment(web, "CCHECK_WEB"))
serve.add_command(mcp)
serve.add_command(opt.with_environment(rerank, "CCHECK_SERVE"))
