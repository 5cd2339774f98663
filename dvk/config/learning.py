"""Settings of learning: the optimizer, rewards and credit."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dvk.config.names import names
from dvk.config.section import Section


class LearningConfig(Section):
    """The optimizer of `dvk sft fit`, and of `dvk train` but for rate, schedule, warm-up and batch: see `train`."""

    rate: float = Field(2e-5, gt=0, description="Peak learning rate; daVinci's SFT uses 2e-5. From zero, nano wants about 3e-3.")
    schedule: Literal["cosine", "constant"] = Field("cosine", description="What follows the warm-up.")
    warmup: float = Field(0.1, ge=0, lt=1, description="Share of the steps in which the rate rises; daVinci: 10 %.")
    final_rate: float = Field(0.0, ge=0, le=1, description="Where the cosine ends, as a share of the peak.")
    betas: tuple[float, float] = Field((0.9, 0.95), description="AdamW's; those of daVinci's SFT.")
    weight_decay: float = Field(0.01, ge=0, description="AdamW's, on matrices only.")
    clip: float = Field(1.0, gt=0, description="Largest gradient norm.")
    precision: Literal["auto", "bf16", "fp32"] = Field("auto", description="What is computed in; auto is bf16 on a GPU.")
    gradient_checkpointing: bool = Field(False, description="Compute activations again in the backward pass: slower, smaller.")
    pack_tokens: int = Field(4096, ge=64, description="Tokens of a pack: the longest row that `dvk sft fit` learns.")
    batch_tokens: int = Field(65536, ge=64, description="Tokens of a step, over all processes.")
    micro_packs: int = Field(4, ge=1, description="Packs computed at a time, on one device.")
    sharding: Literal["none", "fsdp"] = Field(
        "none", description="fsdp: several processes hold weights, gradients and optimizer in pieces, in float32, beside a whole copy that "
        "samples; for models that do not fit otherwise.")
    barrier_timeout_s: float = Field(
        1800.0, gt=0, description="How long a process of several waits for the others: as long as one may play while another has done.")


class RewardsConfig(Section):
    """What a turn is worth. Numbers are those of daVinci-kernel (arXiv 2606.16497) unless said otherwise."""

    weights: dict[str, float] = Field(
        {"correctness": 0.5, "speedup": 0.5, "coverage": 0.5, "format": 0.2},
        description="Parts of the reward by name (dvk.rewards.TERMS) and what each counts; format is ours. A table replaces them all, "
        "rewards.weights.coverage=0 changes one.", json_schema_extra=names("reward term", "dvk.rewards:TERMS"))
    cap: float = Field(6.0, gt=0, description="Largest speedup that pays.")
    least: float = Field(0.0, ge=0, description="Smallest speedup that pays.")
    margin: float = Field(0.05, ge=0, description="By how much a milestone must be passed; noise of a search's timing.")


class CreditConfig(Section):
    """From rewards to advantages. Numbers are those of daVinci-kernel's 14B run unless said otherwise."""

    advantage: str = Field("leave_one_out", description="How a value is compared with its peers': leave_one_out, grpo, reinforce, or "
                           "path/to/file.py:Name.", json_schema_extra=names("advantage", "dvk.learn.credit:ADVANTAGES"))
    gamma: float = Field(1.0, ge=0, le=1, description="How much of what later turns earned an earlier one is credited with.")
    policy: float = Field(1.0, ge=0, description="Weight of the policy's advantages; 0 leaves the role out.")
    selection: float = Field(0.3, ge=0, description="Weight of the selection's; 0 leaves the role out.")
    summary: float = Field(0.5, ge=0, description="Weight of the summary's; 0 leaves the role out.")
    normalize_advantages: bool = Field(True, description="Divide a task's policy advantages by their mean size.")
    void: bool = Field(True, description="Leave out turns worth nothing after one that was worth something.")
    profiling_rejection: bool = Field(True, description="Leave out right turns whose kernels do little of the work (PRS).")
    least_coverage: float = Field(0.3, ge=0, le=1, description="Share of device time below which all such turns are left out…")
    coverage_width: float = Field(0.1, gt=0, description="…and how far above it none is.")
    mismatch_rejection: bool = Field(True, description="Leave out answers whose probability the learner and the sampler differ on (MRS).")
    mismatch: float = Field(0.001, gt=0, description="Mean log-ratio a token that is always admitted…")
    mismatch_spread: float | None = Field(
        None, ge=0, description="…and a single token's rounding error, which widens it by 3/√tokens; ours. Null: 0 where the learner "
        "computes in float32, 0.02 where in 16 bits.")
    veto: float = Field(1e-4, gt=0, lt=1, description="A token whose ratio is smaller drops its answer.")
    correction_cap: float = Field(0.0, ge=0, description="Instead of rejection or beside it, weigh answers by the mean of their tokens' "
                                  "ratios, each at most this; 0: not at all.")


class ObjectiveConfig(Section):
    """The loss of reinforcement learning. Numbers are those of daVinci-kernel's 14B run unless said otherwise."""

    clip_low: float = Field(0.2, ge=0, le=1, description="How far below 1 a token's ratio counts (PPO).")
    clip_high: float = Field(0.28, ge=0, description="How far above 1: more, so that rare good tokens can grow (DAPO's clip-higher).")
    dual: float = Field(3.0, ge=1, description="A bad token's loss is at most so many times its advantage (dual-clip PPO).")
    aggregate: Literal["token", "row", "sum"] = Field(
        "token", description="Mean over the step's tokens; mean over answers of their mean; or daVinci's mean over answers of their sum "
        "over `divide`, which counts a kernel a hundred times as much as a selection.")
    divide: float = Field(1000.0, gt=0, description="Divides the sums of `sum`.")
    kl: float = Field(0.0, ge=0, description="Weight of the divergence from the model that training began with, a token (k3); it is "
                      "then held beside the learner, for as much memory again. daVinci: none.")
    passes: int = Field(1, ge=1, description="Updates from the same answers, each from all of them; daVinci: 1. Where playing costs most, "
                        "as with a small model, more learn more from it, and the clip holds them near.")


class TrialsConfig(Section):
    """How a proposed skill is tried before it enters the library. daVinci-kernel (arXiv 2606.16497) makes one greedy run on the
    task it came from, against the sampled first turn that made it look good; its two thresholds are kept, the rest is ours."""

    per_task: int = Field(2, ge=0, description="Skills tried a task, at most; 0: none, and the library stays as it is.")
    samples: int = Field(4, ge=1, description="Answers an arm and task: four are what a scheme's conversations are.")
    siblings: int = Field(2, ge=0, description="Other tasks that a skill is also tried on; with the one it came from, three are counted, "
                          "the fewest for which a t-bound is of use.")
    pool: int = Field(64, ge=0, description="Tasks of earlier steps that are remembered for it, the latest on which something was right.")
    min_similarity: float = Field(
        0.25,
        ge=0,
        le=1,
        description="Share of operator families in common below which a task is no sibling: what is "
        "said of a softmax says nothing of a convolution.",
    )
    duplicate_similarity: float = Field(
        0.7,
        gt=0,
        le=1,
        description="Similarity from which a skill is a near-duplicate; the shipped ones reach 0.53, different notes of the teacher 0.64.",
    )
    failed: float = Field(0.5, gt=0, description="Speedup that a wrong answer counts as: having it found wrong costs more than no gain.")
    level: float = Field(0.9, gt=0.5, lt=1, description="Confidence of a bound, one-sided. What enters wrongly is retired later; with "
                         "three tasks, 0.95 would ask for gains that agree within a few per cent.")
    relative: float = Field(1.2, gt=0, description="A skill enters when its gain's lower bound reaches this…")
    absolute: float = Field(1.2, gt=0, description="…and the speedup with it, on its own task, this…")
    least_pairs: int = Field(4, ge=1, description="…from so many pairs at least…")
    harm: float = Field(0.95, gt=0, description="…and no task's gain is surely below this; a search's timing is good to some per cent.")
    cap: float = Field(2.0, gt=0, description="Most that a skill is worth to its summary: the lower bound less 1, at least 0.")
