"""Settings of `dvk train`."""

from __future__ import annotations

from pydantic import Field

from dvk.config.section import Section


class TrainConfig(Section):
    """Co-evolution loop. Numbers are those of daVinci-kernel's 14B run (arXiv 2606.16497) unless stated otherwise."""

    tasks_per_step: int = Field(16, ge=1, description="Tasks played before each update.")
    refill: int = Field(
        1,
        ge=0,
        description="Rounds in which tasks whose answers were all worth the same, so that nothing is learned from them, are replaced "
        "by others (dynamic sampling). daVinci: up to 5.",
    )
    rate: float | None = Field(
        None,
        gt=0,
        description="Learning rate, constant. null: daVinci's 1e-6, or 0.03 / width for a model of up to 200 million parameters, "
        "which 1e-6 does not change: 8e-5 for nano.",
    )
    warmup: int = Field(
        0,
        ge=0,
        description="Warm-up steps: Adam's first step moves every weight by the whole rate, whatever the gradient. daVinci: none.",
    )
    validate_every: int = Field(10, ge=0, description="Steps between two validations; 0: none.")
    keep_every: int = Field(
        25, ge=1, description="Keep the checkpoint of every n-th step, and the last."
    )
