"""Settings of language models and of the agents that speak through them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dvk.config.section import Section


class BackboneConfig(Section):
    """How language models are run, here or by a server."""

    temperature: float = Field(1.0, ge=0, description="Divides the logits; 1 samples what the model was trained to say.")
    top_p: float = Field(
        1.0, gt=0, le=1, description="Share of the probability to sample from; below 1 the learner's ratios are biased.")
    max_tokens: int = Field(2048, ge=1, description="Longest answer in tokens; a chat model's whole file takes about 1,500.")
    thinking: bool = Field(False, description="Let chat templates that know it (Qwen3's) open a thinking block.")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="Of weights and products; auto is float32 up to 200 million parameters and for all that is trained whole by "
        "one process, and bfloat16 else.")
    slots: int = Field(1024, ge=1, description="Sequences decoded at once, at most; fewer where their caches do not fit.")
    score_tokens: int = Field(
        32768, ge=1, description="Tokens, padding included, of one pass that scores completions: bounds activations.")
    lora_rank: int = Field(0, ge=0, description="Rank of LoRA adapters put on a model when it is opened; 0 trains all weights.")
    lora_alpha: float = Field(32.0, gt=0, description="Scale of LoRA's update times its rank, as in its paper.")
    endpoint_url: str | None = Field(
        None, description="Base URL of an OpenAI-compatible server, `/v1` included; null takes $OPENAI_BASE_URL.")
    api_key_env: str = Field(
        "OPENAI_API_KEY", description="Environment variable that holds the server's key; keys do not belong in files.")
    concurrency: int = Field(16, ge=1, description="Requests in flight at once; servers that batch want many.")
    retries: int = Field(4, ge=0, description="Tries after the first, with growing pauses; they last about 15 s in all.")
    timeout_s: float = Field(600.0, gt=0, description="Wall clock of one request; a long answer of a large model takes minutes.")
    prompt_usd: float | None = Field(None, ge=0, description="Price of a million prompt tokens; null leaves costs unknown.")
    completion_usd: float | None = Field(None, ge=0, description="Price of a million completion tokens; null leaves costs unknown.")


class AgentsConfig(Section):
    """What the three agents are shown and asked for. Counts are those of daVinci-kernel (arXiv 2606.16497) unless said otherwise."""

    num_candidates: int = Field(20, ge=0, description="Skills that BM25 offers to the selection agent; 0: no skills at all.")
    num_chosen: int = Field(3, ge=1, description="Skills it may choose.")
    num_new_skills: int = Field(2, ge=1, description="Skills that one summary may propose.")
    query_terms: int = Field(32, ge=1, description="Rarest words of the graph, and as many of the source, in a retrieval query.")
    task_tokens: int = Field(6000, ge=100, description="The reference's source in a prompt; KernelBench's longest is about 4,000.")
    skills_tokens: int = Field(4500, ge=100, description="All skills given together: three seeds of at most 1,450 each fit whole.")
    prompt_tokens: int = Field(
        24576, ge=1000, description="A policy's prompt: earlier attempts are left out beyond it. daVinci's limit with skills.")
    feedback_tokens: int = Field(
        500, ge=50, description="What is said of one attempt: the first error or the figures and a dozen profile lines.")
    summary_tokens: int = Field(
        12000, ge=500, description="A whole trajectory in a summary's prompt: three answers of 3,000 tokens, task and skills.")
    new_skill_tokens: int = Field(512, ge=50, description="Length asked of a new skill's body; more than twice as much is refused.")
    kept_attempts: int = Field(
        4, ge=1, description="Earlier attempts shown to the policy in full: the last, the best, then the latest ones. Dr.Kernel's "
        "best window at test time; all of three turns.")


class RolloutConfig(Section):
    """How much is played for one task, and how. Numbers are those of daVinci-kernel's 14B run unless said otherwise."""

    schemes: int = Field(3, ge=0, description="Selections of skills sampled a task (k).")
    selector: Literal["model", "bm25", "random"] = Field(
        "model", description="Who selects: the selection agent; as its controls the first by BM25, or as many candidates at random.")
    explored: int = Field(
        0, ge=0, description="Of these, so many whose skills are drawn at random instead, as with selector=random: an agent that is sure "
        "of its choice tries no other, and nobody sees what would have paid. Ours.")
    null_scheme: bool = Field(True, description="Also play without skills, which is what a selection is compared with.")
    rollouts: int = Field(4, ge=1, description="Conversations a scheme (n).")
    turns: int = Field(3, ge=1, description="Attempts a conversation (T).")
    iterations: int = Field(
        1, ge=1, description="Sequential test-time scaling: a conversation that is full goes on from its best window until it is full "
        "again, so many times in all; daVinci-kernel: 5 turns, 10 iterations, 14 attempts.")
    window: int = Field(
        4, ge=0, description="Attempts in a row that such a conversation keeps, at most one less than its turns; Dr.Kernel: 4.")
    summaries: int = Field(8, ge=0, description="Summaries sampled of a task's best improvement (s).")
    over_first: float = Field(1.2, ge=1, description="A summary is due when the best turn is so many times faster than a right first turn…")
    over_eager: float = Field(1.2, ge=1, description="…and so many times faster than eager PyTorch.")
    temperature: float = Field(1.0, ge=0, description="Of all three agents; 0 is greedy.")
    top_p: float = Field(1.0, gt=0, le=1, description="Nucleus; the learner's probabilities need 1.")
    resample_unparsed: int = Field(
        0, ge=0, description="Times that a policy's answer that cannot be read is drawn again in the same turn, at a temperature of 1 at "
        "least; by dvk eval and strategies auto and refine. dvk train needs 0: it learns from the first draw.")
    repair_attempts: int | None = Field(
        None, ge=0, description="Times that a policy's answer that cannot be read is gone on otherwise from within, the likeliest other "
        "token first, by a model whose weights are here and whose text is looked at line by line, as nano's is. null: 32, in a search "
        "against the clock 4, and with dvk train 0, which it needs: it learns from the first draw.")
    selection_tokens: int = Field(1024, ge=1, description="Longest selection answer; the compact dialect needs and asks less.")
    policy_tokens: int = Field(8192, ge=1, description="Longest policy answer a turn.")
    summary_tokens: int = Field(2048, ge=1, description="Longest summary answer.")
    batch: int = Field(64, ge=1, description="Conversations a call of the backbone; decoding costs about the same for 1 and 64.")
    judges: int = Field(0, ge=0, description="Candidates in the judge's hands at a time for each GPU: others compile while one is timed. "
                        "0: as many as cores and the GPU's memory serve, at most 10; without a GPU 2.")
    require_kernels: bool = Field(False, description="Refuse candidates that leave the computing to PyTorch's operators.")
