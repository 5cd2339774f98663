"""Settings of learning: the optimizer, rewards and credit."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dvk.config.names import names
from dvk.config.section import Section


class LearningConfig(Section):
    """Optimizer of `dvk sft fit`, and of `dvk train` except rate, schedule, warm-up and batch: see `train`."""

    rate: float = Field(2e-5, gt=0,
        description="Peak learning rate; daVinci's SFT uses 2e-5. A nano trained from scratch needs about 3e-3.")
    schedule: Literal["cosine", "constant"] = Field("cosine", description="Learning rate schedule after the warm-up.")
    warmup: float = Field(0.1, ge=0, lt=1, description="Warm-up, as a share of the steps; daVinci: 10 %.")
    final_rate: float = Field(0.0, ge=0, le=1, description="Learning rate at the end of the cosine, as a share of the peak.")
    betas: tuple[float, float] = Field((0.9, 0.95), description="AdamW's betas; those of daVinci's SFT.")
    weight_decay: float = Field(0.01, ge=0, description="AdamW's weight decay, on matrices only.")
    clip: float = Field(1.0, gt=0, description="Largest gradient norm.")
    precision: Literal["auto", "bf16", "fp32"] = Field("auto", description="Precision of the computation; auto is bf16 on a GPU.")
    gradient_checkpointing: bool = Field(False, description="Recompute activations in the backward pass: slower, less memory.")
    pack_tokens: int = Field(4096, ge=64, description="Tokens per pack: the longest row that `dvk sft fit` can learn.")
    batch_tokens: int = Field(65536, ge=64, description="Tokens per step, over all processes.")
    micro_packs: int = Field(4, ge=1, description="Packs computed at once, on one device.")
    sharding: Literal["none", "fsdp"] = Field(
        "none",
        description="fsdp: several processes shard weights, gradients and optimizer state in float32, next to a full copy that samples; "
        "for models that do not fit otherwise.")
    barrier_timeout_s: float = Field(
        1800.0, gt=0, description="How long a process waits for the others: rollouts of one may last that much longer.")


class RewardsConfig(Section):
    """Rewards of turns. Numbers are those of daVinci-kernel (arXiv 2606.16497) unless stated otherwise."""

    weights: dict[str, float] = Field(
        {"correctness": 0.5, "speedup": 0.5, "coverage": 0.5, "format": 0.2},
        description="Weights of the reward terms by name (dvk.rewards.TERMS); format is ours. A table replaces them all, "
        "rewards.weights.coverage=0 changes one.", json_schema_extra=names("reward term", "dvk.rewards:TERMS"))
    cap: float = Field(6.0, gt=0, description="Largest speedup that is rewarded.")
    least: float = Field(0.0, ge=0, description="Smallest speedup that is rewarded.")
    margin: float = Field(0.05, ge=0, description="Margin by which a speedup must pass a milestone; the timing noise of a search.")


class CreditConfig(Section):
    """Advantages from rewards. Numbers are those of daVinci-kernel's 14B run unless stated otherwise."""

    advantage: str = Field("leave_one_out",
        description="How a value is compared with those of its group: leave_one_out, grpo, reinforce, or path/to/file.py:Name.",
        json_schema_extra=names("advantage", "dvk.learn.credit:ADVANTAGES"))
    gamma: float = Field(1.0, ge=0, le=1, description="Discount: the share of later turns' rewards that is credited to earlier turns.")
    policy: float = Field(1.0, ge=0, description="Weight of the policy's advantages; 0 leaves the role out.")
    selection: float = Field(0.3, ge=0, description="Weight of the selection agent's advantages; 0 leaves the role out.")
    summary: float = Field(0.5, ge=0, description="Weight of the summary agent's advantages; 0 leaves the role out.")
    normalize_advantages: bool = Field(True, description="Divide a task's policy advantages by their mean size.")
    void: bool = Field(True, description="Leave out turns without reward after a turn with reward.")
    profiling_rejection: bool = Field(True, description="Leave out correct turns whose kernels do little of the work (PRS).")
    least_coverage: float = Field(0.3, ge=0, le=1, description="Share of device time below which all such turns are left out…")
    coverage_width: float = Field(0.1, gt=0, description="…and how far above it none is left out.")
    mismatch_rejection: bool = Field(True, description="Leave out answers on whose probability learner and sampler differ (MRS).")
    mismatch: float = Field(0.001, gt=0, description="Mean log-ratio per token that is always admitted…")
    mismatch_spread: float | None = Field(
        None, ge=0,
        description="…and the rounding error of a single token, which widens it by 3/√tokens; ours. null: 0 if the learner computes in "
        "float32, 0.02 in 16 bits.")
    veto: float = Field(1e-4, gt=0, lt=1, description="One token with a smaller ratio drops its answer.")
    correction_cap: float = Field(0.0, ge=0,
        description="Weigh answers by the mean of their tokens' ratios, each clipped at this, instead of or in addition to rejection; "
        "0: off.")


class ObjectiveConfig(Section):
    """Loss of reinforcement learning. Numbers are those of daVinci-kernel's 14B run unless stated otherwise."""

    clip_low: float = Field(0.2, ge=0, le=1, description="Clip range of a token's ratio below 1 (PPO).")
    clip_high: float = Field(0.28, ge=0, description="Clip range above 1; larger, so that rare good tokens can grow (DAPO's clip-higher).")
    dual: float = Field(3.0, ge=1, description="Largest loss of a bad token, as a multiple of its advantage (dual-clip PPO).")
    aggregate: Literal["token", "row", "sum"] = Field(
        "token",
        description="Mean over the step's tokens; mean over answers of their mean; or daVinci's mean over answers of their sum over "
        "`divide`, which weighs a kernel a hundred times as much as a selection.")
    divide: float = Field(1000.0, gt=0, description="Divisor of the sums of `sum`.")
    kl: float = Field(0.0, ge=0,
        description="Weight of the KL divergence from the initial model, per token (k3); that model is kept in memory next to the "
        "learner. daVinci: none.")
    passes: int = Field(1, ge=1,
        description="Updates from the same answers, each from all of them; daVinci: 1. More use each answer better if rollouts dominate "
        "the cost, as with a small model; clipping limits the drift.")


class TrialsConfig(Section):
    """How a proposed skill is tried before it enters the library. daVinci-kernel (arXiv 2606.16497) makes one greedy run on the
    task it came from, against the sampled first turn that made it look good; its two thresholds are kept, the rest is ours."""

    per_task: int = Field(2, ge=0, description="Most skills tried per task; 0: none, and the library does not change.")
    samples: int = Field(4, ge=1, description="Answers per arm and task: four, as many as the conversations of a scheme.")
    siblings: int = Field(2, ge=0,
        description="Other tasks that a skill is also tried on; three with its source task, the fewest for which a t-bound is useful.")
    pool: int = Field(64, ge=0, description="Tasks of earlier steps kept as siblings: the latest with a correct answer.")
    min_similarity: float = Field(
        0.25,
        ge=0,
        le=1,
        description="Share of operator families in common that makes a task a sibling: results on a softmax do not carry over to a "
        "convolution.",
    )
    duplicate_similarity: float = Field(
        0.7,
        gt=0,
        le=1,
        description="Similarity from which a skill is a near-duplicate; shipped skills reach 0.53, different notes of the teacher 0.64.",
    )
    failed: float = Field(0.5, gt=0, description="Speedup that a wrong answer counts as: a wrong answer costs more than no gain.")
    level: float = Field(0.9, gt=0.5, lt=1,
        description="Confidence of a bound, one-sided. Skills admitted wrongly are retired later; with three tasks, 0.95 would need "
        "gains that agree within a few per cent.")
    relative: float = Field(1.2, gt=0, description="A skill is admitted if the lower bound of its gain reaches this…")
    absolute: float = Field(1.2, gt=0, description="…and the speedup with it, on its source task, reaches this…")
    least_pairs: int = Field(4, ge=1, description="…from at least this many pairs…")
    harm: float = Field(0.95, gt=0,
        description="…and no task's gain is surely below this; timing in a search is accurate to some per cent.")
    cap: float = Field(2.0, gt=0, description="Largest credit of a skill to its summary: the lower bound less 1, at least 0.")
