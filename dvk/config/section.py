"""What all groups of settings are."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A group of settings that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")
