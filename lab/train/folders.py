"""The folder that a training works in, and the model that it leaves: whole, or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...core.errors import InvalidData, UsageError
from ...core.files import check_folder, write_text
from ...core.text import json_line
from .loop import Trained

SETTINGS = "settings.json"


@dataclass(frozen=True, slots=True)
class Output:
    """The folder that a training writes. `resume` continues a stopped one."""

    folder: Path
    resume: bool = False


def work_folder(wanted: Output, settings: str) -> Path:
    """`OUTPUT.training`, new or to continue in. Raises UsageError for an output that is there, or without `resume`."""
    output, resume = wanted.folder, wanted.resume
    work = output.with_name(f"{output.name}.training")
    check_folder(output, "the model")
    check_folder(work, "the training")
    if output.exists():
        raise UsageError(f"{output} already exists. Choose another output, or remove it")
    if work.exists() and not _is_training(work):
        raise UsageError(f"{work} is not a training folder of ccheck. Choose another output, or remove this folder")
    # A training that ended before its first checkpoint, for example because of a bad base, has nothing to resume.
    begun = any(work.glob("*/checkpoints/*")) or any(work.glob("*/done.json"))
    if work.exists() and not resume and not begun:
        shutil.rmtree(work)
    if not work.exists():
        work.mkdir(parents=True)
        write_text(work / SETTINGS, settings)
        return work
    if not resume:
        raise UsageError(
            f"{work} contains an unfinished training. Use --resume to continue it, or remove it to start again"
        )
    saved = work / SETTINGS
    if not saved.is_file():
        write_text(saved, settings)  # killed before anything else
    elif saved.read_text(encoding="utf-8") != settings:
        raise UsageError(
            f"{work} contains a training with other settings or data. Use the same ones, or remove it to start again"
        )
    return work


def _is_training(work: Path) -> bool:
    """Whether the folder belongs to a training, maybe one that was killed before it wrote its settings."""
    return (work / SETTINGS).is_file() or all(file.name.startswith(".ccheck-") for file in work.iterdir())


def finish(work: Path, output: Path, save: Callable[[Path], object], card: str, phases: Sequence[Trained]) -> None:
    """Save a model with its card and log, move it to its place whole, and remove the work folder."""
    made = work / "model"
    if made.exists():
        shutil.rmtree(made)
    made.mkdir()
    save(made)
    write_text(made / "README.md", card)
    rows = [{"phase": phase.phase, **row} for phase in phases for row in phase.log]
    write_text(made / "log.jsonl", "".join(map(json_line, rows)))
    strange = [file.name for file in made.rglob("*") if file.suffix in (".bin", ".pt", ".pth", ".pkl")]
    if strange:
        raise InvalidData(
            f"the model was not saved, because it would include {', '.join(strange)}, which are not safetensors files"
        )
    # safetensors writes files that nobody else may read.
    mask = os.umask(0)
    os.umask(mask)
    for file in made.rglob("*"):
        file.chmod((0o777 if file.is_dir() else 0o666) & ~mask)
    made.replace(output)
    shutil.rmtree(work)
