"""Settings of search strategies that use a model."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dvk.config.section import Section


class EvolveConfig(Section):
    """Strategy `evolve`: prompts of mutations, and the archive of programs."""

    information: Literal["free", "insight", "full"] = Field(
        "full",
        description="What a mutation's prompt adds to the parent, after EvoEngineer: nothing; insights; insights and other good programs.",
    )
    population: Literal["single", "elite", "diverse"] = Field(
        "diverse",
        description="Possible parents: the best; the best few; the best few and those least similar to them, as in Kernel-Smith.",
    )


class SearchConfig(Section):
    """Search of the `dvk optimize` strategies that use a model; `refine` and `best_of_n` play rounds of `rollout` instead."""

    openings: int = Field(
        4, ge=1, description="Programs started from the task alone, half of them with skills."
    )
    offspring: int = Field(
        4,
        ge=1,
        description="Programs requested at once: several cost about as much as one to write, but not to judge.",
    )
    evolve: EvolveConfig = EvolveConfig()
