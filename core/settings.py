"""Settings: a flag wins over the environment, that over ./ccheck.toml, that over the user's file, that over defaults.

In the environment each setting is `CCHECK_` and its name in capitals; those of Elasticsearch also answer to the names
that Elastic's own tools use. In a file a table's name is the first part of its settings' names:

    store = "https://search.example.org:9200/papers"
    [elasticsearch]
    ca_certs = "/etc/ssl/elastic-ca.pem"

Secrets are taken from the environment only.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator

from .errors import InvalidData, UsageError

FILE = "ccheck.toml"
SECRETS = ("elasticsearch_api_key", "elasticsearch_password", "rerank_api_key", "llm_api_key")
_OTHER_NAMES = {"llm_base_url": ("OPENAI_BASE_URL",), "llm_api_key": ("OPENAI_API_KEY",)}
_ELASTIC_PREFIXES = ("ELASTICSEARCH", "ES", "ELASTIC", "ES_LOCAL")


class Settings(BaseModel):
    """Every setting with its default."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    store: str = Field(
        "local:papers", description="where documents live: a folder, local:NAME or https://host:9200/INDEX"
    )
    recipe: str = Field("default", description="the pipeline: a packaged recipe's name or a TOML file")
    embedding_model: str | None = Field(
        None, description="the model for vectors, a folder or a name; by default the store's own, else all-MiniLM-L6-v2"
    )
    device: str | None = Field(None, description="where models run, as torch names it: cpu, cuda, mps")
    data_dir: Path = Field(
        default_factory=lambda: platformdirs.user_data_path("ccheck"), description="the folder of local:NAME stores"
    )
    cache_dir: Path = Field(
        default_factory=lambda: platformdirs.user_cache_path("ccheck"), description="the folder of cached embeddings"
    )
    cache_bytes: int = Field(2 << 30, ge=0, description="how large the cached embeddings may grow; 0 keeps none")
    elasticsearch_url: str | None = Field(None, description="the server of stores named elasticsearch:INDEX")
    elasticsearch_cloud_id: str | None = Field(None, description="the same for Elastic Cloud")
    elasticsearch_api_key: SecretStr | None = Field(None, description="from the environment only")
    elasticsearch_username: str | None = Field(None, description="who asks, where there is no API key")
    elasticsearch_password: SecretStr | None = Field(None, description="from the environment only")
    elasticsearch_ca_certs: Path | None = Field(None, description="PEM file of the authority that signed the server")
    elasticsearch_verify_certs: bool = Field(True, description="false: trust any server, for tests only")
    elasticsearch_timeout: float = Field(30, gt=0, description="seconds for one request")
    elasticsearch_retry_seconds: float = Field(
        120, ge=0, description="how long to wait for a server that is busy or restarts"
    )
    elasticsearch_title_field: str | None = Field(None, description="for an index that ccheck did not make")
    elasticsearch_text_fields: tuple[str, ...] | None = Field(
        None, description="for an index that ccheck did not make, with commas between"
    )
    elasticsearch_vector_field: str | None = Field(None, description="for an index that ccheck did not make")

    rerank: str | None = Field(
        None, description="the reranker, instead of the recipe's: auto, none, a model's name or folder, or a URL"
    )
    rerank_url: str | None = Field(
        None, description="the reranking server that auto uses: ccheck's, TEI's or another's"
    )
    rerank_api_key: SecretStr | None = Field(None, description="from the environment only")
    rerank_timeout: float = Field(60, gt=0, description="seconds for one request to the reranking server")
    rerank_retry_seconds: float = Field(
        30, ge=0, description="how long to wait for a reranking server that is busy or gone"
    )
    stance_model: str | None = Field(None, description="the stance classifier, a folder or a name")
    llm_model: str | None = Field(None, description="the language model, as its server calls it")
    llm_base_url: str = Field(
        "https://api.openai.com/v1", description="the OpenAI-compatible server of the language model"
    )
    llm_api_key: SecretStr | None = Field(None, description="from the environment only")
    llm_timeout: float = Field(120, gt=0, description="seconds for one answer of the language model")
    llm_retry_seconds: float = Field(
        120, ge=0, description="how long to wait for a language model that is busy or gone"
    )
    llm_concurrency: int = Field(8, ge=1, le=256, description="how many questions to the language model at a time")
    llm_max_tokens: int = Field(4096, ge=1, description="tokens of one answer of the language model, its thoughts too")
    llm_max_calls: int | None = Field(None, ge=0, description="stop asking after so many calls")
    llm_max_cost: float | None = Field(None, ge=0, description="stop asking when so much is spent; needs the prices")
    llm_prompt_price: float | None = Field(None, ge=0, description="price of a million prompt tokens")
    llm_completion_price: float | None = Field(None, ge=0, description="price of a million completion tokens")
    prompts_dir: Path | None = Field(None, description="a folder whose prompts take the place of the packaged ones")

    @field_validator("elasticsearch_text_fields", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        return [name.strip() for name in value.split(",")] if isinstance(value, str) else value


@dataclass(frozen=True, slots=True)
class Resolved:
    """The settings in force, and where each came from: `flag`, `default`, a variable's name, or a file's path."""

    settings: Settings
    origins: Mapping[str, str]


def resolve(flags: Mapping[str, Any] | None = None, environ: Mapping[str, str] = os.environ) -> Resolved:
    """Read all layers. A flag that is None was not given.

    Raises InvalidData for a file that can't be read, UsageError for a value that makes no sense.
    """
    values: dict[str, Any] = {}
    origins = dict.fromkeys(Settings.model_fields, "default")

    def take(layer: Mapping[str, tuple[Any, str]]) -> None:
        for name, (value, origin) in layer.items():
            values[name], origins[name] = value, origin

    for file in config_files():
        take({name: (value, str(file)) for name, value in _read(file).items()})
    take(_from_environment(environ))
    take({name: (value, "flag") for name, value in (flags or {}).items() if value is not None})
    try:
        return Resolved(Settings.model_validate(values), origins)
    except ValidationError as error:
        problem = error.errors()[0]
        name = str(problem["loc"][0])
        raise UsageError(f"the setting {name} (from {origins.get(name)}): {problem['msg']}") from error


def config_files() -> list[Path]:
    """The settings files, the one that wins last; they need not exist."""
    return [platformdirs.user_config_path("ccheck") / FILE, Path(FILE)]


def variables(name: str) -> list[str]:
    """The environment variables that set a setting, the one that wins first."""
    names = [f"CCHECK_{name.upper()}"]
    if name.startswith("elasticsearch_"):
        names += [f"{prefix}_{name.removeprefix('elasticsearch_').upper()}" for prefix in _ELASTIC_PREFIXES]
    return [*names, *_OTHER_NAMES.get(name, ())]


def _from_environment(environ: Mapping[str, str]) -> dict[str, tuple[Any, str]]:
    found: dict[str, tuple[Any, str]] = {}
    for name in Settings.model_fields:
        variable = next((variable for variable in variables(name) if environ.get(variable)), None)
        if variable is not None:
            found[name] = environ[variable], variable
    return found


def _read(file: Path) -> dict[str, Any]:
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InvalidData(f"the settings file {file} can't be read: {error}") from error
    values: dict[str, Any] = {}
    for key, value in data.items():
        values |= {f"{key}_{inner}": item for inner, item in value.items()} if isinstance(value, dict) else {key: value}
    for name in values:
        if name in SECRETS:
            raise InvalidData(
                f"{file} holds {name}: secrets are taken from the environment only ({variables(name)[:2][-1]})"
            )
        if name not in Settings.model_fields:
            near = difflib.get_close_matches(name, Settings.model_fields, 1)
            hint = f", did you mean {near[0]!r}?" if near else ""
            raise InvalidData(f"{file} has an unknown setting {name!r}{hint}")
    return values
