"""Settings of `dvk train`."""

from __future__ import annotations

from pydantic import Field

from dvk.config.section import Section


class TrainConfig(Section):
    """Co-evolution loop. Numbers are those of daVinci-kernel's 14B run (arXiv 2606.16497) unless stated otherwise."""

    tasks_per_step: int = Field(16, ge=1, description="Tasks played before each update.")
    oversample: float = Field(1.25, ge=1,
        description="Tasks generated per task that is played, since some cannot be captured or built; ours.")
    ahead: bool = Field(True, description="Prepare the next step's tasks while this one is played.")
    skip_after_flat_steps: int = Field(
        3, ge=0,
        description="Consecutive plays of a task of --tasks in which all answers have equal rewards, before it is played less often; 0: "
        "never less often. Ours.")
    rate: float = Field(1e-6, gt=0, description="Learning rate, constant. A model of some million parameters needs about 1e-5.")
    warmup: int = Field(0, ge=0,
        description="Warm-up steps: Adam's first step moves every weight by the whole rate, whatever the gradient. daVinci: none.")
    small_parameters: int = Field(
        200_000_000, ge=0,
        description="Models up to this size are sampled and scored in float32, at little cost, so that rounding is not taken for a "
        "mismatch.")
    validate_every: int = Field(10, ge=0, description="Steps between two validations; 0: none.")
    validation_tasks: int = Field(32, ge=1, description="Held-out tasks per validation, greedy, one turn; the same ones each time.")
    keep_every: int = Field(25, ge=1, description="Keep the checkpoint of every n-th step, and the last.")
    guard_steps: int = Field(3, ge=1, description="Consecutive bad steps after which a guard stops the run; ours.")
    least_entropy: float = Field(
        0.05, ge=0, le=1,
        description="Least entropy, as a share of the run's first: below it the policy has collapsed to one answer. Not in nats, since "
        "a model of one small language starts at 0.01 per token. Ours.")
    most_unread: float = Field(
        0.9, ge=0, le=1, description="Largest share of a step's answers that do not parse: above it the model degenerates; ours.")
