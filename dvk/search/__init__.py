"""Strategies for `dvk optimize`: generators that propose candidates and are sent back verdicts.

A strategy is a function `strategy(problem) -> Generator[list[Candidate], list[Verdict], None]`. It
yields a batch, receives the batch's verdicts in order (None for one that was not judged for want of
time), and returns when it has nothing left to propose. It must be deterministic given the verdicts:
a resumed run replays it from the recorded ones.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

from dvk.backbone import Backbone
from dvk.composer import Captured
from dvk.config import Config
from dvk.records import Backend, Candidate, Skill, Task, Verdict

Proposals = Generator[list[Candidate], list["Verdict | None"], None]


@dataclass(frozen=True)
class Problem:
    """What a strategy is given."""

    task: Task
    captured: Captured
    backend: Backend
    skills: tuple[Skill, ...]
    """Retrieved for the task, best first."""
    config: Config
    backbone: Backbone | None = None
    """The language model, for strategies that ask one."""


Strategy = Callable[[Problem], Proposals]

STRATEGIES = {
    "composer": "dvk.search.composer:search",
    "random": "dvk.search.random_plans:search",
    "refine": "dvk.search.refine:search",
    "best_of_n": "dvk.search.best_of_n:search",
}
ASK_A_MODEL = frozenset({"refine", "best_of_n"})
"""Strategies that need `Problem.backbone`."""
AUTO = "composer"
"""What `--strategy auto` means while no language model is asked for."""
