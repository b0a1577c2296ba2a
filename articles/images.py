"""Where the images of an article's figures and tables are: files beside it or in a folder of images."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from ..core.errors import NotFound
from .types import Element

ENDINGS = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".tif", ".tiff")


def image_finder(folders: Sequence[str | Path]) -> Callable[[str, Element], Path | None]:
    """Finds an element's image in these folders and their subfolders, by names alone: no path of an article is opened.

    A file counts if it has the name that the article gives the image (with or without an ending), or if it lies in a
    folder with the article's id and has the name that Context24 gives the element (`FIG 1.png`). Links are not
    followed. Raises NotFound for a folder that does not exist.
    """
    by_name: dict[str, Path] = {}
    by_article: dict[tuple[str, str], Path] = {}
    for folder in folders:
        if not Path(folder).expanduser().is_dir():
            raise NotFound(f"there is no folder {folder} with images")
        for place, _, files in sorted(os.walk(Path(folder).expanduser())):
            for file in sorted(files):
                path = Path(place, file)
                if path.suffix.lower() in ENDINGS and path.is_file() and not path.is_symlink():
                    by_name.setdefault(_stem(file), path)
                    by_article.setdefault((path.parent.name, _stem(file)), path)

    def find(article: str, element: Element) -> Path | None:
        own = by_article.get((article, element.task_id.lower()))
        if own is not None or not element.image:
            return own
        named = _stem(element.image.replace("\\", "/").rpartition("/")[2])
        return by_article.get((article, named)) or by_name.get(named)

    return find


def _stem(name: str) -> str:
    """The name of an image without its ending. Other dots belong to it: `journal.pone.0058242.g001`."""
    name = name.lower()
    return next((name.removesuffix(ending) for ending in ENDINGS if name.endswith(ending)), name)
