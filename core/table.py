"""Tables of TOML: the stages of recipes, and the parts of them that stores record."""

from __future__ import annotations

import json
import re
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from .text import did_you_mean

_QUERY = "filters belong to a query (ccheck query --claims --filter --run)"
ELSEWHERE = {"filter": _QUERY, "filters": _QUERY, "weights": "each retriever has its own, retrievers.NAME.weight"}
"""What no table has, with where to say it."""


class Table(BaseModel):
    """A table with the keys that it has fields for. The error for an unknown key names the nearest known one."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        unknown = sorted(str(key) for key in data if key not in cls.model_fields) if isinstance(data, dict) else []
        if unknown:
            known = sorted(cls.model_fields)
            hint = did_you_mean(unknown[0], known, f"known: {', '.join(known)}", cutoff=0.4)
            raise ValueError(f"unknown key {unknown[0]}: {ELSEWHERE.get(unknown[0], hint)}")
        return data


def toml(value: Any) -> str:
    """A value of a recipe as TOML; a table is an inline one."""
    if isinstance(value, dict):
        keys = (key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else toml(key) for key in value)
        return f"{{{', '.join(f'{key} = {toml(one)}' for key, one in zip(keys, value.values(), strict=True))}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    return json.dumps(value, ensure_ascii=False)
