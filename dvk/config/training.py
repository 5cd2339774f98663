"""Settings of `dvk train`."""

from __future__ import annotations

from pydantic import Field

from dvk.config.section import Section


class TrainConfig(Section):
    """The co-evolution loop. Numbers are those of daVinci-kernel's 14B run (arXiv 2606.16497) unless said otherwise."""

    tasks_per_step: int = Field(16, ge=1, description="Tasks played before each update.")
    oversample: float = Field(1.25, ge=1, description="Tasks generated for each that is played: some cannot be captured or built; ours.")
    ahead: bool = Field(True, description="Prepare the next step's tasks while this one is played.")
    skip_after_flat_steps: int = Field(
        3, ge=0, description="Times in a row that a task of --tasks may teach nothing, all its answers being worth the same, before it is "
        "played once in so many turns only; 0: as often as any other. Ours.")
    rate: float = Field(1e-6, gt=0, description="Learning rate, constant. A model of some million parameters wants about 1e-5.")
    warmup: int = Field(0, ge=0, description="Steps in which the rate rises to it: Adam's first one moves every weight by the whole rate, "
                        "whatever the gradient says. daVinci: none.")
    small_parameters: int = Field(
        200_000_000, ge=0, description="Models up to this size are sampled and scored in float32: rounding then cannot be taken for a "
        "mismatch, and costs little.")
    validate_every: int = Field(10, ge=0, description="Steps between two validations; 0: none.")
    validation_tasks: int = Field(32, ge=1, description="Held-out tasks of a validation, greedy, one turn; the same ones each time.")
    keep_every: int = Field(25, ge=1, description="Every so many steps a checkpoint stays; of the others only the last.")
    guard_steps: int = Field(3, ge=1, description="Steps in a row that a guard puts up with before it stops the run; ours.")
    least_entropy: float = Field(
        0.05, ge=0, le=1, description="Share of the run's first entropy: below it the policy has collapsed to one answer. Not in nats, for "
        "a model of one small language begins with 0.01 a token. Ours.")
    most_unread: float = Field(
        0.9, ge=0, le=1, description="Share of a step's answers that cannot be read: above it the model degenerates; ours.")
