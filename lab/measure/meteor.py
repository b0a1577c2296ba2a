"""METEOR (Banerjee and Lavie, 2005) by NLTK, and the data that it needs: WordNet 3.0 and Punkt's English model."""

from __future__ import annotations

import functools
import io
import os
import warnings
from pathlib import Path
from typing import Any

from ...core.errors import NotFound, require
from .averitec import Meteor

_PARTS = {"wordnet": ("corpora/wordnet", "corpora/wordnet.zip"), "punkt_tab": ("tokenizers/punkt_tab/english",)}
_DEBIAN = Path("/usr/share/wordnet")
_HOW = (
    "Run python -m nltk.downloader wordnet punkt_tab (about 12 MB, from raw.githubusercontent.com), or install it from "
    "packages: WordNet with apt-get install wordnet-base; NLTK_DATA names the folder of Punkt's model"
)


def open_meteor() -> Meteor:
    """METEOR as AVeriTeC's scoring code computes it: `nltk`'s, on the words of `nltk.word_tokenize`.

    The data are looked up where NLTK looks, and for WordNet where WNSEARCHDIR says.

    Raises MissingExtra without NLTK, NotFound for data that are not there.
    """
    require("METEOR", "evaluation", "nltk")
    from nltk.tokenize import word_tokenize
    from nltk.translate.meteor_score import single_meteor_score

    wordnet = _wordnet()
    for name, places in _PARTS.items():
        if not (name == "wordnet" and wordnet is not None) and not any(map(_there, places)):
            raise NotFound(f"METEOR needs NLTK's {name}, which is not installed. {_HOW}")
    more = {"wordnet": wordnet} if wordnet is not None else {}
    words = functools.lru_cache(maxsize=100_000)(word_tokenize)

    @functools.lru_cache(maxsize=100_000)
    def meteor(candidate: str, reference: str) -> float:
        return float(single_meteor_score(words(reference), words(candidate), **more))

    return meteor


def _there(place: str) -> bool:
    import nltk

    try:
        nltk.data.find(place)
    except LookupError:
        return False
    return True


def _wordnet() -> Any:
    """A reader of a WordNet that NLTK did not install; None if there is none."""
    import nltk
    from nltk.corpus.reader import WordNetCorpusReader

    class Reader(WordNetCorpusReader):  # type: ignore[misc]
        def open(self, file: str) -> Any:
            """A file of WordNet's. Debian leaves out the names of the lexicographers' files, which METEOR never asks
            for, and without which NLTK reads nothing."""
            if file == "lexnames" and not (Path(str(self.root)) / file).exists():
                return io.StringIO("".join(f"{number}\tfile{number}\t0\n" for number in range(45)))
            return super().open(file)

        def map_wn(self, version: str = "wordnet") -> None:
            """To the wordnets of other languages, which METEOR does not use."""

    for folder in (os.environ.get("WNSEARCHDIR"), _DEBIAN):
        if folder and (Path(folder) / "data.noun").is_file():
            nltk.data.path.append(str(folder))  # NLTK reads no files elsewhere
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that it does not read other languages
                return Reader(str(folder), None)
    return None
