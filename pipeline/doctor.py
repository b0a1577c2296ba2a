"""The checks of `ccheck doctor`: what works here, what does not, and what to do about it.

for finding in findings(resolve({"store": "local:papers"})):
    print(finding.part, finding.status, finding.detail)
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import platform
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from ..core.errors import CcheckError, Incomplete, InvalidData, MissingExtra, NotFound, ServerError, UsageError
from ..core.install import DISTRIBUTION, install_command
from ..core.keys import key_for
from ..core.models import (
    FoundModel,
    check_device,
    find_model,
    fingerprint,
    gpu_driver_here,
    models_installed,
    require_models,
)
from ..core.recipe import Recipe, load_recipe
from ..core.redaction import redact
from ..core.runtime import Runtime
from ..core.settings import FILE, Resolved, Settings, remember, shown, variables, waiting
from ..core.text import counted, nearest
from ..core.trust import VARIABLE
from ..ingest.apart import NEEDS

if TYPE_CHECKING:
    from ..core.profiles import StoreProfile
    from ..encode.dense import Embedder
    from ..search import Store
    from .plan import Plan

T = TypeVar("T")
EXTRAS = "models fast server mcp parquet documents pages evaluation images train telemetry".split()
PROBE = "sea level has risen"
"""The claim that tests whether a store answers."""


class _Absent(Exception):
    """Something optional is not here."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One part and its state. `absent`: optional and missing. `failed`: needed and not working.

    `exit_code` is that of the failure, else 0.
    """

    part: str
    status: Literal["ok", "absent", "failed"]
    detail: str
    exit_code: int = 0


def findings(resolved: Resolved, *, write_profile: bool = False) -> Iterator[Finding]:
    """Check Python, packages, models, recipe, servers and store, one after the other. Raises nothing on purpose.

    `write_profile` writes the fields of an index that ccheck did not make to the user's settings file.
    """
    yield Finding("python", "ok", f"{platform.python_version()} ({sys.executable})")
    for extra in (None, *EXTRAS):
        yield _tried(extra or "packages", _packages, extra)
    for part, check in _CHECKS.items():
        yield _tried(part, check, resolved.settings)
    server = list(_elasticsearch(resolved))
    yield from server
    if failed := [finding.part for finding in server if finding.exit_code]:
        yield Finding("store", "failed", f"not tried, because {', '.join(failed)} failed", ServerError.exit_code)
    else:
        yield from _store(resolved, write_profile)
    for name, origin in resolved.settings.origins.items():
        if origin != "default":
            yield Finding("setting", "ok", f"{name} = {shown(getattr(resolved.settings, name))} (from {origin})")
    if resolved.pending:
        yield Finding("setting", "failed", waiting(Path(FILE), resolved.pending), UsageError.exit_code)
    known = {*(first for name in Settings.model_fields for first in variables(name)[:1]), "CCHECK_DEBUG", VARIABLE}
    for name in sorted(set(os.environ) - known):
        served = name.startswith("CCHECK_SERVE_")  # options of ccheck serve, which knows them
        if name.startswith("CCHECK_") and not served and (near := nearest(name, known, cutoff=0.8)):
            yield Finding("setting", "absent", f"{name} is not a ccheck setting: did you mean {near}?")


def _tried(part: str, check: Callable[[T], str], given: T) -> Finding:
    """What a check says, or why it can't."""
    try:
        return Finding(part, "ok", check(given))
    except _Absent as error:
        return Finding(part, "absent", str(error))
    except CcheckError as error:
        return Finding(part, "failed", str(error), error.exit_code)


def _packages(extra: str | None) -> str:
    """The packages that ccheck, or one of its extras, requires."""
    try:
        lines = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        lines = []
    asked = [line for line in lines if (f'extra == "{extra}"' in line if extra else "extra ==" not in line)]
    names = [re.split(r"[^\w.-]", line)[0] for line in asked]
    versions = {name: _version(name) for name in names if name != DISTRIBUTION}
    missing = [name for name, version in versions.items() if version is None]
    if missing:
        raise _Absent(f"{', '.join(missing)} not installed: {install_command(extra)}")
    for _, brings, library in NEEDS.values():
        try:
            if brings == extra:
                importlib.import_module(library)
        except Exception as error:  # whatever another package that it needs does
            why = " ".join(str(error).split())
            raise _Absent(f"{library} can't be loaded ({why}): {install_command(extra)}") from error
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _device(settings: Settings) -> str:
    """Imports torch, which takes seconds, only where a device is named or this machine may have a GPU."""
    wanted = settings.device
    if wanted in (None, "cpu") and not gpu_driver_here():
        return "cpu" if wanted else "cpu: no driver of a GPU on this machine"
    if _version("torch") is None:
        if wanted not in (None, "cpu"):
            raise MissingExtra(f"the device {wanted}", "models")
        return f"cpu: to use the GPU, {install_command('models')}"
    if wanted is not None:
        check_device(wanted)
        return f"{wanted} (from the settings)"
    import torch

    if torch.cuda.is_available():
        memory = torch.cuda.mem_get_info()[1] / 2**30
        return f"cuda: {torch.cuda.get_device_name()}, {memory:.0f} GiB"
    return "mps: Apple's GPU" if torch.backends.mps.is_available() else f"cpu: torch {torch.__version__} sees no GPU"


def _found(name: str, named: bool, missing: str = "{}") -> FoundModel:
    """A model on this machine. Raises NotFound for one that a setting named, else _Absent with what is `missing`."""
    try:
        return find_model(name, download=False)
    except NotFound as error:
        if named:
            raise
        raise _Absent(missing.format(error)) from error


def _model(settings: Settings) -> str:
    from ..encode.dense import DEFAULT_MODEL, MANY, run_by_numpy

    named = settings.embedding_model
    later = "{}. With access to the hub, the first ingest or query downloads it"
    found = _found(named or DEFAULT_MODEL, named is not None, later)
    by_numpy = run_by_numpy(found, settings.device) is not None
    if not by_numpy:
        require_models(f"the embedding model {found.name}")
    how = "numpy" if by_numpy else "sentence-transformers"
    if by_numpy and settings.device is None and gpu_driver_here() and models_installed():
        how += f", {MANY} texts and more with sentence-transformers on the GPU"
    elif by_numpy and _version("openvino"):
        how += f", {MANY} texts and more with OpenVINO"
    return f"{found.name}, weights {fingerprint(found.path)[:8]}, {found.origin} {found.path}, run with {how}"


def _reranker(settings: Settings) -> str:
    """The reranker that --rerank auto would choose. A server is asked whether it is there."""
    from ..core.stages import LateStage
    from ..rerank.open import choose_model, is_url, open_remote

    try:
        name = settings.rerank if settings.rerank not in (None, "auto") else choose_model(settings)
    except (MissingExtra, NotFound):
        name = "late"
    if name == "none":
        return "none (from the settings)"
    if is_url(name):
        brief = {"rerank_timeout": min(10, settings.rerank_timeout), "rerank_retry_seconds": 0}
        server = open_remote(name, Runtime(settings.model_copy(update=brief)))
        server("a claim", ["a passage", "another passage"])
        return "; ".join(filter(None, (f"{server.name} answers", server.notice)))
    found = _found(LateStage().model if name == "late" else name, settings.rerank == name)
    how = "late interaction with " if name == "late" else ""
    return f"{how}{found.name}, {found.origin} {found.path}"


def _verdict(settings: Settings) -> str:
    """The judge that --verdict auto would choose. A language model is not asked, since that may cost money."""
    from ..verdict.open import default_stance_model
    from ..verdict.packaged_model import PACKAGED, PackagedStances

    if settings.llm_model is not None:
        key = key_for(settings, "llm_api_key", settings.llm_base_url)
        said = "with a key" if key.value else "with no key"
        asked = f"llm: {settings.llm_model} at {redact(settings.llm_base_url)}, {said}; not asked"
        return "; ".join(filter(None, (asked, key.withheld)))
    none = "no language model is configured, and {}"
    name = settings.stance_model or default_stance_model()
    if name == PACKAGED:
        return PackagedStances(Runtime(download=False)).name
    if not models_installed():
        raise _Absent(none.format(f"{name} needs the models extra"))
    found = _found(name, settings.stance_model is not None, none)
    return f"stance: {found.name}, {found.origin} {found.path}"


def _recipe(settings: Settings) -> str:
    recipe = load_recipe(settings.recipe)
    return f"{recipe.name}: {recipe.description or ', '.join(recipe.retrievers)}"


_CHECKS: Mapping[str, Callable[[Settings], str]] = {
    "device": _device,
    "model": _model,
    "reranker": _reranker,
    "verdict": _verdict,
    "recipe": _recipe,
}


def _profile(profile: StoreProfile, dimensions: int | None, model: str | None) -> Finding:
    """The fields of an index that ccheck did not make, as the settings can name them; `model` is the one to test."""
    said = [
        f"{name} = {', '.join(value) if isinstance(value, tuple) else value or 'none'}"
        for name, value in profile.model_dump(exclude_none=True).items()
    ]
    if dimensions is not None:
        said.append(f"{dimensions} dimensions")
        if not profile.model:
            unknown = "model unknown: the vectors are searched once you name it"
            said.append(unknown if model is None else f"the mapping does not say the model, and you named {model}")
    return Finding("profile", "ok", "; ".join(said))


def _agreement(store: Store, embedder: Embedder) -> Finding:
    """Whether the named model made the vectors of an index that does not say."""
    from ..search.elastic import ElasticStore
    from .agreement import SAMPLED, agreement

    found = store.with_vectors(SAMPLED) if isinstance(store, ElasticStore) else []
    if not found:
        return Finding("agreement", "absent", "not tested: no document has vectors, and a text beside them, to compare")
    one = agreement(found, embedder.encode_documents)
    detail = f"{one.describe(embedder.spec.model, store.name)}: {one.verdict}"
    same = one.verdict.startswith("the model")
    return Finding("agreement", "ok" if same else "failed", detail, 0 if same else InvalidData.exit_code)


def _store(resolved: Resolved, write_profile: bool) -> Iterator[Finding]:
    """Checks the store as a query does before its first claim, and with one search. Nothing is downloaded for it."""
    from ..core.types import Claim
    from .checker import Checker
    from .plan import DEGRADED

    try:
        recipe = only_searching(load_recipe(resolved.settings.recipe))
        with Runtime(resolved.settings, download=False) as runtime, Checker(runtime, recipe=recipe) as checker:
            info = checker.store.info()
            profile = info.profile if info is not None else None
            if write_profile and profile is None:
                why = "nothing was written: only an index that ccheck did not make has a profile"
                yield Finding("profile", "failed", why, UsageError.exit_code)
            if info is None:
                absent = f"{checker.store.name} does not exist yet. Create it with ccheck ingest FILE"
                yield Finding("store", "absent", absent)
                return
            about = [f"{info.name}: {counted(info.documents or 0, 'document')}", info.made_with]
            about += [f"{what}: {said}" for what, said in info.details.items()]
            model = resolved.settings.embedding_model
            if profile is not None:
                # The model of a companion is known, and is said with the store.
                yield _profile(profile, None if info.layout.dense else info.dimensions, model)
            plan: Plan | None = None
            try:
                plan = checker.plan(compared=False)  # this says so itself, below
                checker.check(Claim(PROBE), k=1)
                about.append(f"searched with {', '.join(plan.retrievers)}")
            except NotFound as error:
                if error.model is None:
                    raise
                plan = None
                about.append(f"not searched: {error}. With access to the hub, a query downloads it")
            yield Finding("store", "ok" if plan is not None else "absent", "; ".join(about))
            late = bool(info.degraded or info.pending)
            for warning in plan.warnings if plan is not None else ():
                if late and warning.startswith(DEGRADED):
                    yield Finding("search", "failed", warning, Incomplete.exit_code)
                else:
                    yield Finding("search", "absent", warning)
            if not info.made_here and plan is not None and plan.embedder is not None:
                yield (agreed := _agreement(checker.store, plan.embedder))
                if profile is not None and agreed.status == "ok" and model is not None:
                    profile = profile.model_copy(update={"model": model})
            if profile is not None and write_profile:
                named = f", with the model {profile.model}" if profile.model else ""
                yield Finding("profile", "ok", f"written to {remember(info.name, profile)}{named}")
    except CcheckError as error:
        yield Finding("store", "failed", str(error), error.exit_code)


def only_searching(recipe: Recipe) -> Recipe:
    """The recipe without rewriting, reranking and judging, which have findings of their own and may cost money."""
    searching = {name: stage.model_copy(update={"query": "claim"}) for name, stage in recipe.retrievers.items()}
    nobody = recipe.verdict.model_copy(update={"method": "none"})
    return recipe.model_copy(update={"retrievers": searching, "rerankers": {}, "verdict": nobody})


def _elasticsearch(resolved: Resolved) -> Iterator[Finding]:
    """The server, where the settings name one; what is wrong with it matters where the store is on it."""
    from ..search.elastic import connection_from, diagnose
    from ..search.open import on_server

    settings = resolved.settings
    try:
        named = on_server(settings)
        url, index = named or (settings.elasticsearch_url, None)
        if url is None:
            detail = "not configured. Use --store https://host:9200/INDEX, or set ELASTICSEARCH_URL"
            yield Finding("elasticsearch", "absent", detail)
            return
        connection = connection_from(settings, url)
    except CcheckError as error:
        yield Finding("elasticsearch", "failed", str(error), error.exit_code)
        return
    for part, ok, detail in diagnose(connection, index):
        if named:
            yield Finding(part, "ok" if ok else "failed", detail, 0 if ok else ServerError.exit_code)
        else:
            unused = f"{detail} (not in use: the store is {shown(settings.store)})"
            yield Finding(part, "ok" if ok else "absent", unused)
