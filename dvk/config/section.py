"""The base class of setting groups."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A group of settings that rejects unknown keys, infinity and NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
