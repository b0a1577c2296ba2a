"""What a saved model's folder holds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def tokenizer_of(folder: Path) -> dict[str, Any]:
    """What decides how the folder's tokenizer reads a text: in training, special tokens in texts are read as words."""
    saved = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    return {part: saved[part] for part in ("normalizer", "pre_tokenizer", "post_processor", "model", "added_tokens")}
