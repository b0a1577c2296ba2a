"""`ccheck convert`: weights in a format that ccheck does not load, as safetensors."""

from __future__ import annotations

import signal
from pathlib import Path

from . import opt
from .common import counted, inform


@opt.command
def convert(name: str = opt.argument("MODEL"), output: str = opt.argument("FOLDER")) -> None:
    """Convert weights that torch saved into safetensors.

    \b
    ccheck convert BAAI/bge-m3 bge-m3
    ccheck train embedder --preset climatecheck-hybrid --base ./bge-m3 ...

    MODEL is a name on the hub or a folder with pytorch_model.bin. It is read once, as tensors alone, by a process that
    has no network and no keys. Use FOLDER as the model from then on.
    """
    from ..core.convert import convert as made

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that nothing half-made stays, as after Ctrl-C
    weights = made(name, Path(output))
    inform(f"{output} has {counted(len(weights), 'file')} of safetensors. Name it with ./{output} or its full path")
