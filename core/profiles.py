"""The fields of stores that ccheck did not make. The settings have a table for each such store.

[stores."https://search.example.org:9200/papers"]
title = "headline"
text = ["abstract", "body.en"]
vector = "embedding"
model = "all-MiniLM-L6-v2"
group = "metadata.source"
metadata = ["year", "doi"]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import BeforeValidator, Field

from .table import Table

PREFIXES = ("elasticsearch:", "es:")


Names = Annotated[
    tuple[str, ...],
    BeforeValidator(lambda value: [one.strip() for one in value.split(",")] if isinstance(value, str) else value),
]
"""Several names, also as one text with commas between them."""


class StoreProfile(Table):
    """The fields of one store; what is None is found from its mapping."""

    title: str | None = Field(None, description="the title")
    text: Names | None = Field(None, description="the fields of text")
    vector: str | None = Field(None, description="the field of vectors")
    model: str | None = Field(None, description="the model that made the vectors")
    metadata: Names | None = Field(None, description="the other fields that are read; by default all")
    group: str | None = Field(None, description="the field that names a chunk's paper; empty: chunks are not grouped")


def profile_of(profiles: Mapping[str, StoreProfile], store: str, index: str) -> StoreProfile:
    """The profile of a store: by its name as ccheck shows it, by elasticsearch:INDEX, or by the index alone."""
    for name in (store, *(prefix + index for prefix in PREFIXES), index):
        if name in profiles:
            return profiles[name]
    return StoreProfile(**dict.fromkeys(StoreProfile.model_fields))


def names_models(profiles: object) -> bool:
    """Whether any profile of a settings file names a model, which only the user may choose."""
    if not isinstance(profiles, dict):
        return True
    return any(not isinstance(one, dict) or "model" in one for one in profiles.values())
