"""`ccheck doctor`: what works here."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

import click

from ..errors import CcheckError
from .common import json_option, model_option, options, stdout, store_option

if TYPE_CHECKING:
    from ..settings import Resolved

BASE = ("click", "elasticsearch", "filelock", "httpx", "numpy", "nupunkt", "pydantic", "rich", "tantivy", "tenacity")
EXTRAS = {
    "models": ("torch", "transformers", "sentence-transformers"),
    "parquet": ("pyarrow",),
    "evaluation": ("ir-measures",),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: `absent` is optional and not there, `failed` is wanted and does not work."""

    part: str
    status: Literal["ok", "absent", "failed"]
    detail: str


@click.command()
@options(store_option, model_option, json_option)
def doctor(*, store: str | None, model: str | None, as_json: bool) -> None:
    """Say what works here, what does not, and what to do.

    \b
    ccheck doctor
    ccheck doctor --store https://host:9200/papers

    Looks at Python, packages and extras, models, the GPU, stores, Elasticsearch (version, licence, whether its own RRF
    will be used), and says which settings are not the default's. Ends with the code of the first failure.
    """
    from ..settings import resolve
    from .query import print_json

    resolved = resolve({"store": store, "embedding_model": model})
    failure = 0
    console = stdout()
    colours = {"ok": "green", "absent": "yellow", "failed": "red"}
    for finding, code in _findings(resolved):
        failure = failure or code
        if as_json:
            print_json(asdict(finding))
        else:
            console.print(f"[{colours[finding.status]}]{finding.status:<7}[/] [bold]{finding.part:<14}[/] ", end="")
            console.print(finding.detail, markup=False, soft_wrap=True)
    if failure:
        raise click.exceptions.Exit(failure)


def _findings(resolved: Resolved) -> Iterator[tuple[Finding, int]]:
    """Each finding, with the exit code that it means: 0 where nothing failed."""
    yield Finding("python", "ok", f"{platform.python_version()} ({sys.executable})"), 0
    yield _packages("packages", BASE, "pip install ccheck"), 0
    for extra, names in EXTRAS.items():
        yield _packages(extra, names, f"pip install 'ccheck[{extra}]'"), 0
    yield _gpu(), 0
    yield _tried("model", lambda: _model(resolved))
    yield _tried("store", lambda: _store(resolved))
    yield from _elasticsearch(resolved)
    from .config import shown

    for name, origin in resolved.origins.items():
        if origin != "default":
            yield Finding("setting", "ok", f"{name} = {shown(getattr(resolved.settings, name))} (from {origin})"), 0


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


def _gpu() -> Finding:
    if importlib.util.find_spec("torch") is None:
        return Finding("gpu", "absent", "not looked for without torch")
    import torch

    if torch.cuda.is_available():
        return Finding("gpu", "ok", f"{torch.cuda.get_device_name()}, {torch.cuda.mem_get_info()[1] / 2**30:.0f} GiB")
    if torch.backends.mps.is_available():
        return Finding("gpu", "ok", "Apple's, by mps")
    return Finding("gpu", "absent", f"none that torch {torch.__version__} sees: models run on the CPU")


def _tried(part: str, find: Callable[[], Finding]) -> tuple[Finding, int]:
    try:
        finding = find()
    except CcheckError as error:
        return Finding(part, "failed", str(error)), error.exit_code
    return finding, 0


def _model(resolved: Resolved) -> Finding:
    from ..search.embedding import DEFAULT_MODEL, models_installed
    from ..search.models import find_model, fingerprint

    name = resolved.settings.embedding_model or DEFAULT_MODEL
    if not models_installed():
        return Finding("model", "absent", f"{name}: without the models extra retrieval is by BM25 only")
    found = find_model(name, allow_download=False)
    return Finding(
        "model", "ok", f"{found.name} from the {found.origin} {found.path}, weights {fingerprint(found.path)[:8]}"
    )


def _store(resolved: Resolved) -> Finding:
    from ..search import open_store

    with open_store(resolved.settings) as store:
        info = store.info()
        if info is None:
            return Finding("store", "absent", f"{store.name} does not exist yet: ccheck ingest FILE makes it")
        late = f", {info.pending:,} not yet searchable: run the ingest again" if info.pending else ""
        return Finding("store", "ok", f"{info.name}: {info.documents:,} documents{late}, {info.layout.describe()}")


def _elasticsearch(resolved: Resolved) -> Iterator[tuple[Finding, int]]:
    from ..search.open import elastic_url

    settings = resolved.settings
    url, in_use = elastic_url(settings)
    if url is None and settings.elasticsearch_cloud_id is None:
        yield Finding("elasticsearch", "absent", "not set up: --store https://host:9200/INDEX, or ELASTICSEARCH_URL"), 0
        return
    if not in_use:
        detail = (
            f"ELASTICSEARCH_URL is set, but the store is {settings.store}; --store elasticsearch:INDEX would use it"
        )
        yield Finding("elasticsearch", "ok", detail), 0
    from ..search.elastic import connection_from, diagnose

    for part, ok, detail in diagnose(connection_from(settings, url)):
        yield Finding(part, "ok" if ok else "failed", detail), 6 if in_use and not ok else 0
