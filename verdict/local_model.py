"""A model of transformers on this machine, whose weights are loaded with the first claim."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..core.errors import NotFound
from ..core.models import best_device, check_device, find_model, require_models


class LocalModel:
    """Finds a model at once and loads it when it is needed. Subclasses say how, in `load`."""

    def __init__(
        self, name: str, purpose: str, device: str | None, on_load: Callable[[], None], allow_download: bool
    ) -> None:
        """`purpose` completes "... needs an extra". `device` as torch names it, by default the fastest there is.

        Raises MissingExtra without torch, and NotFound if the model or its safetensors weights are missing.
        Loading raises UsageError for a device that does not exist.
        """
        require_models(purpose)
        found = find_model(name, allow_download=allow_download)
        if not any(found.path.glob("*.safetensors")):
            raise NotFound(
                f"{found.path} holds no safetensors weights, and ccheck loads no other format. Convert the model with "
                "save_pretrained, or choose another one"
            )
        self.model_name, self.path = found.shown, found.path
        self._device, self._on_load = device, on_load

    def load(self, path: Path, device: str) -> tuple[Any, Any]:
        """The model on a device, and its tokenizer."""
        raise NotImplementedError

    @property
    def network(self) -> Any:
        """The model itself, in evaluation mode: what changes its weights changes what is said next."""
        return self._loaded[0]

    @property
    def tokenizer(self) -> Any:
        return self._loaded[1]

    @functools.cached_property
    def _loaded(self) -> tuple[Any, Any]:
        if self._device is not None:
            check_device(self._device)
        self._on_load()
        return self.load(self.path, self._device or best_device())
