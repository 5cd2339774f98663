"""Settings of the cold start: what is collected, kept and fitted."""

from __future__ import annotations

from pydantic import Field

from dvk.config.names import names
from dvk.config.section import Section

MOST_PLAYED = 300
"""Tasks that `dvk sft collect` plays if their number is not set."""


class CollectConfig(Section):
    """`dvk sft collect`."""

    tasks: int = Field(20000, ge=1, description="Generated tasks that the composer writes programs for; 20,000 make about 130M tokens.")
    oversample: float = Field(
        5.0, ge=1, description="Tasks generated per task that is used: those with rare operators first."
    )
    favoured: dict[str, float] = Field({},
        description="The generator's operators, e.g. slice, and the factor by which tasks with them are preferred: for operators on "
        "which an earlier model fails.")
    per_task: int = Field(4, ge=1, description="Programs per task: several algorithms and schedules, with notes and without.")
    mutants: int = Field(10, ge=0,
        description="Graphs made of each captured one by exchanging operators and operands, so that a small model cannot memorise "
        "tasks; cheaper than capturing another.")
    per_mutant: int = Field(1, ge=1, description="Programs per mutant; another mutant teaches more than another program.")
    with_skills: float = Field(0.5, ge=0, le=1, description="Share of programs that follow notes.")
    interpret: bool = Field(False, description="Without a GPU, run Triton programs in its interpreter, 10 to 70 s each.")
    offset: float = Field(0.5, ge=0, le=1,
        description="Share of tasks whose listing starts at another index than 0, so that high indices are seen.")
    executed: int = Field(2000, ge=0,
        description="Programs executed, over all families; a family with a wrong program is left out. 0 admits all.")
    played: int | None = Field(None, ge=0, description="Tasks whose attempts are executed and timed; null plays as many as texts are "
                               f"written for, {MOST_PLAYED} at most: with 8 attempts each they make 2,400 verdicts.")
    attempts: int = Field(7, ge=1, description="Programs executed per task, in addition to two with a mistake.")

    @property
    def num_played(self) -> int:
        """Return the number of tasks that are played."""
        return min(self.tasks, MOST_PLAYED) if self.played is None else self.played


class FitConfig(Section):
    """`dvk sft fit`."""

    epochs: float = Field(4.0, gt=0, description="Passes over the examples; daVinci: 4.")
    max_steps: int | None = Field(None, ge=1, description="Most steps, whatever `epochs` says; null sets no limit.")
    save_every: int = Field(400, ge=1, description="Steps between checkpoints; daVinci: 400.")
    log_every: int = Field(20, ge=1, description="Steps between two lines of metrics.jsonl.")
    held_out: float = Field(0.01, ge=0, lt=0.5, description="Share of the tasks held out for evaluation.")
    played_repeats: int = Field(8, ge=1,
        description="Repeats of a played example per rendered example, of which there are a hundred times as many; 1 without renderings.")
    quality_tasks: int = Field(32, ge=0, description="Held-out tasks that each checkpoint answers greedily, alongside the training.")
    quality_s: float = Field(300.0, gt=0, description="Longest evaluation of one checkpoint; it is abandoned after that.")
    size: str = Field("12m", description="Size of a new nano: tiny, 5m, 12m, 17m.",
                      json_schema_extra=names("size of nano", "dvk.backbone.nano:PRESETS"))
    vocabulary: int = Field(4096, ge=300, description="Size of a nano's vocabulary in tokens.")
    compile: bool | None = Field(None, description="Compile the decoder with torch.compile; null: if it pays.")


class Speedups(Section):
    """Least speedups of examples, by kind of example."""

    policy: float = Field(
        0.8, ge=0, description="Where nothing is faster, launch overhead makes an honest kernel about 0.9×; below, the kernel is bad.")
    policy_with_skills: float = Field(0.0, ge=0, description="Examples in which a given skill does not pay are useful, too.")
    selection: float = Field(1.0, ge=0, description="A selection of skills that made the task slower is no example to follow.")
    summary: float = Field(1.2, ge=0, description="daVinci's threshold for summarising an episode.")


class DiversityConfig(Section):
    """Examples that SFT learns from: quality, duplicates, clusters, balance."""

    min_speedup: Speedups = Speedups()
    near_best: float = Field(
        0.8, ge=0, le=1,
        description="Plain policy answers below this share of the task's best known speedup are left out, since they teach the wrong "
        "choice; differences within a fifth have other causes.")
    require_verified: bool = Field(True,
        description="Only examples that were executed with status ok; imports are not, until they are replayed.")
    require_speedup: bool = Field(True, description="Only measured examples, if a least speedup is set.")
    min_chars: int = Field(16, ge=0, description="Shortest answer in characters: nothing shorter is a kernel or a tool call.")
    max_chars: int = Field(120_000, gt=0, description="Longest example in characters: about the reference's 32,768 tokens.")
    suites: tuple[str, ...] = Field((), description="Folders of KernelBench-format files kept for evaluation: similar tasks are left out.")
    contaminated_operators: int = Field(2, ge=1,
        description="Shortest operator sequence that counts as contamination if it equals a suite's.")
    contaminated: float = Field(
        0.9, gt=0, le=1, description="Similarity of modules from which a task counts as contamination: one operator of twenty replaced.")
    duplicate: float = Field(
        0.9, gt=0.5, le=1, description="Similarity of answers from which two are duplicates: a renamed copy, another block size.")
    method: str = Field("structure", description="How structures are clustered: structure, hdbscan, none, or path/to/file.py:function.",
                        json_schema_extra=names("clustering method", "dvk.learn.diversity.methods:METHODS", also=["none"]))
    similar: float = Field(
        0.6, gt=0, le=1, description="Average similarity within a cluster of structures: the same kernel with one operator more or less.")
    hdbscan_smallest: int = Field(5, ge=2, description="Smallest cluster of method hdbscan; its library's default.")
    cluster_sample: int = Field(1000, ge=2, description="Structures of a family clustered at once: a matrix of 4 MB, 50 ms.")
    cluster_cap: int = Field(0, ge=0, description="Most rows per cluster; 0 finds the cap that keeps the share cluster_keep.")
    cluster_keep: float = Field(
        0.9, gt=0, le=1,
        description="Share of rows that an automatic cap keeps; with a target, it keeps 1.5 times the target. A model trained from "
        "scratch needs most: with 0.5 it learned clearly less from as many tokens.")
    cluster_min: int = Field(32, ge=1, description="Least automatic cap: smaller clusters do not dominate.")
    target: int = Field(0, ge=0, description="Rows kept; 0 keeps as many as the other limits admit.")
    skill_share: float = Field(
        0.2, gt=0, le=1, description="Largest share of one skill in the rows with skills; more if there are few skills.")
    share_from: int = Field(24, ge=1, description="Rows that one skill or operator may always have: those of two or three tasks.")
    operator_share: float = Field(
        0.7, gt=0, le=1,
        description="Largest share of one operator: mul is in 61 % of rows; half would cost a fifth of all for 8 % diversity.")
