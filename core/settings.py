"""Settings: from a flag, else the environment, else ./ccheck.toml, else the user's file, else the default.

In the environment, a setting is `CCHECK_` and its name in capitals. The names that Elastic's own tools use work too. In
a file, the first part of a setting's name can be a table:

    store = "https://search.example.org:9200/papers"
    [elasticsearch]
    ca_certs = "/etc/ssl/elastic-ca.pem"

Secrets are taken from the environment only. A folder can come from a stranger, so its ./ccheck.toml can set only
harmless things (`Here` marks them, in the model below). The rest waits until the user allows it: see `core/trust.py`.
Whatever a folder or a recipe names, keys go only to the user's own servers: see `core/keys.py`.
"""

from __future__ import annotations

import json
import os
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import platformdirs
from pydantic import Field, PrivateAttr, SecretStr, ValidationError, field_validator

from .errors import InvalidData, NotFound, UsageError
from .files import write_text
from .profiles import Names, StoreProfile, names_models
from .redaction import keep_secret, keep_secrets_of, redact
from .table import Table
from .text import did_you_mean, printable, shortened
from .trust import VARIABLE, digest, is_trusted, trust

FILE = "ccheck.toml"
SECRETS = ("elasticsearch_api_key", "elasticsearch_password", "rerank_api_key", "llm_api_key")
_OTHER_SECRETS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "CCHECK_SERVE_API_KEY", "CCHECK_SERVER_KEY")
"""Variables that ccheck does not set by, and never shows."""
_OTHER_NAMES = {"llm_base_url": ("OPENAI_BASE_URL",), "llm_api_key": ("OPENAI_API_KEY",)}
_ELASTIC_PREFIXES = ("ELASTICSEARCH", "ES", "ELASTIC", "ES_LOCAL")


FLAG, DEFAULT = "flag", "default"
PROFILES = "stores"
"""The setting that is a table of tables."""
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Here:
    """Marks what the ./ccheck.toml of a stranger's folder can set without consent: values that `harmless` accepts."""

    harmless: Callable[[object], bool] = lambda value: True


def _is_below(value: object) -> bool:
    """Whether a store is a folder in the current one. A link that leads out of it is not."""
    if not isinstance(value, str) or ":" in value or value.startswith("~"):
        return False
    return Path(value).resolve().is_relative_to(Path.cwd().resolve())


def _is_packaged_recipe(value: object) -> bool:
    from .recipe import recipe_names

    return value in recipe_names()


class Settings(Table):
    """Every setting with its default."""

    store: Annotated[str, Here(_is_below)] = Field(
        "local:papers", description="where documents live: a folder, local:NAME or https://host:9200/INDEX"
    )
    recipe: Annotated[str, Here(_is_packaged_recipe)] = Field(
        "default", description="the pipeline: a packaged recipe's name or a TOML file"
    )
    embedding_model: str | None = Field(
        None,
        description="the model for vectors, a folder or a name; default: the store's own, else bge-small-en-v1.5-int8",
    )
    embedding_precision: Literal["float32", "bfloat16"] = Field(
        "float32", description="how vectors of documents are calculated; bfloat16 is faster where the device has it"
    )
    device: Annotated[str | None, Here()] = Field(
        None, description="the device that models run on, as torch names it: cpu, cuda, mps"
    )
    data_dir: Path = Field(
        default_factory=lambda: platformdirs.user_data_path("ccheck"), description="the folder of local:NAME stores"
    )
    cache_dir: Path = Field(
        default_factory=lambda: platformdirs.user_cache_path("ccheck"), description="the folder of cached embeddings"
    )
    cache_bytes: Annotated[int, Here()] = Field(
        2 << 30, ge=0, description="largest size of the cached embeddings, in bytes; 0 keeps none"
    )
    record: Annotated[bool, Here(lambda value: value is False)] = Field(
        True, description="keep every check, with its claim, for ccheck history"
    )
    record_days: int | None = Field(
        None, ge=1, description="forget checks that are older than this many days and have no corrections"
    )
    public_url: str | None = Field(None, description="where people open ccheck's page, for links to recorded checks")
    elasticsearch_url: str | None = Field(None, description="the server for stores named elasticsearch:INDEX")
    elasticsearch_hosts: Names | None = Field(
        None, description="further addresses of that server's cluster; separate several with commas"
    )
    elasticsearch_api_key: SecretStr | None = Field(None, description="from the environment only")
    elasticsearch_username: str | None = Field(None, description="user name, if you have no API key")
    elasticsearch_password: SecretStr | None = Field(None, description="from the environment only")
    elasticsearch_ca_certs: Path | None = Field(
        None, description="PEM file of the authority that signed the server's certificate"
    )
    elasticsearch_ca_fingerprint: str | None = Field(
        None, description="SHA-256 of that authority's certificate, as the server prints it at its first start"
    )
    elasticsearch_client_cert: Path | None = Field(None, description="PEM file of your certificate for the server")
    elasticsearch_client_key: Path | None = Field(None, description="PEM file of its private key")
    elasticsearch_compress: Annotated[bool, Here()] = Field(False, description="compress requests and answers")
    elasticsearch_verify_certs: bool = Field(True, description="false: accept any certificate, for tests only")
    elasticsearch_timeout: Annotated[float, Here()] = Field(30, gt=0, description="seconds for one request")
    elasticsearch_retry_seconds: Annotated[float, Here()] = Field(
        120, ge=0, description="how long to wait for a server that is busy or restarts"
    )
    elasticsearch_concurrency: Annotated[int, Here()] = Field(
        8, ge=1, le=256, description="how many searches, or write requests, one ccheck runs on the server at a time"
    )
    stores: Annotated[Mapping[str, StoreProfile], Here(lambda value: not names_models(value))] = Field(
        {}, description="the fields of indices that ccheck did not make: a table for each store"
    )

    rerank: Annotated[str | None, Here(("auto", "late", "none").__contains__)] = Field(
        None,
        description="the reranker, instead of the recipe's: auto, late, none, a model's name or folder, or a URL",
    )
    rerank_url: str | None = Field(
        None,
        description="the reranking server that auto uses, ccheck's, TEI's or another's; several with commas between",
    )
    rerank_api_key: SecretStr | None = Field(None, description="from the environment only")
    rerank_timeout: Annotated[float, Here()] = Field(
        60, gt=0, description="seconds for one request to the reranking server"
    )
    rerank_retry_seconds: Annotated[float, Here()] = Field(
        30, ge=0, description="how long to wait for a reranking server that is busy or gone"
    )
    stance_model: str | None = Field(None, description="the stance classifier, a folder or a name")
    llm_model: str | None = Field(None, description="the language model: the server's name for it")
    llm_base_url: str = Field(
        "https://api.openai.com/v1", description="the OpenAI-compatible server of the language model"
    )
    llm_api_key: SecretStr | None = Field(None, description="from the environment only")
    llm_timeout: Annotated[float, Here()] = Field(
        120, gt=0, description="seconds to wait for one answer of the language model"
    )
    llm_retry_seconds: Annotated[float, Here()] = Field(
        120, ge=0, description="how long to wait for a language model that is busy or gone"
    )
    llm_concurrency: Annotated[int, Here()] = Field(
        8, ge=1, le=256, description="how many questions the language model gets at a time"
    )
    llm_max_tokens: int = Field(
        4096, ge=1, description="largest answer of the language model in tokens, reasoning included"
    )
    llm_max_calls: int | None = Field(None, ge=0, description="stop after this many calls to the language model")
    llm_max_cost: float | None = Field(
        None, ge=0, description="stop when the language model has cost this much; needs the prices"
    )
    llm_prompt_price: float | None = Field(None, ge=0, description="price of a million prompt tokens")
    llm_completion_price: float | None = Field(None, ge=0, description="price of a million completion tokens")
    llm_currency: str | None = Field(
        None, description="currency of these prices, such as EUR, for the record of checks"
    )
    prompts_dir: Path | None = Field(None, description="a folder with prompts that replace the packaged ones")

    _origins: Mapping[str, str] = PrivateAttr(default_factory=dict)
    _yours: Mapping[str, Any] = PrivateAttr(default_factory=dict)

    @property
    def origins(self) -> Mapping[str, str]:
        """Where each setting came from: `flag`, `default`, a variable's name, or a file's path. Empty if the
        settings were not read by `resolve`."""
        return self._origins

    def yours(self, name: str) -> Any:
        """A setting from flags, the environment or the user's own file; else its default.

        ./ccheck.toml is not read, even if the user allowed it.
        """
        return self._yours.get(name, getattr(self, name))

    def model_post_init(self, context: Any) -> None:
        for name in type(self).model_fields:
            value = getattr(self, name)
            if isinstance(value, SecretStr):
                keep_secret(value.get_secret_value())
            elif isinstance(value, str) and "://" in value:
                keep_secrets_of(value)
        for address in self.elasticsearch_hosts or ():
            keep_secrets_of(address)

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        for name, value in super().__repr_args__():
            yield name, redact(value) if isinstance(value, str) else value

    @field_validator("stores", mode="before")
    @classmethod
    def _read_stores(cls, value: object) -> object:
        return json.loads(value) if isinstance(value, str) else value


@dataclass(frozen=True, slots=True)
class Resolved:
    """The settings in use, and those of ./ccheck.toml that wait for the user's consent."""

    settings: Settings
    pending: Mapping[str, Any] = field(default_factory=dict)


def resolve(
    flags: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] = os.environ,
    *,
    trust_folder: bool = False,
    show_pending: bool = False,
) -> Resolved:
    """Read all layers. A flag that is None was not given.

    If ./ccheck.toml sets something that only the user may choose, the user must have allowed that file as it is, or set
    `trust_folder`. Otherwise it is an error. With `show_pending`, such settings are left out and listed instead.

    Raises UsageError for a file that can't be read, and for a value that is not valid or waits for consent.
    """
    users, here = config_files()
    said = {name: value for name, value in (flags or {}).items() if value is not None}
    keep_secret(*(environ.get(name) for name in _OTHER_SECRETS))
    ours_said, content = _read(here)
    strong = _from_environment(environ) | {name: (value, FLAG) for name, value in said.items()}
    own = {name: (value, str(users)) for name, value in _read(users)[0].items()} | strong
    pending = {name: value for name, value in ours_said.items() if name not in strong and not _is_harmless(name, value)}
    if pending and (trust_folder or environ.get(VARIABLE) == "1" or is_trusted(here, digest(content, ours_said))):
        pending = {}
    if pending and not show_pending:
        raise UsageError(waiting(here, pending))
    ours = {name: (value, str(here)) for name, value in ours_said.items() if name not in pending}
    if all(
        isinstance(one.get(PROFILES, (None,))[0], dict) for one in (ours, own)
    ):  # each file adds to the stores of the other
        ours[PROFILES] = {**own[PROFILES][0], **ours[PROFILES][0]}, str(here)
    found = own | ours | strong
    origins = {name: found[name][1] if name in found else DEFAULT for name in Settings.model_fields}
    try:
        settings = Settings.model_validate({name: value for name, (value, _) in found.items()})
    except ValidationError as error:
        problem = error.errors()[0]
        why = problem["msg"].removeprefix("Value error, ")
        if not problem["loc"]:
            raise UsageError(f"{why} (ccheck config shows the settings)") from error
        name = str(problem["loc"][0])
        raise UsageError(f"the setting {name} (from {origins.get(name)}): {why}") from error
    settings._origins = origins
    settings._yours = {
        name: own[name][0] if name in own else field.get_default(call_default_factory=True)
        for name, field in Settings.model_fields.items()
    }
    return Resolved(settings, pending)


def waiting(file: Path, pending: Mapping[str, Any]) -> str:
    """The message that settings of a folder's file wait for consent, and how to give it."""
    said = ", ".join(f"{name} = {shortened(printable(redact(str(value))), 100)!r}" for name, value in pending.items())
    return (
        f"./{file} sets {said}, which only you may choose. You have not allowed this file in its current state\n"
        "hint: read it first. Then `ccheck config trust` allows it until it changes, or "
        f"`ccheck --trust-folder COMMAND` ({VARIABLE}=1, in Python trust_folder=True) allows it once"
    )


def accept(*, withdraw: bool = False) -> tuple[Path, Mapping[str, Any]]:
    """Allow ./ccheck.toml as it is now, or no longer. Returns the file, and its settings that only the user may choose.

    Raises NotFound if there is no such file, or it was not allowed.
    """
    here = config_files()[1]
    values, content = _read(here)
    if withdraw:
        if not trust(here, None):
            raise NotFound(f"{here.resolve()} was not allowed before, so there is nothing to revoke")
        return here, {}
    if not here.is_file():
        raise NotFound(f"this folder has no {FILE}, so there is nothing to trust")
    trust(here, digest(content, values))
    return here, {name: value for name, value in values.items() if not _is_harmless(name, value)}


def remember(store: str, profile: StoreProfile) -> Path:
    """Add a store's profile to the user's settings file, which is returned; the model alone if it has the others.

    Raises UsageError if the file has another one of that store or can't be read, InvalidData if it can't be written.
    """
    file, name = config_files()[0], redact(store)
    known = _read(file)[0].get(PROFILES, {}).get(name)
    # JSON's strings and lists are TOML's, except for one character that JSON leaves as it is.
    rows = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in profile if value is not None]
    table = "\n".join([f"[stores.{json.dumps(name, ensure_ascii=False)}]", *rows, ""]).replace("\x7f", "\\u007f")
    bare = "\n".join(row for row in table.split("\n") if not row.startswith("model = "))
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        text = file.read_text("utf-8").rstrip() + "\n" if file.exists() else ""
        if known is not None and (bare not in text or table == bare or "model" in known):
            raise UsageError(f"{file} already has a profile of {name}. Change it there, or remove it first")
        whole = f"{text}\n{table}".lstrip() if known is None else text.replace(bare, table)
        tomllib.loads(whole)
        write_text(file, whole)
    except tomllib.TOMLDecodeError as error:  # stores = {...} can't be added to
        raise UsageError(
            f"{file} has its profiles in one line. Give each a table of its own, as in\n\n{table}"
        ) from error
    except OSError as error:
        raise InvalidData(f"the settings file {file} can't be written: {error.strerror}") from error
    return file


def unasked(name: str) -> Here | None:
    """The mark of a setting that a folder's file can set without the user's consent; None: it can't."""
    return next((mark for mark in Settings.model_fields[name].metadata if isinstance(mark, Here)), None)


def _is_harmless(name: str, value: object) -> bool:
    mark = unasked(name)
    return mark is not None and mark.harmless(value)


def config_files() -> list[Path]:
    """The settings files; later ones override earlier ones. They need not exist."""
    return [platformdirs.user_config_path("ccheck") / FILE, Path(FILE)]


def variables(name: str) -> list[str]:
    """The environment variables that set a setting; earlier ones override later ones."""
    names = [f"CCHECK_{name.upper()}"]
    if name.startswith("elasticsearch_"):
        names += [f"{prefix}_{name.removeprefix('elasticsearch_').upper()}" for prefix in _ELASTIC_PREFIXES]
    return [*names, *_OTHER_NAMES.get(name, ())]


def _from_environment(environ: Mapping[str, str]) -> dict[str, tuple[Any, str]]:
    given = ((name, next(filter(environ.get, variables(name)), None)) for name in Settings.model_fields)
    return {name: (environ[variable], variable) for name, variable in given if variable is not None}


def _read(file: Path) -> tuple[dict[str, Any], bytes]:
    """The settings of a file, and its content."""
    try:
        with open(file, "rb", opener=_open_regular) as stream:
            content = stream.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise ValueError(f"it is larger than {_MOST_BYTES >> 20} MiB")
        data = tomllib.loads(content.decode("utf-8"))
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return {}, b""
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"the settings file {file} can't be read: {error}") from error
    values: dict[str, Any] = {}
    for key, value in data.items():
        table = isinstance(value, dict) and key != PROFILES
        values |= {f"{key}_{inner}": item for inner, item in value.items()} if table else {key: value}
    for name in values:
        if name in SECRETS:
            raise UsageError(
                f"{file} holds {name}: ccheck takes secrets from the environment only ({variables(name)[:2][-1]})"
            )
        if name not in Settings.model_fields:
            hint = did_you_mean(name, Settings.model_fields, "ccheck config shows the settings")
            raise UsageError(f"{file} has an unknown setting {name!r}: {hint}")
    return values, content


def _open_regular(path: str, flags: int) -> int:
    """Opens a file, not a device or a pipe, which could keep whoever reads it waiting for ever."""
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        if Path(path).is_dir():
            raise IsADirectoryError(path)
        raise ValueError("it is not a file")
    return descriptor


def shown(value: Any) -> Any:
    """A setting's value as it may be printed: a secret only as set or not, a URL without its password and tokens."""
    if isinstance(value, SecretStr):
        return "(set)"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, Mapping):
        said = {redact(name): one.model_dump(exclude_none=True) for name, one in value.items()}
        return json.dumps(said, ensure_ascii=False) if said else None
    if isinstance(value, str | Path):
        return redact(str(value))
    return value
