"""Settings of learning: the optimizer, rewards and credit."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dvk.config.names import names
from dvk.config.section import Section


class LearningConfig(Section):
    """Optimizer of `dvk sft fit`, and of `dvk train` except rate, schedule, warm-up and batch: see `train`."""

    rate: float = Field(
        2e-5,
        gt=0,
        description="Peak learning rate; daVinci's SFT uses 2e-5. A nano trained from scratch needs about 3e-3.",
    )
    schedule: Literal["cosine", "constant"] = Field(
        "cosine", description="Learning rate schedule after the warm-up."
    )
    warmup: float = Field(
        0.1, ge=0, lt=1, description="Warm-up, as a share of the steps; daVinci: 10 %."
    )
    precision: Literal["auto", "bf16", "fp32"] = Field(
        "auto", description="Precision of the computation; auto is bf16 on a GPU."
    )
    gradient_checkpointing: bool = Field(
        False, description="Recompute activations in the backward pass: slower, less memory."
    )
    pack_tokens: int = Field(
        4096, ge=64, description="Tokens per pack: the longest row that `dvk sft fit` can learn."
    )
    batch_tokens: int = Field(65536, ge=64, description="Tokens per step, over all processes.")
    micro_packs: int = Field(4, ge=1, description="Packs computed at once, on one device.")
    sharding: Literal["none", "fsdp"] = Field(
        "none",
        description="fsdp: several processes shard weights, gradients and optimizer state in float32, next to a full copy that samples; "
        "for models that do not fit otherwise.",
    )
    barrier_timeout_s: float = Field(
        1800.0,
        gt=0,
        description="How long a process waits for the others: rollouts of one may last that much longer.",
    )


class RewardsConfig(Section):
    """Rewards of turns. Numbers are those of daVinci-kernel (arXiv 2606.16497) unless stated otherwise."""

    weights: dict[str, float] = Field(
        {"correctness": 0.5, "speedup": 0.5, "coverage": 0.5, "format": 0.2},
        description="Weights of the reward terms by name (dvk.rewards.TERMS); format is ours. A table replaces them all, "
        "rewards.weights.coverage=0 changes one.",
        json_schema_extra=names("reward term", "dvk.rewards:TERMS"),
    )


class CreditConfig(Section):
    """Advantages from rewards. Numbers are those of daVinci-kernel's 14B run unless stated otherwise."""

    advantage: str = Field(
        "leave_one_out",
        description="How a value is compared with those of its group: leave_one_out, grpo, reinforce, or path/to/file.py:Name.",
        json_schema_extra=names("advantage", "dvk.learn.credit:ADVANTAGES"),
    )
    gamma: float = Field(
        1.0,
        ge=0,
        le=1,
        description="Discount: the share of later turns' rewards that is credited to earlier turns.",
    )
    policy: float = Field(
        1.0, ge=0, description="Weight of the policy's advantages; 0 leaves the role out."
    )
    selection: float = Field(
        0.3, ge=0, description="Weight of the selection agent's advantages; 0 leaves the role out."
    )
    summary: float = Field(
        0.5, ge=0, description="Weight of the summary agent's advantages; 0 leaves the role out."
    )
    normalize_advantages: bool = Field(
        True, description="Divide a task's policy advantages by their mean size."
    )
    step_scale: bool = Field(
        False,
        description="Divide all advantages of a step by the mean size of the policy's, after the above. Without "
        "normalize_advantages tasks count by how much their answers differ.",
    )
    shared_scale: bool = Field(
        True,
        description="Divide its selection advantages by the same number, and summary advantages by their own mean size, so that "
        "the weights above compare the roles. daVinci: off.",
    )
    shrink_noise: bool = Field(
        True,
        description="Multiply advantages by the share of their group's variance that is not noise: of timing for the policy, of "
        "sampling for selections. daVinci: off.",
    )
    profiling_rejection: bool = Field(
        True, description="Leave out correct turns whose kernels do little of the work (PRS)."
    )
    mismatch_rejection: bool = Field(
        True, description="Leave out answers on whose probability learner and sampler differ (MRS)."
    )
    mismatch: float = Field(
        0.001, gt=0, description="Mean log-ratio per token that mismatch rejection always admits."
    )
    correction_cap: float = Field(
        0.0,
        ge=0,
        description="Weigh answers by the mean of their tokens' ratios, each clipped at this, instead of or in addition to rejection; "
        "0: off.",
    )


class ObjectiveConfig(Section):
    """Loss of reinforcement learning. Numbers are those of daVinci-kernel's 14B run unless stated otherwise."""

    clip_low: float = Field(
        0.2, ge=0, le=1, description="Clip range of a token's ratio below 1 (PPO)."
    )
    clip_high: float = Field(
        0.28,
        ge=0,
        description="Clip range above 1; larger, so that rare good tokens can grow (DAPO's clip-higher).",
    )
    aggregate: Literal["token", "row", "sum"] = Field(
        "token",
        description="Mean over the step's tokens; mean over answers of their mean; or daVinci's mean over answers of their sum over "
        "`divide`, which weighs a kernel a hundred times as much as a selection.",
    )
    kl: float = Field(
        0.0,
        ge=0,
        description="Weight of the KL divergence from the initial model, per token (k3); that model is kept in memory next to the "
        "learner. daVinci: none.",
    )
    passes: int = Field(
        1,
        ge=1,
        description="Updates from the same answers, each from all of them; daVinci: 1. More use each answer better if rollouts dominate "
        "the cost, as with a small model; clipping limits the drift.",
    )
    mini_batches: int = Field(
        1,
        ge=1,
        description="Optimizer steps of a pass, each from its share of the answers. daVinci: 2.",
    )
    replay: int = Field(
        0,
        ge=0,
        description="Earlier steps whose answers are mixed in, against forgetting; clipping leaves out those that the policy has moved "
        "away from since. daVinci: none.",
    )


class TrialsConfig(Section):
    """How a proposed skill is tried before it enters the library. daVinci-kernel (arXiv 2606.16497) makes one greedy run on the
    task it came from, against the sampled first turn that made it look good; its two thresholds are kept, the rest is ours."""

    per_task: int = Field(
        2, ge=0, description="Most skills tried per task; 0: none, and the library does not change."
    )
    samples: int = Field(
        4,
        ge=1,
        description="Answers per arm and task: four, as many as the conversations of a scheme.",
    )
    siblings: int = Field(
        2,
        ge=0,
        description="Other tasks that a skill is also tried on; three with its source task, the fewest for which a t-bound is useful.",
    )
    level: float = Field(
        0.9,
        gt=0.5,
        lt=1,
        description="Confidence of a bound, one-sided. Skills admitted wrongly are retired later; with three tasks, 0.95 would need "
        "gains that agree within a few per cent.",
    )
    relative: float = Field(
        1.02,
        gt=0,
        description="Lower bound of a skill's gain from which it is admitted. daVinci: 1.2, which most skills that truly gain 20 % miss.",
    )
    absolute: float = Field(
        1.0,
        gt=0,
        description="Speedup over eager with it, on the task it came from, that a skill needs. daVinci: 1.2.",
    )
