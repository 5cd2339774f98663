"""Bounds, profile and opponent of the reference for a model's prompts, the same again when the run resumes."""

from __future__ import annotations

from dvk import target
from dvk.agents import bounds
from dvk.agents.bounds import Bounds
from dvk.config import Config
from dvk.harness.profiling.reference import reference_profile
from dvk.records import Graph, Task, Turn
from dvk.runs import RunFolder

FILE = "bounds.jsonl"


class ReferenceBounds:
    """A row of the run's `bounds.jsonl` a question: the n-th call of `latest` gives the n-th row, which is made if it is missing.

    Args:
        run: an open run.
        turns: the search's judged turns, which are added to.
    """

    def __init__(self, run: RunFolder, task: Task, config: Config, turns: list[Turn]):
        self.run, self.task, self.config, self.turns = run, task, config, turns
        self._known = [Bounds.model_validate(row) for row in run.read(FILE)]
        self._measured: Bounds | None = self._known[0] if self._known else None
        self._given = 0

    def measure(self, graph: Graph | None) -> None:
        """Profile an eager call of the reference, unless an earlier process of this run did."""
        if self._measured is not None:
            return
        device = target.of_judge(self.config, self.task.device)
        made = bounds.of(self.task, graph, self.config, device)
        here = not (self.config.remote.judge or self.config.remote.engine)
        profile = reference_profile(self.task, self.config.limits) if here else None
        self._measured = made.profiled(profile) if profile is not None else made

    def latest(self) -> Bounds | None:
        """What is known by now; None before `measure`."""
        if self._measured is None:
            return None
        if self._given == len(self._known):
            self._known.append(self._measured.judged(self.turns))
            self.run.append(FILE, self._known[-1])
        self._given += 1
        return self._known[self._given - 1]
