"""A `dvk eval` request, and the files of its run folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dvk.records import Record
from dvk.search import STRATEGIES

EPISODES = "episodes/eval.jsonl"
UNPLAYED = "unplayed.jsonl"
AGAIN = "again.jsonl"
LINES = "lines.jsonl"
FACTS = "tasks.jsonl"
HYGIENE = "hygiene.jsonl"
MEASURED = "measured.jsonl"
"""One line, if a table of measured plans is the judge: `MeasuredSuite.record`."""
SPENT = "spent.jsonl"
ROWS = "results.jsonl"
SUMMARY = "summary.jsonl"

Over = Literal["eager", "compile", "max-autotune", "graph"]
"""The denominator of a speedup."""


@dataclass(frozen=True, kw_only=True)
class EvalRequest:
    """The command line's request."""

    suite: Path
    policy: str = "composer"
    turns: int | None = None
    samples: int = 1
    iterations: int = 1
    """Sequential test-time scaling: how often a full conversation continues from its best window."""
    window: int | None = None
    """Turns of that window; None takes the setting, one less than the turns at most."""
    library: Path | None = None
    no_skills: bool = False
    baselines: tuple[Over, ...] = ()
    claim: bool = False
    """Winners are timed again at the claim tier in any case."""
    backend: str = "auto"
    device: str | None = None
    only: tuple[str, ...] = ()
    workers: int | None = None
    eval_mode: bool = False
    """Call .eval() on the modules before they are used."""
    train: bool = False
    """A call is forward and backward."""
    hygiene: bool = False
    """Probe the tasks themselves before they are played."""
    kernelbench: Path | None = None
    """Folder for the results in KernelBench's layout, too."""
    out: Path | None = None
    resume: bool = False
    argv: tuple[str, ...] = ()
    quiet: bool = False
    """Show no progress."""

    @property
    def strategy(self) -> str | None:
        """The named strategy, alone as in `composer` or with a model as in `auto:nano`; None if the policy is something else."""
        name = self.policy.partition(":")[0]
        return name if name in STRATEGIES else None

    @property
    def model(self) -> str:
        """The writing model's spec for `open_backbone`; empty if there is none."""
        return self.policy if self.strategy is None else self.policy.partition(":")[2]

    @property
    def num_candidates(self) -> int:
        """Candidates a task of a strategy, at most."""
        return (self.turns or 1) * self.samples


class Unplayed(Record):
    """A task that could not be loaded: it counts as failed, if it is known to be the policy's."""

    name: str
    error: str
    known: bool = True
    """False: that says nothing about the policy, and no figure counts it."""
    traceback: str = ""
    """Traceback of a dvk exception; empty otherwise."""
