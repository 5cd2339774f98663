"""Settings of the cold start: what is collected, kept and fitted."""

from __future__ import annotations

from pydantic import Field

from dvk.config.names import names
from dvk.config.section import Section

MOST_PLAYED = 300
"""Tasks that `dvk sft collect` plays where it is not told how many."""


class CollectConfig(Section):
    """`dvk sft collect`."""

    tasks: int = Field(20000, ge=1, description="Generated tasks that the composer writes texts for; 20,000 make about 130M tokens.")
    oversample: float = Field(
        5.0, ge=1, description="Tasks generated for each that texts are written for: those with rare operators first."
    )
    favoured: dict[str, float] = Field({}, description="The generator's operators, e.g. slice, and how much likelier tasks with them are "
                                       "written for: what an earlier model errs in.")
    per_task: int = Field(4, ge=1, description="Texts a task: several algorithms and schedules, with notes and without.")
    mutants: int = Field(10, ge=0, description="Graphs made of each captured one by exchanging operators and operands, so that a small "
                         "model cannot know tasks by heart; cheaper than capturing another.")
    per_mutant: int = Field(1, ge=1, description="Texts a mutant; another mutant teaches more than another text.")
    with_skills: float = Field(0.5, ge=0, le=1, description="Share of texts that follow notes.")
    interpret: bool = Field(False, description="Without a GPU execute Triton texts in its interpreter, 10 to 70 s each.")
    offset: float = Field(0.5, ge=0, le=1, description="Share of tasks listed from other indices than 0, or high ones stay unseen.")
    executed: int = Field(2000, ge=0, description="Texts executed, over all families; one with a wrong text is left out. 0 admits all.")
    played: int | None = Field(None, ge=0, description="Tasks whose attempts are executed and timed; null plays as many as texts are "
                               f"written for, {MOST_PLAYED} at most: with 8 attempts each they make 2,400 verdicts.")
    attempts: int = Field(7, ge=1, description="Texts executed a task, two with a mistake besides.")

    @property
    def num_played(self) -> int:
        """Tasks that are played."""
        return min(self.tasks, MOST_PLAYED) if self.played is None else self.played


class FitConfig(Section):
    """`dvk sft fit`."""

    epochs: float = Field(4.0, gt=0, description="Times through the examples; daVinci: 4.")
    max_steps: int | None = Field(None, ge=1, description="Steps at most, whatever the epochs say; null sets no limit.")
    save_every: int = Field(400, ge=1, description="Steps between checkpoints; daVinci: 400.")
    log_every: int = Field(20, ge=1, description="Steps written to metrics.jsonl at a time.")
    held_out: float = Field(0.01, ge=0, lt=0.5, description="Share of the tasks whose examples only measure.")
    played_repeats: int = Field(8, ge=1, description="Times an example that was played is shown for each time of a rendering, of which "
                                "there are a hundred times as many; without renderings 1.")
    quality_tasks: int = Field(32, ge=0, description="Held-out tasks that each checkpoint answers greedily, beside the training.")
    quality_s: float = Field(300.0, gt=0, description="Longest that measuring one checkpoint may take before it is given up.")
    size: str = Field("12m", description="Of a nano made from nothing: tiny, 5m, 12m, 17m.",
                      json_schema_extra=names("size of nano", "dvk.backbone.nano:PRESETS"))
    vocabulary: int = Field(4096, ge=300, description="Tokens of a nano's tokenizer.")
    compile: bool | None = Field(None, description="torch.compile the decoder; null does where it pays.")


class Speedups(Section):
    """The least speedup worth learning from, by kind of example."""

    policy: float = Field(
        0.8, ge=0, description="Where nothing wins, launch overhead makes an honest kernel about 0.9×; below, the kernel is bad.")
    policy_with_skills: float = Field(0.0, ge=0, description="That a given skill does not pay is worth showing.")
    selection: float = Field(1.0, ge=0, description="A choice of skills that made the task slower is no model.")
    summary: float = Field(1.2, ge=0, description="What daVinci asks of an episode before it is summarised.")


class DiversityConfig(Section):
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
    method: str = Field("structure", description="How structures are clustered: structure, hdbscan, none, or path/to/file.py:function.",
                        json_schema_extra=names("clustering method", "dvk.learn.diversity.methods:METHODS", also=["none"]))
    similar: float = Field(
        0.6, gt=0, le=1, description="Average similarity within a cluster of structures: the same kernel with one operator more or less.")
    hdbscan_smallest: int = Field(5, ge=2, description="Smallest cluster of method hdbscan; its library's default.")
    cluster_sample: int = Field(1000, ge=2, description="Structures of a family clustered at once: a matrix of 4 MB, 50 ms.")
    cluster_cap: int = Field(0, ge=0, description="Most rows of a cluster; 0 finds the cap under which cluster_keep of them remain.")
    cluster_keep: float = Field(
        0.9, gt=0, le=1, description="Share of rows that stay under an automatic cap; with a target, 1.5 times the target stays. A model "
        "made from nothing needs most: with 0.5 it learned clearly less from as many tokens.")
    cluster_min: int = Field(32, ge=1, description="An automatic cap never goes below this: smaller clusters are not what dominates.")
    target: int = Field(0, ge=0, description="Rows kept; 0 keeps as many as the other limits admit.")
    skill_share: float = Field(
        0.2, gt=0, le=1, description="Largest share of the rows with skills that one skill may be in; more where there are few skills.")
    share_from: int = Field(24, ge=1, description="Rows one skill or operator may always be in: those of two tasks or three.")
    operator_share: float = Field(
        0.7, gt=0, le=1, description="The same for one operator: mul is in 61 % of rows; half would cost a fifth of all for 8 % diversity.")
