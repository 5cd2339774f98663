"""Settings of language models and of the agents that use them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dvk.config.section import Section


class BackboneConfig(Section):
    """How language models run, locally or on a server."""

    thinking: bool = Field(
        False, description="Let chat templates that support it (Qwen3's) open a thinking block."
    )
    thinking_tokens: int | None = Field(
        None,
        ge=1,
        description="Longest thought in tokens, with thinking=true and a local or served: model; then the thought is closed and the "
        "model answers. null: no limit but that of the whole answer.",
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto",
        description="Data type of weights and matmuls. auto: float32 up to 200 million parameters and for full fine-tuning in one "
        "process, else bfloat16.",
    )
    lora_rank: int = Field(
        0,
        ge=0,
        description="Rank of the LoRA adapters added to an opened model; 0 trains all weights.",
    )
    endpoint_url: str | None = Field(
        None,
        description="Base URL of an OpenAI-compatible server, `/v1` included; null takes $OPENAI_BASE_URL.",
    )
    api_key_env: str = Field(
        "OPENAI_API_KEY",
        description="Environment variable that holds the server's key; keys do not belong in files.",
    )
    endpoint_dialect: Literal["chat", "davinci"] = Field(
        "chat",
        description="Prompts and answers of a served model: davinci for the checkpoints of daVinci-kernel.",
    )
    concurrency: int = Field(
        16, ge=1, description="Requests in flight at once; servers that batch need many."
    )
    timeout_s: float = Field(
        600.0,
        gt=0,
        description="Timeout of one request; a long answer of a large model takes minutes.",
    )
    prompt_usd: float | None = Field(
        None, ge=0, description="Price per million prompt tokens; null: costs are unknown."
    )
    completion_usd: float | None = Field(
        None, ge=0, description="Price per million completion tokens; null: costs are unknown."
    )


class AgentsConfig(Section):
    """Prompts and answers of the three agents. Counts are those of daVinci-kernel (arXiv 2606.16497) unless stated otherwise."""

    num_candidates: int = Field(
        20, ge=0, description="Skills that BM25 offers to the selection agent; 0: no skills."
    )
    num_chosen: int = Field(3, ge=1, description="Most skills that it chooses.")
    num_new_skills: int = Field(2, ge=1, description="Most skills that one summary proposes.")
    prompt_tokens: int = Field(
        24576,
        ge=1000,
        description="Longest prompt of the policy: earlier attempts beyond it are left out. daVinci's limit with skills.",
    )
    kept_attempts: int = Field(
        4,
        ge=1,
        description="Earlier attempts shown to the policy in full: the last, the best, then the latest. Dr.Kernel's best window at test "
        "time; all of three turns.",
    )


class RolloutConfig(Section):
    """Rollouts per task. Numbers are those of daVinci-kernel's 14B run unless stated otherwise."""

    schemes: int = Field(3, ge=0, description="Selections of skills sampled per task (k).")
    selector: Literal["model", "bm25", "random"] = Field(
        "model",
        description="What selects skills: the selection agent; or, as controls, the first by BM25 or as many random candidates.",
    )
    explored: int = Field(
        0,
        ge=0,
        description="Schemes whose skills are drawn at random instead, as with selector=random: an agent that is sure of its choice "
        "never tries others, so their effect stays unknown. Ours.",
    )
    null_scheme: bool = Field(
        True, description="Also play without skills, as the baseline of selections."
    )
    rollouts: int = Field(4, ge=1, description="Conversations per scheme (n).")
    turns: int = Field(3, ge=1, description="Attempts per conversation (T).")
    iterations: int = Field(
        1,
        ge=1,
        description="Sequential test-time scaling: a full conversation continues from its best window until it is full again; this many "
        "passes in all. daVinci-kernel: 5 turns, 10 iterations, 14 attempts.",
    )
    window: int = Field(
        4,
        ge=0,
        description="Consecutive attempts that such a conversation keeps, at most one less than its turns; Dr.Kernel: 4.",
    )
    summaries: int = Field(
        8, ge=0, description="Summaries sampled of a task's best improvement (s)."
    )
    temperature: float = Field(
        1.0, ge=0, description="Sampling temperature of all three agents; 0 is greedy."
    )
    resample_unparsed: int = Field(
        0,
        ge=0,
        description="Fresh samples of a policy's answer that does not parse, in the same turn, at temperature 1 or higher; in dvk eval "
        "and strategies auto and refine. dvk train needs 0: it learns from the first draw.",
    )
    repair_attempts: int | None = Field(
        None,
        ge=0,
        description="Backtracking attempts per answer that does not parse, most likely alternative token first (local models with a "
        "line-checked dialect, as nano's). null: 32, or 4 in a search with a time budget. dvk train learns from a repaired "
        "answer where it was better than the others.",
    )
    policy_tokens: int = Field(8192, ge=1, description="Longest policy answer per turn.")
    batch: int = Field(
        64,
        ge=1,
        description="Conversations per call of the backbone; decoding costs about the same for 1 and 64.",
    )
    judges: int = Field(
        0,
        ge=0,
        description="Candidates in the judge at once per GPU: others compile while one is timed. 0: as many as cores and GPU memory "
        "allow, at most 10; 2 without a GPU.",
    )
    require_kernels: bool = Field(
        False, description="Reject candidates that leave the computation to PyTorch's operators."
    )
