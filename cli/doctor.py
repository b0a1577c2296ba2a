"""`ccheck doctor`: what works here."""

from __future__ import annotations

import difflib
import importlib.metadata
import importlib.util
import os
import platform
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from ..errors import CcheckError, MissingExtra, NotFound, ServerError, UsageError
from ..keys import key_for
from ..redaction import redact
from ..settings import FILE, waiting
from ..trust import VARIABLE
from .common import (
    counted,
    device_option,
    json_option,
    model_option,
    options,
    print_hanging,
    print_json,
    printable,
    resolved_from,
    stdout,
    store_option,
)
from .config import shown

if TYPE_CHECKING:
    from ..recipe import Recipe
    from ..search import StoreInfo
    from ..settings import Resolved, Settings

BASE = (
    "click",
    "elasticsearch",
    "filelock",
    "httpx",
    "jinja2",
    "numpy",
    "nupunkt",
    "pydantic",
    "rich",
    "tantivy",
    "tenacity",
)
EXTRAS = {
    "models": ("torch", "transformers", "sentence-transformers"),
    "server": ("fastapi", "uvicorn", "prometheus-client"),
    "llm": ("openai",),
    "parquet": ("pyarrow",),
    "evaluation": ("ir-measures", "scikit-learn", "matplotlib"),
    "train": ("accelerate", "datasets", "peft"),
}


PROBE = "sea level has risen"
"""What is searched for, to see whether a store answers."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: `absent` is optional and not there, `failed` is wanted and does not work."""

    part: str
    status: Literal["ok", "absent", "failed"]
    detail: str


@click.command()
@options(store_option, model_option, device_option, json_option)
def doctor(*, store: str | None, model: str | None, device: str | None, as_json: bool) -> None:
    """Say what works here, what does not, and what to do.

    \b
    ccheck doctor
    ccheck doctor --store https://host:9200/papers

    Looks at Python, packages and extras, where models run, the model, the recipe, the store, Elasticsearch (version,
    licence, whether its own RRF will be used), and says which settings are not the default. "absent" is optional and
    not there; "failed" is wanted and does not work, and the exit code is that of the first such.
    """
    from rich.text import Text

    resolved = resolved_from(show_pending=True, store=store, embedding_model=model, device=device)
    failure = 0
    console = stdout()
    colours = {"ok": "green", "absent": "yellow", "failed": "red"}
    for finding, code in _findings(resolved):
        failure = failure or code
        if as_json:
            print_json(asdict(finding))
            continue
        head = Text.assemble((f"{finding.status:<8}", colours[finding.status]), (f"{finding.part:<15}", "bold"))
        print_hanging(console, head, printable(finding.detail), len(head))
    if failure:
        raise click.exceptions.Exit(failure)


def _findings(resolved: Resolved) -> Iterator[tuple[Finding, int]]:
    """Each finding, with the exit code that it means: 0 where nothing failed."""
    yield Finding("python", "ok", f"{platform.python_version()} ({sys.executable})"), 0
    yield _packages("packages", BASE, "pip install ccheck"), 0
    for extra, names in EXTRAS.items():
        yield _packages(extra, names, f"pip install 'ccheck[{extra}]'"), 0
    yield _tried("device", lambda: _device(resolved))
    yield _tried("model", lambda: _model(resolved))
    yield _tried("reranker", lambda: _reranker(resolved))
    yield _tried("verdict", lambda: _verdict(resolved))
    yield _tried("recipe", lambda: _recipe(resolved))
    server = list(_elasticsearch(resolved))
    yield from server
    if any(code for _, code in server):
        yield Finding("store", "failed", "its server failed"), ServerError.exit_code
    else:
        yield from _store(resolved)
    for name, origin in resolved.origins.items():
        if origin != "default":
            yield Finding("setting", "ok", f"{name} = {shown(getattr(resolved.settings, name))} (from {origin})"), 0
    if resolved.pending:
        yield Finding("setting", "failed", waiting(Path(FILE), resolved.pending)), UsageError.exit_code
    for unknown in _unknown_variables(os.environ):
        yield unknown, 0


def _packages(part: str, names: tuple[str, ...], install: str) -> Finding:
    versions = {name: _version(name) for name in names}
    missing = [name for name, version in versions.items() if version is None]
    if missing:
        return Finding(part, "absent", f"{', '.join(missing)} not installed: {install}")
    return Finding(part, "ok", ", ".join(f"{name} {version}" for name, version in versions.items()))


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _device(resolved: Resolved) -> Finding:
    if importlib.util.find_spec("torch") is None:
        return Finding("device", "absent", "not looked for without torch")
    import torch

    wanted = resolved.settings.device
    if wanted is not None:
        from ..models import check_device

        check_device(wanted)
        return Finding("device", "ok", f"{wanted}, as the settings say")
    if torch.cuda.is_available():
        memory = torch.cuda.mem_get_info()[1] / 2**30
        return Finding("device", "ok", f"cuda: {torch.cuda.get_device_name()}, {memory:.0f} GiB")
    if torch.backends.mps.is_available():
        return Finding("device", "ok", "mps: Apple's GPU")
    return Finding("device", "ok", f"cpu: torch {torch.__version__} sees no GPU")


def _tried(part: str, find: Callable[[], Finding]) -> tuple[Finding, int]:
    try:
        finding = find()
    except CcheckError as error:
        return Finding(part, "failed", str(error)), error.exit_code
    return finding, 0


def _model(resolved: Resolved) -> Finding:
    from ..encode.dense import DEFAULT_MODEL
    from ..models import find_model, fingerprint, models_installed

    name = resolved.settings.embedding_model or DEFAULT_MODEL
    if not models_installed():
        return Finding("model", "absent", f"{name}: without the models extra retrieval is by BM25 only")
    found = find_model(name, allow_download=False)
    return Finding("model", "ok", f"{found.name}, weights {fingerprint(found.path)[:8]}, {found.origin} {found.path}")


def _reranker(resolved: Resolved) -> Finding:
    """What --rerank auto would take; a server is asked whether it is there."""
    from ..models import find_model
    from ..rerank.open import choose_model, is_url, open_remote

    settings = resolved.settings
    try:
        name = settings.rerank if settings.rerank not in (None, "auto") else choose_model(settings)
    except MissingExtra as error:
        return Finding("reranker", "absent", str(error))
    if name == "none":
        return Finding("reranker", "ok", "none, as the settings say")
    if is_url(name):
        server = open_remote(name, settings, timeout=min(10, settings.rerank_timeout), retry_seconds=0)
        server("a claim", ["a passage", "another passage"])
        return Finding("reranker", "ok", "; ".join(filter(None, (f"{server.name} answers", server.notice))))
    try:
        found = find_model(name, allow_download=False)
    except NotFound as error:
        if settings.rerank == name:
            raise
        return Finding("reranker", "absent", str(error))
    return Finding("reranker", "ok", f"{found.name}, {found.origin} {found.path}")


def _verdict(resolved: Resolved) -> Finding:
    """Who --verdict auto would ask. A language model is not, since that may cost money."""
    from ..models import find_model, models_installed
    from ..verdict.classifier import DEFAULT_STANCE_MODEL

    settings = resolved.settings
    if settings.llm_model is not None:
        if _version("openai") is None:
            raise MissingExtra(f"the language model {settings.llm_model}", "llm")
        key = key_for(settings, "llm_api_key", settings.llm_base_url)
        said = "with a key" if key.value else "with no key"
        asked = f"llm: {settings.llm_model} at {redact(settings.llm_base_url)}, {said}; not asked"
        return Finding("verdict", "ok", "; ".join(filter(None, (asked, key.withheld))))
    name = settings.stance_model or DEFAULT_STANCE_MODEL
    if not models_installed():
        return Finding("verdict", "absent", f"{name} needs the models extra, and no language model is named")
    try:
        found = find_model(name, allow_download=False)
    except NotFound as error:
        if settings.stance_model is not None:
            raise
        return Finding("verdict", "absent", f"no language model is named, and {error}")
    return Finding("verdict", "ok", f"stance: {found.name}, {found.origin} {found.path}")


def _recipe(resolved: Resolved) -> Finding:
    from ..recipe import load_recipe

    recipe = load_recipe(resolved.settings.recipe)
    return Finding("recipe", "ok", f"{recipe.name}: {recipe.description or ', '.join(recipe.retrievers)}")


def _store(resolved: Resolved) -> Iterator[tuple[Finding, int]]:
    """The store, by what a query does before its first claim and by one search: what a query refuses, this does too."""
    from ..pipeline.checker import Checker
    from ..recipe import load_recipe
    from ..types import Claim

    try:
        with Checker(resolved.settings, recipe=_only_searching(load_recipe(resolved.settings.recipe))) as checker:
            info = checker.store.info()
            if info is None:
                absent = f"{checker.store.name} does not exist yet: ccheck ingest FILE makes it"
                yield Finding("store", "absent", absent), 0
                return
            about = [f"{info.name}: {counted(info.documents, 'document')}", info.layout.describe()]
            about += [f"{what}: {said}" for what, said in info.details.items()]
            if away := _away(checker.recipe, info, resolved.settings):
                about.append(f"not searched, since a query would first download {away}")
                yield Finding("store", "absent", "; ".join(about)), 0
                return
            plan = checker.plan()
            checker.check(Claim(PROBE), k=1)
            about.append(f"searched by {', '.join(plan.retrievers)}")
            yield Finding("store", "ok", "; ".join(about)), 0
            for warning in plan.warnings:
                yield Finding("search", "absent", warning), 0
    except CcheckError as error:
        yield Finding("store", "failed", str(error)), error.exit_code


def _only_searching(recipe: Recipe) -> Recipe:
    """The recipe without those who rewrite, rerank and judge, which have findings of their own and may cost money."""
    searching = {name: stage.model_copy(update={"query": "claim"}) for name, stage in recipe.retrievers.items()}
    nobody = recipe.verdict.model_copy(update={"method": "none"})
    return recipe.model_copy(update={"retrievers": searching, "rerankers": {}, "verdict": nobody})


def _away(recipe: Recipe, info: StoreInfo, settings: Settings) -> str:
    """The models that searching needs and that are not on this machine."""
    from ..models import find_model, models_installed
    from ..pipeline.needs import models_used
    from ..stages import Dense

    used = set(models_used(recipe))
    made_with = info.layout.embedding
    unnamed = any(isinstance(stage, Dense) and stage.model is None for stage in recipe.retrievers.values())
    if unnamed and info.dimensions is not None:
        used |= {settings.embedding_model or (made_with.model if made_with else "")} - {""}
    away = []
    for name in sorted(used) if models_installed() else ():
        try:
            find_model(name, allow_download=False, tokenizer_only=models_used(recipe).get(name) == "tokenizer")
        except NotFound:
            away.append(name)
    return ", ".join(away)


def _elasticsearch(resolved: Resolved) -> Iterator[tuple[Finding, int]]:
    """The server, where the settings name one; what is wrong with it matters where the store is on it."""
    from ..search.elastic import connection_from, diagnose
    from ..search.open import elastic_url

    settings = resolved.settings
    try:
        url, in_use = elastic_url(settings)
        if url is None and settings.elasticsearch_cloud_id is None:
            detail = "not set up: --store https://host:9200/INDEX, or ELASTICSEARCH_URL"
            yield Finding("elasticsearch", "absent", detail), 0
            return
        connection = connection_from(settings, url)
    except CcheckError as error:
        yield Finding("elasticsearch", "failed", str(error)), error.exit_code
        return
    for part, ok, detail in diagnose(connection):
        if in_use:
            yield Finding(part, "ok" if ok else "failed", detail), 0 if ok else ServerError.exit_code
        else:
            yield (
                Finding(part, "ok" if ok else "absent", f"{detail} (not in use: the store is {shown(settings.store)})"),
                0,
            )


def _unknown_variables(environ: Mapping[str, str]) -> Iterator[Finding]:
    from ..settings import Settings, variables

    known = {*(first for name in Settings.model_fields for first in variables(name)[:1]), "CCHECK_DEBUG", VARIABLE}
    for name in sorted(set(environ) - known):
        if name.startswith("CCHECK_SERVE_"):
            continue  # the options of ccheck serve, which knows them
        if name.startswith("CCHECK_") and (near := difflib.get_close_matches(name, known, 1, cutoff=0.8)):
            yield Finding("setting", "absent", f"{name} is not a ccheck setting: did you mean {near[0]}?")
