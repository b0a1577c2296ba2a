"""Images and texts to vectors of one space (CLIP), with transformers."""

from __future__ import annotations

import functools
import logging
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from more_itertools import chunked

from ..core.errors import InvalidData, require
from ..core.models import FoundModel, best_device, load_transformer, require_models
from ..core.runtime import Runtime
from ..core.types import Vector

_LOG = logging.getLogger(__name__)
BATCH = 16
FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "TIFF")
"""The formats that are opened, whatever a file is called. Pillow refuses images of more than 179 million pixels."""


class Clip:
    """A CLIP model, loaded when it is first used. Vectors are float32 of unit length, shape [things, dimensions]."""

    def __init__(self, found: FoundModel, device: str | None) -> None:
        """Raises MissingExtra. That there is no such device is a UsageError when the model is loaded."""
        require_models(f"the model of images {found.name}")
        require("reading images", "images", "PIL")
        self.found, self._device = found, device

    @functools.cached_property
    def _loaded(self) -> tuple[Any, Any, Any]:
        """Model, tokenizer and what prepares images. Raises InvalidData for a folder that holds no CLIP model."""
        model, tokenizer, _ = load_transformer(self.found.path, "CLIPModel", "CLIP model")
        import transformers

        # Newer versions have one class for Pillow and one for torchvision.
        kind = getattr(transformers, "CLIPImageProcessorPil", None) or transformers.CLIPImageProcessor
        try:
            prepare = kind.from_pretrained(self.found.path, local_files_only=True)
        except Exception as error:
            raise InvalidData(f"{self.found.path} does not say how images are prepared: {error}") from error
        return model.to(best_device(self._device)), tokenizer, prepare

    def encode_images(self, files: Sequence[Path]) -> list[Vector | None]:
        """None for a file that can't be read as an image."""
        import torch

        model, _, prepare = self._loaded
        vectors: list[Vector | None] = []
        for some in chunked(files, BATCH):
            pictures = [self._read(file) for file in some]
            pixels = [prepare(one, return_tensors="pt")["pixel_values"] for one in pictures if one is not None]
            made: Iterator[Vector] = iter(())
            if pixels:
                with torch.inference_mode():
                    seen = model.vision_model(pixel_values=torch.cat(pixels).to(model.device))
                    made = iter(_unit(model.visual_projection(seen.pooler_output)))
            vectors += [None if one is None else next(made) for one in pictures]
        return vectors

    def encode_texts(self, texts: Sequence[str]) -> Sequence[Vector]:
        """Texts are cut at the model's limit, which for OpenAI's models is 77 tokens."""
        import torch

        model, tokenizer, _ = self._loaded
        limit = model.config.text_config.max_position_embeddings
        given = tokenizer(list(texts), padding=True, truncation=True, max_length=limit, return_tensors="pt")
        with torch.inference_mode():
            read = model.text_model(
                input_ids=given["input_ids"].to(model.device), attention_mask=given["attention_mask"].to(model.device)
            )
            return list(_unit(model.text_projection(read.pooler_output)))

    def _read(self, file: Path) -> Any:
        from PIL import Image

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", Image.DecompressionBombWarning)
                with Image.open(file, formats=FORMATS) as image:
                    return image.convert("RGB")
        except Exception as error:  # noqa: BLE001 - a file can be broken in any way
            _LOG.warning("the image %s can't be read and is left out: %s", file, error)
            return None


def load_clip(name: str, runtime: Runtime) -> Clip:
    """Find a model; see `Clip`. Raises MissingExtra or NotFound."""
    return runtime.once("clip", name, make=lambda: Clip(runtime.find(name), runtime.device))


def _unit(made: Any) -> Vector:
    vectors: Vector = (made / made.norm(dim=-1, keepdim=True)).float().cpu().numpy()
    return vectors
