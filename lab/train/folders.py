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
from .card import TRAINED_BY
from .loop import Trained

SETTINGS = "settings.json"


@dataclass(frozen=True, slots=True)
class Output:
    """The folder that a training writes. `resume` continues a stopped one, `overwrite` replaces what is there."""

    folder: Path
    resume: bool = False
    overwrite: bool = False


def work_folder(wanted: Output, settings: str) -> Path:
    """`OUTPUT.training`, new or to continue in. Raises UsageError if it exists and neither flag was given."""
    output, resume, overwrite = wanted.folder, wanted.resume, wanted.overwrite
    work = output.with_name(f"{output.name}.training")
    check_folder(output, "the model")
    check_folder(work, "the training")
    if output.exists() and not overwrite:
        raise UsageError(f"{output} already exists. Choose another output, or use --overwrite to replace it")
    if output.exists() and not _is_trained(output):
        raise UsageError(
            f"{output} is not a model that ccheck trained, so --overwrite does not replace it. Choose another output"
        )
    if work.exists() and not _is_training(work):
        raise UsageError(f"{work} is not a training folder of ccheck. Choose another output, or remove this folder")
    # A training that ended before its first checkpoint, for example because of a bad base, has nothing to resume.
    begun = any(work.glob("*/checkpoints/*")) or any(work.glob("*/done.json"))
    if work.exists() and not resume and (overwrite or not begun):
        shutil.rmtree(work)
    if not work.exists():
        work.mkdir(parents=True)
        write_text(work / SETTINGS, settings)
        return work
    if not resume:
        raise UsageError(
            f"{work} contains an unfinished training. Use --resume to continue it, or --overwrite to start again"
        )
    saved = work / SETTINGS
    if not saved.is_file():
        write_text(saved, settings)  # killed before anything else
    elif saved.read_text(encoding="utf-8") != settings:
        raise UsageError(
            f"{work} contains a training with other settings or data. Use the same ones, or --overwrite to start again"
        )
    return work


def _is_trained(folder: Path) -> bool:
    """Whether the folder has the card of a model that was trained here."""
    card = folder / "README.md"
    if not card.is_file():
        return False
    with card.open("rb") as stream:
        return TRAINED_BY in stream.read(1 << 16).decode("utf-8", "replace")


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
    if output.exists():
        old = work / "replaced"
        output.replace(old)
    made.replace(output)
    shutil.rmtree(work)
