"""Settings of the cold start: what is collected, kept and fitted."""

from __future__ import annotations

from pydantic import Field

from dvk.config.names import names
from dvk.config.section import Section

MOST_PLAYED = 300
"""Tasks that `dvk sft collect` plays if their number is not set."""


class CollectConfig(Section):
    """`dvk sft collect`."""

    tasks: int = Field(
        20000,
        ge=1,
        description="Generated tasks that the composer writes programs for; 20,000 make about 130M tokens.",
    )
    oversample: float = Field(
        5.0,
        ge=1,
        description="Tasks generated per task that is used: those with rare operators first.",
    )
    favoured: dict[str, float] = Field(
        {},
        description="The generator's operators, e.g. slice, and the factor by which tasks with them are preferred: for operators on "
        "which an earlier model fails.",
    )
    mutants: int = Field(
        10,
        ge=0,
        description="Graphs made of each captured one by exchanging operators and operands, so that a small model cannot memorise "
        "tasks; cheaper than capturing another.",
    )
    executed: int = Field(
        2000,
        ge=0,
        description="Programs executed, over all families; a family with a wrong program is left out. 0 admits all.",
    )
    played: int | None = Field(
        None,
        ge=0,
        description="Tasks whose attempts are executed and timed; null plays as many as texts are "
        f"written for, {MOST_PLAYED} at most: with 8 attempts each they make 2,400 verdicts.",
    )

    @property
    def num_played(self) -> int:
        """Return the number of tasks that are played."""
        return min(self.tasks, MOST_PLAYED) if self.played is None else self.played


class FitConfig(Section):
    """`dvk sft fit`."""

    epochs: float = Field(4.0, gt=0, description="Passes over the examples; daVinci: 4.")
    max_steps: int | None = Field(
        None, ge=1, description="Most steps, whatever `epochs` says; null sets no limit."
    )
    save_every: int = Field(400, ge=1, description="Steps between checkpoints; daVinci: 400.")
    held_out: float = Field(
        0.01, ge=0, lt=0.5, description="Share of the tasks held out for evaluation."
    )
    quality_tasks: int = Field(
        32,
        ge=0,
        description="Held-out tasks that each checkpoint answers greedily, alongside the training.",
    )
    size: str = Field(
        "12m",
        description="Size of a new nano: tiny, 5m, 12m, 17m.",
        json_schema_extra=names("size of nano", "dvk.backbone.nano:PRESETS"),
    )


class ChooseConfig(Section):
    """`dvk sft choose`: learning from every measured plan of a table."""

    start_epochs: float = Field(
        4.0, ge=0, description="Passes that teach the composer's own plan, and all others alike."
    )
    fit_epochs: float = Field(
        10.0, ge=0, description="Most passes of the fit weighted by measured speed."
    )
    reward_epochs: float = Field(
        0.0,
        ge=0,
        description="Most passes of the last stage, which raises the expected log-speedup; no gain was measured, so 0.",
    )
    kl: float = Field(
        0.02,
        ge=0,
        description="Log-speed that is worth one nat of distance from the fitted policy in the last stage.",
    )
    exchanged: float = Field(
        0.5,
        ge=0,
        le=1,
        description="Share of the last stage's rows with the question of another task: what helps there is no property of one task.",
    )
    rate: float = Field(2e-4, gt=0, description="Peak learning rate of the first two stages.")
    reward_rate: float = Field(1e-4, gt=0, description="Peak learning rate of the last stage.")
    batch_tokens: int = Field(4096, ge=64, description="Tokens of a step, padding included.")
    folds: int = Field(
        5,
        ge=0,
        description="Parts of the training tasks for the cross-validation that chooses how many passes the last two stages make; "
        "below 2 they make all.",
    )


class DiversityConfig(Section):
    """Examples that SFT learns from: quality, duplicates, clusters, balance."""

    suites: tuple[str, ...] = Field(
        (),
        description="Folders of KernelBench-format files kept for evaluation: similar tasks are left out.",
    )
    method: str = Field(
        "structure",
        description="How structures are clustered: structure, hdbscan, none, or path/to/file.py:function.",
        json_schema_extra=names(
            "clustering method", "dvk.learn.diversity.methods:METHODS", also=["none"]
        ),
    )
    cluster_cap: int = Field(0, ge=0, description="Most rows per cluster; 0 finds one.")
    target: int = Field(
        0, ge=0, description="Rows kept; 0 keeps as many as the other limits admit."
    )
