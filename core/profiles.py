"""The fields of stores that ccheck did not make. The settings have a table for each such store.

[stores."https://search.example.org:9200/papers"]
id = "doi"
title = "headline^2"
text = ["abstract", "body.en"]
vector = "embedding"
model = "all-MiniLM-L6-v2"
group = "metadata.source"
metadata = ["year", "doi"]
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from .redaction import redact
from .stages import LEAST_WEIGHT, MOST_WEIGHT

PREFIXES = ("elasticsearch:", "es:")


def _several(value: object) -> object:
    return [one.strip() for one in value.split(",")] if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_several)]


class StoreProfile(BaseModel):
    """The fields of one store; what is None is found from its mapping. `^2` weighs a field of words for BM25."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str | None = Field(None, description="the field with the documents' ids, instead of _id")
    title: str | None = Field(None, description="the title, as NAME or NAME^WEIGHT")
    text: Names | None = Field(None, description="the fields of text, each as NAME or NAME^WEIGHT")
    vector: str | None = Field(None, description="the field of vectors")
    model: str | None = Field(None, description="the model that made the vectors")
    metadata: Names | None = Field(None, description="the other fields that are read; by default all")
    group: str | None = Field(None, description="the field that names a chunk's paper; empty: chunks are not grouped")

    @field_validator("title", "text")
    @classmethod
    def _weigh(cls, value: str | tuple[str, ...] | None) -> object:
        return check_weights(value)

    @property
    def weights(self) -> dict[str, float]:
        """The weights of the fields of words."""
        return dict(map(weighted, [*([self.title] if self.title else []), *(self.text or ())]))

    def unweighted(self) -> StoreProfile:
        """The same with the bare names of its fields."""
        text = None if self.text is None else tuple(weighted(name)[0] for name in self.text)
        return self.model_copy(update={"title": weighted(self.title)[0] if self.title else None, "text": text})


def check_weights(fields: str | tuple[str, ...] | None) -> str | tuple[str, ...] | None:
    """The same field or fields. Raises ValueError for a weight that is not valid."""
    for one in (fields,) if isinstance(fields, str) else fields or ():
        weighted(one)
    return fields


def weighted(field: str) -> tuple[str, float]:
    """A field's name and weight. Raises ValueError."""
    name, caret, weight = field.partition("^")
    if not caret:
        return name, 1.0
    try:
        number = float(weight)
    except ValueError:
        number = math.nan
    if not name or not LEAST_WEIGHT <= number <= MOST_WEIGHT:
        raise ValueError(
            f"{field!r} is not NAME or NAME^WEIGHT, with a weight from {LEAST_WEIGHT:g} to {MOST_WEIGHT:g}"
        )
    return name, number


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


def as_toml(store: str, profile: StoreProfile) -> str:
    """The profile as a table of a settings file."""
    said = profile.model_dump(mode="json", exclude_none=True)
    lines = [f"{name} = {_quoted(value)}" for name, value in said.items()]
    return "\n".join([f"[stores.{_quoted(redact(store))}]", *lines]) + "\n"


def _quoted(value: object) -> str:
    """JSON's strings and lists are TOML's, except for one character that JSON leaves as it is."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
