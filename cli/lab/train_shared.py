"""Shared by the commands that train models: options, settings from a file, progress."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ...core.errors import UsageError
from .. import opt
from ..common import notice

if TYPE_CHECKING:
    from ...lab.train.figures import Figure
    from ...lab.train.loop import Listener
    from ...lab.train.options import TrainingOptions

output = click.option("--output", "-o", metavar="FOLDER", help="Folder to write the model to.")
base = click.option("--base", metavar="MODEL", help="Model to start from.  [default: all-MiniLM-L6-v2]")
config = opt.file("--config", help="TOML file with settings and file names. Command-line options take precedence.")
seed = opt.number("--seed", least=0, help="Random seed.  [default: 0]")
split = click.option(
    "--split",
    type=click.Choice(["document", "claim"]),
    help="Separate training and test data by document or by claim.  [default: document]",
)
overwrite = click.option("--overwrite", is_flag=True, help="Replace the output if it exists.")
resume = click.option("--resume", is_flag=True, help="Continue a training that was interrupted.")


def others(example: str) -> opt.Option:
    """`--set`, for the settings that have no option of their own."""
    return click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        help=f"Any other setting of docs/training.md, as TOML: {example}. Repeatable.",
    )


T = TypeVar("T", bound="TrainingOptions")


def prepared(
    kind: type[T], given: Mapping[str, Any], files: Sequence[str], needed: Collection[str]
) -> tuple[T, dict[str, Any]]:
    """The settings of a training, and what it reads and writes: both come from options or from the --config file.

    `files` are the names of the latter, which are not settings. Raises UsageError if one that is needed is missing,
    NotFound or InvalidData.
    """
    from ...lab.train.loop import require_training
    from ...lab.train.options import load_options, read_config

    require_training()
    config = read_config(Path(given["config"])) if given["config"] else {}
    preset = config.pop("preset", None)
    values = {name: config.pop(name, None) for name in files}
    values |= {name: given[name] for name in files if given.get(name)}
    flags = {name: given[name] for name in kind.model_fields if name in given}
    chosen = load_options(kind, given["preset"] or preset, config, flags | settings_of(given["settings"]))
    for name in files:
        if name in needed and not values[name]:
            raise UsageError(f"--{name} is missing (or {name} in the --config file)")
    return chosen, values


def how(given: Mapping[str, Any], listener: Listener) -> dict[str, Any]:
    """A training's arguments besides its settings and data; `resume` only for commands that have the option."""
    return {"listener": listener, **{name: given[name] for name in ("device", "overwrite", "resume") if name in given}}


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


@contextmanager
def listening(quiet: bool) -> Iterator[Listener]:
    """A line for what happens, and on a terminal a bar with the loss and the time left."""
    from ...lab.train.loop import Silent
    from ..progress import progress_bar

    if quiet:
        yield Silent()
        return
    with progress_bar("training", quiet) as update:

        class Shown:
            def step(self, phase: str, step: int, steps: int, loss: float | None, seconds_left: float | None) -> None:
                update(step, steps, facts="" if loss is None else f"loss {loss:.4f}", name=phase)

            def measured(self, phase: str, epoch: float, metric: str, value: float) -> None:
                notice(f"{phase}, epoch {epoch:.4g}: {metric} {value:.4f}")

            def message(self, text: str) -> None:
                notice(text)

        yield Shown()


def figure_fields(figures: Sequence[Figure]) -> dict[str, str]:
    """The figures of a trained ranking, for `print_fields`."""
    return {
        f"{figure.metric} {figure.group} ({figure.claims})": f"{figure.describe()}, {figure.change()}"
        for figure in figures
    }
