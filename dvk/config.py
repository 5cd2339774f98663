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
    betas: tuple[float, float] = Field((0.9, 0.95), description="AdamW's.")
    weight_decay: float = Field(0.01, ge=0, description="AdamW's, on matrices only.")
    clip: float = Field(1.0, gt=0, description="Largest gradient norm.")
    precision: Literal["auto", "bf16", "fp32"] = Field("auto", description="What is computed in; auto is bf16 on a GPU.")
    gradient_checkpointing: bool = Field(False, description="Compute activations again in the backward pass: slower, smaller.")
    pack_tokens: int = Field(4096, ge=64, description="Tokens of a pack: the longest row that is learned.")
    batch_tokens: int = Field(65536, ge=64, description="Tokens of a step, over all processes.")
    micro_packs: int = Field(4, ge=1, description="Packs computed at a time, on one device.")


class Agents(Section):
    """What the three agents are shown and asked for. Counts are those of daVinci-kernel (arXiv 2606.16497) unless said otherwise."""

    num_candidates: int = Field(20, ge=0, description="Skills that BM25 offers to the selection agent; 0: no skills at all.")
    num_chosen: int = Field(3, ge=1, description="Skills it may choose.")
    num_new_skills: int = Field(2, ge=1, description="Skills that one summary may propose.")
    query_terms: int = Field(32, ge=1, description="Rarest words of the graph, and as many of the source, in a retrieval query.")
    task_tokens: int = Field(6000, ge=100, description="The reference's source in a prompt; KernelBench's longest is about 4,000.")
    skills_tokens: int = Field(4000, ge=100, description="All skills given together: three seeds of at most 1,400 each fit whole.")
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


class Config(Section):
    """All settings."""

    seed: int = Field(0, description="Seeds everything that is not required to be secret.")
    limits: Limits = Limits()
    judge: Judge = Judge()
    optimize: Optimize = Optimize()
    agents: Agents = Agents()
    rollout: Rollout = Rollout()
    learning: Learning = Learning()


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
