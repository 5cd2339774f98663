"""Settings of library pruning. The numbers are ours: daVinci-kernel's library only grows."""

from __future__ import annotations

from pydantic import Field

from dvk.config.section import Section


class LibraryConfig(Section):
    """Limits of a growing library, and thresholds of what its use teaches."""

    every: int = Field(
        10,
        ge=0,
        description="Training steps between two prunings of the library; 0: never. Shorter intervals bring little new evidence.",
    )
    merge_similarity: float = Field(
        0.65,
        gt=0,
        le=1,
        description="Share of words in common from which two skills with the same recipe are merged; seeds, all different, share 0.44 "
        "at most.",
    )
    max_skills: int = Field(
        200,
        ge=1,
        description="Largest library, seeds and pinned skills included; about three times the seeds.",
    )
    learn: bool = Field(
        True,
        description="`dvk optimize` weighs skills by their evidence, and adds to the library what its search measured of them.",
    )
    pinned: tuple[str, ...] = Field((), description="Names of skills that are never retired.")
