"""Shared by the commands that train models: options, settings from a file, progress."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from ...core.errors import UsageError
from .. import opt
from ..common import notice, settings_from

if TYPE_CHECKING:
    from ...core.runtime import Runtime
    from ...lab.train.folders import Output
    from ...lab.train.options import TrainingOptions
    from ..progress import Update


@dataclass(frozen=True, kw_only=True)
class Training:
    """The options that all trainings have; `--set` has the other settings."""

    output: str | None = opt.output("Folder to write the model to.", "FOLDER", heading="Files", complete="files")
    base: str | None = opt.option("Model to start from.  [default: all-MiniLM-L6-v2]", "MODEL")
    preset: str | None = opt.option("Settings of a published system. docs/training.md lists them.", "NAME")
    config: str | None = opt.option(
        "TOML file with settings and file names. Command-line options take precedence.", "FILE"
    )
    resume: bool = opt.option("Continue a training that was interrupted.")
    overwrite: bool = opt.option("Replace the output if it exists.")
    epochs: int | None = opt.option("Number of passes over the data.", least=0, heading="Settings")
    batch: int | None = opt.option("Rows per batch.", least=1)
    learning_rate: float | None = opt.option("Peak learning rate.", least=0)
    seed: int | None = opt.option("Random seed.  [default: 0]", least=0)
    split: Literal["document", "claim"] | None = opt.option(
        "Separate training and test data by document or by claim.  [default: document]"
    )
    settings: tuple[str, ...] = opt.option(
        "Any other setting of docs/training.md, as TOML: clip=0.5. Repeatable.", "KEY=VALUE", names=("--set",)
    )
    device: str | None = opt.under("Running", opt.device)
    as_json: bool = opt.as_json
    quiet: bool = opt.quiet


T = TypeVar("T", bound="TrainingOptions")


def prepared(kind: type[T], asked: Training, files: Sequence[str], needed: Collection[str]) -> tuple[T, dict[str, Any]]:
    """The settings of a training, and what it reads and writes: both come from options or from the --config file.

    `files` are the names of the latter, which are not settings. Raises UsageError if one that is needed is missing,
    NotFound or InvalidData.
    """
    from ...lab.train.loop import require_training
    from ...lab.train.options import load_options, read_config

    require_training()
    config = read_config(Path(asked.config)) if asked.config else {}
    preset = config.pop("preset", None)
    given = {field.name: getattr(asked, field.name) for field in fields(asked)}
    values = {name: given[name] or config.pop(name, None) for name in files}
    config = {name: value for name, value in config.items() if name not in files}
    flags = {name: given[name] for name in kind.model_fields if name in given}
    chosen = load_options(kind, asked.preset or preset, config, flags | settings_of(asked.settings))
    for name in files:
        if name in needed and not values[name]:
            raise UsageError(f"--{name} is missing (or {name} in the --config file)")
    return chosen, values


def output_of(asked: Training, files: Mapping[str, Any]) -> Output:
    """Where the training goes."""
    from ...lab.train.folders import Output

    return Output(Path(files["output"]), asked.resume, asked.overwrite)


def settings_of(given: Sequence[str]) -> dict[str, Any]:
    """`lora={r=8}` and the like. A value that is not TOML is a text."""
    found: dict[str, Any] = {}
    for one in given:
        key, equals, value = one.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--set {one}: write it as KEY=VALUE")
        try:
            found[key.strip()] = tomllib.loads(f"value = {value}")["value"]
        except ValueError:
            found[key.strip()] = value
    return found


def running(asked: Training, **settings: Any) -> Runtime:
    """The runtime of a training: a line for what happens, and on a terminal a bar. Use it in `with`."""
    from ...core.runtime import Runtime, silent
    from ..progress import progress_bar

    def bar(name: str, unit: str | None) -> AbstractContextManager[Update]:
        return progress_bar(name, asked.quiet, unit=unit)

    return Runtime(settings_from(device=asked.device, **settings), silent if asked.quiet else notice, bar)
