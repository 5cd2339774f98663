"""Settings of library pruning. The numbers are ours: daVinci-kernel's library only grows."""

from __future__ import annotations

from pydantic import Field

from dvk.config.section import Section


class LibraryConfig(Section):
    """Limits of a growing library, and thresholds of what its use teaches."""

    every: int = Field(10, ge=0,
        description="Training steps between two prunings of the library; 0: never. Shorter intervals bring little new evidence.")
    half_life: float = Field(
        50.0, gt=0, description="Training steps after which a trial counts half, since the policy has changed.")
    level: float = Field(0.95, gt=0, lt=1, description="Confidence of the intervals of gains.")
    least_trials: int = Field(12, ge=2, description="Trials (a task in a step) before measured gains can retire a skill.")
    duplicate_similarity: float = Field(
        0.65, gt=0, le=1,
        description="Share of words in common from which two skills with the same recipe are merged; seeds, all different, share 0.44 "
        "at most.")
    max_skills: int = Field(
        200, ge=1, description="Largest library, seeds and pinned skills included; about three times the seeds.")
    grace: int = Field(
        20, ge=0, description="Training steps after its admission during which a skill is evicted only if no older one can be.")
    pinned: tuple[str, ...] = Field((), description="Names of skills that are never retired.")
    least_joint: int = Field(10, ge=2, description="Plays of two skills together before their interaction is estimated.")
    joint_level: float = Field(
        0.99, gt=0, lt=1, description="Confidence of the interval around the interaction of two skills; high, since many pairs are tested.")
    joint_effect: float = Field(
        0.05, ge=0, description="Log-speedup beyond the sum, either way, from which two skills combine or conflict: 5 %.")
    refines: float = Field(
        0.35, gt=0, le=1,
        description="Share of words in common from which a skill refines one that its author was given; 2 % of all pairs of seeds share "
        "as much.")
