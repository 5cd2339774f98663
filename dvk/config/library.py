"""Settings of the library's grooming. The numbers are ours: daVinci-kernel's library only grows."""

from __future__ import annotations

from pydantic import Field

from dvk.config.section import Section


class LibraryConfig(Section):
    """What is kept of a library that grows, and what is learned from its use."""

    every: int = Field(10, ge=0, description="Training steps between two groomings; 0: never. Sooner, little more is known.")
    half_life: float = Field(
        50.0, gt=0, description="Training steps after which a trial counts half: the policy that it was made with has changed.")
    level: float = Field(0.95, gt=0, lt=1, description="Of the intervals of gains.")
    least_trials: int = Field(12, ge=2, description="Trials (a task in a step) before a skill may be retired for what it does.")
    duplicate_similarity: float = Field(
        0.65, gt=0, le=1, description="Share of words in common from which two skills with the same recipe are one; "
        "of the seeds, all different, no two share more than 0.44.")
    max_skills: int = Field(
        200, ge=1, description="Skills that a library keeps, seeds and pinned ones included; about three times the seeds.")
    grace: int = Field(
        20, ge=0, description="Training steps after its admission in which a skill leaves for room only when no older one can.")
    pinned: tuple[str, ...] = Field((), description="Names of skills that stay whatever is measured.")
    least_joint: int = Field(10, ge=2, description="Plays of two skills together before anything is said about the two.")
    joint_level: float = Field(
        0.99, gt=0, lt=1, description="Of the interval around what two skills do beyond the sum of both; many pairs are looked at.")
    joint_effect: float = Field(
        0.05, ge=0, description="Log-speedup beyond the sum, either way, from which two skills combine or conflict: 5 %.")
    refines: float = Field(
        0.35, gt=0, le=1, description="Share of words in common from which a skill refines one that was given when it was written; "
        "2 % of all pairs of seeds share as much.")
