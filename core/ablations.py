"""Ablations: the changes of a recipe that its source, or somebody else, measured. They are part of the recipe's file:

    [ablations.no-sparse]
    description = "without SPLADE"
    retrievers.sparse = false

Everything but the description is laid over the recipe, as a recipe that `extends` it would be.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

_ABOUT_THE_RECIPE = {"name", "extends", "source", "fine_tuned", "replace", "ablations"}


class Ablation(BaseModel):
    """A change of the recipe."""

    model_config = ConfigDict(extra="allow", frozen=True, defer_build=True)

    description: str

    @model_validator(mode="after")
    def _only_stages(self) -> Ablation:
        if not self.changes:
            raise ValueError("an ablation changes at least one stage, for example with retrievers.dense = false")
        if other := sorted(_ABOUT_THE_RECIPE & self.changes.keys()):
            raise ValueError(f"an ablation changes stages, not {', '.join(other)}")
        return self

    @property
    def changes(self) -> dict[str, Any]:
        """The tables that are laid over the recipe."""
        return dict(self.model_extra or {})
