"""Every number a user may change, written once, with its unit and its reason.

Precedence: defaults here < `--config file.toml` < `--set a.b=c` < named flags.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dvk.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


class Section(BaseModel):
    """A group of settings that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Limits(Section):
    """What one sandboxed child may use."""

    wall_s: float = Field(
        300.0, gt=0, description="Wall clock of a whole session; a cold torch.compile takes about a minute.")
    memory_bytes: int = Field(16 << 30, gt=0, description="Resident memory of the child's process tree.")
    num_processes: int = Field(512, gt=0, description="Processes and threads; torch alone starts one a core.")
    output_bytes: int = Field(
        1 << 16, gt=0, description="Kept tail of what the child prints; the rest is read and dropped.")


class Judge(Section):
    """How far and how long the judge looks."""

    num_seeds: int = Field(3, ge=1, description="Fresh input draws a shape variant at the search tier.")
    candidate_s: float = Field(60.0, gt=0, description="Wall clock for one candidate: compile, check and time.")
    search_pairs: int = Field(30, ge=5, description="Paired samples at the search tier.")
    claim_pairs: int = Field(50, ge=20, description="Paired samples at the claim tier, in each process.")
    search_s: float = Field(0.5, gt=0, description="Longest measuring time at the search tier.")
    claim_s: float = Field(1.0, gt=0, description="Longest measuring time at the claim tier, an arm and process.")
    settled: float = Field(
        0.005, gt=0, description="A search stops timing once the ratio's standard error is below this share.")


class Optimize(Section):
    """How `dvk optimize` searches."""

    budget_s: float = Field(120.0, gt=0, description="Wall clock of the search, final confirmation excluded.")
    num_skills: int = Field(20, ge=0, description="Skills that retrieval ranks for a task.")
    query_terms: int = Field(32, ge=1, description="Rarest terms of the graph's listing kept in a retrieval query.")


class Learning(Section):
    """The optimizer of `dvk sft fit` and `dvk train`."""

    rate: float = Field(2e-5, gt=0, description="Peak learning rate; daVinci's SFT uses 2e-5. From zero, nano wants about 3e-3.")
    schedule: Literal["cosine", "constant"] = Field("cosine", description="What follows the warm-up.")
    warmup: float = Field(0.1, ge=0, lt=1, description="Share of the steps in which the rate rises; daVinci: 10 %.")
    final_rate: float = Field(0.0, ge=0, le=1, description="Where the cosine ends, as a share of the peak.")
    betas: tuple[float, float] = Field((0.9, 0.95), description="AdamW's; those of daVinci's SFT.")
    weight_decay: float = Field(0.01, ge=0, description="AdamW's, on matrices only.")
    clip: float = Field(1.0, gt=0, description="Largest gradient norm.")
    precision: Literal["auto", "bf16", "fp32"] = Field("auto", description="What is computed in; auto is bf16 on a GPU.")
    gradient_checkpointing: bool = Field(False, description="Compute activations again in the backward pass: slower, smaller.")
    pack_tokens: int = Field(4096, ge=64, description="Tokens of a pack: the longest row that is learned.")
    batch_tokens: int = Field(65536, ge=64, description="Tokens of a step, over all processes.")
    micro_packs: int = Field(4, ge=1, description="Packs computed at a time, on one device.")


class Rewards(Section):
    """What a turn is worth. Numbers are those of daVinci-kernel (arXiv 2606.16497) unless said otherwise."""

    weights: dict[str, float] = Field(
        {"correctness": 0.5, "speedup": 0.5, "coverage": 0.5, "format": 0.2},
        description="Parts of the reward by name (dvk.rewards.TERMS) and what each counts; format is ours.")
    cap: float = Field(6.0, gt=0, description="Largest speedup that pays.")
    least: float = Field(0.0, ge=0, description="Smallest speedup that pays.")
    margin: float = Field(0.05, ge=0, description="By how much a milestone must be passed; noise of a search's timing.")


class Credit(Section):
    """From rewards to advantages. Numbers are those of daVinci-kernel's 14B run unless said otherwise."""

    advantage: str = Field("leave_one_out", description="How a value is compared with its peers': leave_one_out, grpo, reinforce, or "
                           "path/to/file.py:Name.")
    gamma: float = Field(1.0, ge=0, le=1, description="How much of what later turns earned an earlier one is credited with.")
    policy: float = Field(1.0, ge=0, description="Weight of the policy's advantages; 0 leaves the role out.")
    selection: float = Field(0.3, ge=0, description="Weight of the selection's; 0 leaves the role out.")
    summary: float = Field(0.5, ge=0, description="Weight of the summary's; 0 leaves the role out.")
    even: bool = Field(True, description="Divide a task's policy advantages by their mean size.")
    void: bool = Field(True, description="Leave out turns worth nothing after one that was worth something.")
    profiling_rejection: bool = Field(True, description="Leave out right turns whose kernels do little of the work (PRS).")
    least_coverage: float = Field(0.3, ge=0, le=1, description="Share of device time below which all such turns are left out…")
    coverage_width: float = Field(0.1, gt=0, description="…and how far above it none is.")
    mismatch_rejection: bool = Field(True, description="Leave out answers whose probability the learner and the sampler differ on (MRS).")
    mismatch: float = Field(0.001, gt=0, description="Mean log-ratio a token that is always admitted…")
    mismatch_spread: float = Field(0.0, ge=0, description="…and a single token's rounding error, which widens it by 3/√tokens; ours. "
                                   "Float32: 0; bfloat16: about 0.02.")
    veto: float = Field(1e-4, gt=0, lt=1, description="A token whose ratio is smaller drops its answer.")
    correction_cap: float = Field(0.0, ge=0, description="Instead of rejection or beside it, weigh answers by the mean of their tokens' "
                                  "ratios, each at most this; 0: not at all.")


class Objective(Section):
    """The loss of reinforcement learning. Numbers are those of daVinci-kernel's 14B run unless said otherwise."""

    clip_low: float = Field(0.2, ge=0, le=1, description="How far below 1 a token's ratio counts (PPO).")
    clip_high: float = Field(0.28, ge=0, description="How far above 1: more, so that rare good tokens can grow (DAPO's clip-higher).")
    dual: float = Field(3.0, ge=1, description="A bad token's loss is at most so many times its advantage (dual-clip PPO).")
    aggregate: Literal["token", "row", "sum"] = Field(
        "token", description="Mean over the step's tokens; mean over answers of their mean; or daVinci's mean over answers of their sum "
        "over `divide`, which counts a kernel a hundred times as much as a selection.")
    divide: float = Field(1000.0, gt=0, description="Divides the sums of `sum`.")


class Agents(Section):
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


class Rollout(Section):
    """How much is played for one task, and how. Numbers are those of daVinci-kernel's 14B run unless said otherwise."""

    schemes: int = Field(3, ge=0, description="Selections of skills sampled a task (k).")
    selector: Literal["model", "bm25", "random"] = Field(
        "model", description="Who selects: the selection agent; as its controls the first by BM25, or as many candidates at random.")
    null_scheme: bool = Field(True, description="Also play without skills, which is what a selection is compared with.")
    rollouts: int = Field(4, ge=1, description="Conversations a scheme (n).")
    turns: int = Field(3, ge=1, description="Attempts a conversation (T).")
    summaries: int = Field(8, ge=0, description="Summaries sampled of a task's best improvement (s).")
    over_first: float = Field(1.2, ge=1, description="A summary is due when the best turn is so many times faster than a right first turn…")
    over_eager: float = Field(1.2, ge=1, description="…and so many times faster than eager PyTorch.")
    temperature: float = Field(1.0, ge=0, description="Of all three agents; 0 is greedy.")
    top_p: float = Field(1.0, gt=0, le=1, description="Nucleus; the learner's probabilities need 1.")
    selection_tokens: int = Field(1024, ge=1, description="Longest selection answer; the compact dialect needs and asks less.")
    policy_tokens: int = Field(8192, ge=1, description="Longest policy answer a turn.")
    summary_tokens: int = Field(2048, ge=1, description="Longest summary answer.")
    batch: int = Field(64, ge=1, description="Conversations a call of the backbone; decoding costs about the same for 1 and 64.")
    judges: int = Field(2, ge=1, description="Candidates in the judge's hands at a time: one compiles while another is timed.")
    require_kernels: bool = Field(False, description="Refuse candidates that leave the computing to PyTorch's operators.")


class Evolve(Section):
    """Strategy `evolve`: what a mutation is shown, and which programs live on."""

    information: Literal["free", "insight", "full"] = Field(
        "full", description="What is shown beside the parent, after EvoEngineer: nothing; insights; insights and other good programs.")
    population: Literal["single", "elite", "diverse"] = Field(
        "diverse", description="Who may be a parent: the best; the best few; the best few and those most unlike them, as in Kernel-Smith.")
    top: int = Field(3, ge=1, description="Best programs in the archive; with `diverse` EvoEngineer's population of 5.")
    diverse: int = Field(2, ge=0, description="Programs in it for being unlike the others.")
    crossover: float = Field(0.25, ge=0, le=1, description="Share of children with two parents: a mutation keeps more of what works.")
    insights: int = Field(6, ge=0, description="Ideas shown with what came of them, those that changed most: half a page.")


class Contrastive(Section):
    """Strategy `contrastive`: which scored programs are set side by side."""

    exemplars: int = Field(2, ge=2, description="Programs compared in a prompt; CUDA-L1: 2.")
    bucket: float = Field(
        1.1, gt=1, description="Ratio of speedups from one bucket to the next: within 10 % there is little to explain.")
    temperature: float = Field(
        0.3, gt=0, description="Of the softmax over buckets, their speedups as shares of the best: at 0.3 one of half the best speed "
        "is drawn a fifth as often as the best.")


class Review(Section):
    """Strategy `judge`: one change at a time, named by a reviewer."""

    branches: int = Field(2, ge=1, description="Programs worked on side by side, so that a model that batches is used; CudaForge: 1.")
    rounds: int = Field(10, ge=1, description="Changes to a program before one is begun anew; CudaForge: 10.")
    repairs: int = Field(3, ge=1, description="Tries at repairing what a change broke before it is undone: most repairs take one or two.")
    tried: int = Field(5, ge=0, description="Failed changes of the version at hand that are told, or the same are named again.")


class Polca(Section):
    """Strategy `polca`: a queue by mean score under noise, novelty, a running summary."""

    popped: int = Field(5, ge=1, description="Programs taken from the queue a step; POLCA: 5.")
    measurements: int = Field(
        4, ge=1, description="Times a program is measured at most; the mean's error falls with the square root, and a fifth gains a tenth.")
    novelty: float = Field(
        0.005, ge=0, lt=1, description="Distance (see dvk.search.novelty) to every right program that a new one must exceed: other names, "
        "layout or comments are at 0, one changed number in a file of 300 lines at 0.006. POLCA's 0.02 is of embeddings.")
    summary_tokens: int = Field(400, ge=50, description="The running summary: one page, as much as feedback on one attempt.")


class Search(Section):
    """How the strategies of `dvk optimize` that ask a model search; `refine` and `best_of_n` play rounds of `rollout` instead."""

    openings: int = Field(4, ge=1, description="Programs begun from the task alone; those with skills and without by halves.")
    offspring: int = Field(4, ge=1, description="Programs asked for at a time: writing costs about the same as for one, judging does not.")
    patience: int = Field(3, ge=1, description="Rounds in a row without anything new that end the search: a small model repeats itself at times.")
    evolve: Evolve = Evolve()
    contrastive: Contrastive = Contrastive()
    review: Review = Review()
    polca: Polca = Polca()


class Backbone(Section):
    """How language models are run, here or by a server."""

    temperature: float = Field(1.0, ge=0, description="Divides the logits; 1 samples what the model was trained to say.")
    top_p: float = Field(
        1.0, gt=0, le=1, description="Share of the probability to sample from; below 1 the learner's ratios are biased.")
    max_tokens: int = Field(2048, ge=1, description="Longest answer in tokens; a chat model's whole file takes about 1,500.")
    thinking: bool = Field(False, description="Let chat templates that know it (Qwen3's) open a thinking block.")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="Of weights and products; auto is float32 up to 200 million parameters and bfloat16 above.")
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


class Collect(Section):
    """`dvk sft collect`."""

    tasks: int = Field(20000, ge=1, description="Generated tasks that the composer writes texts for; 20,000 make about 50M tokens.")
    per_task: int = Field(6, ge=1, description="Texts a task: several algorithms and schedules, with notes and without.")
    with_skills: float = Field(0.5, ge=0, le=1, description="Share of texts that follow notes.")
    interpret: bool = Field(False, description="Without a GPU execute Triton texts in its interpreter, 10 to 70 s each.")
    offset: float = Field(0.5, ge=0, le=1, description="Share of tasks listed from other indices than 0, or high ones stay unseen.")
    executed: int = Field(2000, ge=0, description="Texts executed, over all families; one with a wrong text is left out. 0 admits all.")
    played: int = Field(300, ge=0, description="Tasks whose attempts are executed and timed; 300 with 8 attempts each make 2,400 verdicts.")
    attempts: int = Field(7, ge=1, description="Texts executed a task, one with a mistake besides.")


class Fit(Section):
    """`dvk sft fit`."""

    epochs: float = Field(4.0, gt=0, description="Times through the examples; daVinci: 4.")
    max_steps: int | None = Field(None, ge=1, description="Steps at most, whatever the epochs say; null sets no limit.")
    save_every: int = Field(400, ge=1, description="Steps between checkpoints; daVinci: 400.")
    log_every: int = Field(20, ge=1, description="Steps written to metrics.jsonl at a time.")
    held_out: float = Field(0.01, ge=0, lt=0.5, description="Share of the tasks whose examples only measure.")
    quality_tasks: int = Field(32, ge=0, description="Held-out tasks that each checkpoint answers greedily, beside the training.")
    quality_s: float = Field(300.0, gt=0, description="Longest that measuring one checkpoint may take before it is given up.")
    size: str = Field("12m", description="Of a nano made from nothing: tiny, 5m, 12m, 17m.")
    vocabulary: int = Field(4096, ge=300, description="Tokens of a nano's tokenizer.")
    compile: bool | None = Field(None, description="torch.compile the decoder; null does where it pays.")


class Speedups(Section):
    """The least speedup worth learning from, by kind of example."""

    policy: float = Field(
        0.8, ge=0, description="Where nothing wins, launch overhead makes an honest kernel about 0.9×; below, the kernel is bad.")
    policy_with_skills: float = Field(0.0, ge=0, description="That a given skill does not pay is worth showing.")
    selection: float = Field(1.0, ge=0, description="A choice of skills that made the task slower is no model.")
    summary: float = Field(1.2, ge=0, description="What daVinci asks of an episode before it is summarised.")


class Diversity(Section):
    """Which examples SFT learns from: quality, duplicates, clusters, balance."""

    min_speedup: Speedups = Speedups()
    near_best: float = Field(
        0.8, ge=0, le=1, description="Plain policy answers below this share of the best known for their task are left out: "
        "they teach the wrong choice; within a fifth, other things than the choice decide.")
    require_verified: bool = Field(True, description="Only what was executed and is ok; imports are not until replayed.")
    require_speedup: bool = Field(True, description="Only what was measured, where a least speedup is set.")
    min_chars: int = Field(16, ge=0, description="Shortest answer: nothing shorter is a kernel or a tool call.")
    max_chars: int = Field(120_000, gt=0, description="Longest example: about the reference's 32,768 tokens.")
    suites: tuple[str, ...] = Field((), description="Folders of KernelBench-format files that will be measured on: tasks like theirs go.")
    contaminated_operators: int = Field(2, ge=1, description="Shortest operator sequence that makes a task a suite's by being equal.")
    contaminated: float = Field(
        0.9, gt=0, le=1, description="Similarity of modules from which on a task is a suite's: one operator of twenty replaced.")
    duplicate: float = Field(
        0.9, gt=0.5, le=1, description="Similarity of answers from which on two are duplicates: a renamed copy, another block size.")
    method: str = Field("structure", description="How structures are clustered: structure, hdbscan, none, or path/to/file.py:function.")
    similar: float = Field(
        0.6, gt=0, le=1, description="Average similarity within a cluster of structures: the same kernel with one operator more or less.")
    hdbscan_smallest: int = Field(5, ge=2, description="Smallest cluster of method hdbscan; its library's default.")
    cluster_sample: int = Field(1000, ge=2, description="Structures of a family clustered at once: a matrix of 4 MB, 50 ms.")
    cluster_cap: int = Field(0, ge=0, description="Most rows of a cluster; 0 finds the cap under which cluster_keep of them remain.")
    cluster_keep: float = Field(
        0.5, gt=0, le=1, description="Share of rows that stay under an automatic cap; with a target, 1.5 times the target stays.")
    cluster_min: int = Field(32, ge=1, description="An automatic cap never goes below this: smaller clusters are not what dominates.")
    target: int = Field(0, ge=0, description="Rows kept; 0 keeps as many as the other limits admit.")
    skill_share: float = Field(
        0.2, gt=0, le=1, description="Largest share of the rows with skills that one skill may be in; more where there are few skills.")
    share_from: int = Field(24, ge=1, description="Rows one skill or operator may always be in: those of two tasks or three.")
    operator_share: float = Field(
        0.7, gt=0, le=1, description="The same for one operator: mul is in 61 % of rows; half would cost a fifth of all for 8 % diversity.")


class Config(Section):
    """All settings."""

    seed: int = Field(0, description="Seeds everything that is not required to be secret.")
    limits: Limits = Limits()
    judge: Judge = Judge()
    optimize: Optimize = Optimize()
    backbone: Backbone = Backbone()
    agents: Agents = Agents()
    rollout: Rollout = Rollout()
    rewards: Rewards = Rewards()
    credit: Credit = Credit()
    objective: Objective = Objective()
    search: Search = Search()
    learning: Learning = Learning()
    collect: Collect = Collect()
    fit: Fit = Fit()
    diversity: Diversity = Diversity()


def load(file: Path | None = None, settings: Sequence[str] = (), flags: dict[str, Any] | None = None) -> Config:
    """Merge the four sources.

    Args:
        file: a TOML file whose tables are the sections.
        settings: `a.b=c` strings; `c` is JSON if it parses as such, else text.
        flags: dotted key → value from named flags; None values are skipped.

    Raises:
        UsageError: unreadable file, unknown key or value of the wrong kind.
    """
    merged: dict[str, Any] = {}
    if file is not None:
        try:
            merged = tomllib.loads(file.read_text())
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise UsageError(f"cannot read `{file}`: {error}", "give a readable TOML file") from None
    for setting in settings:
        key, separator, text = setting.partition("=")
        if not separator:
            raise UsageError(f"not a setting: `{setting}`", "write --set section.key=value")
        _put(merged, key.strip(), _literal(text.strip()))
    for key, value in (flags or {}).items():
        if value is not None:
            _put(merged, key, value)
    try:
        return Config.model_validate(merged)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise UsageError(f"bad setting `{key}`: {first['msg']}", "see `dvk doctor --settings` for all keys") from None


def _literal(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _put(tree: dict[str, Any], dotted: str, value: Any) -> None:
    *parents, last = dotted.split(".")
    for parent in parents:
        branch: Any = tree.setdefault(parent, {})
        if not isinstance(branch, dict):
            problem = f"bad setting `{dotted}`: `{parent}` is not a section"
            raise UsageError(problem, "see `dvk doctor --settings` for all keys")
        tree = branch
    tree[last] = value
