"""Strategies for `dvk optimize`: generators that propose candidates and receive verdicts.

A strategy is a function `strategy(problem) -> Generator[list[Candidate], list[Verdict], None]`. It
yields a batch, receives the batch's verdicts in order (None for one that was not judged for want of
time), and returns when it has nothing left to propose. At the time limit it receives its last verdicts, some of
them None, and is then closed; a model may end it earlier (`dvk.backbone.pause_gate.OutOfTime`), which it lets pass.

It must be deterministic given the verdicts and the model's answers: a resumed run replays it from the recorded
ones, without any code in the strategy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

from dvk import machine
from dvk.agents.bounds import Bounds
from dvk.backbone import Backbone
from dvk.composer import CapturedGraph
from dvk.config import Config
from dvk.errors import ModelError
from dvk.records import BackendName, Candidate, Skill, Task, Trace, Turn, Verdict
from dvk.search.tunings import Known
from dvk.target import DEFAULT, Target

Proposals = Generator[list[Candidate], list["Verdict | None"], None]


@dataclass(frozen=True)
class SearchProblem:
    """A strategy's inputs."""

    task: Task
    captured: CapturedGraph | None
    """None, if there is a backbone, for a module that cannot be captured: a general model reads its source."""
    backend: BackendName
    skills: tuple[Skill, ...]
    """Retrieved for the task, best first."""
    config: Config
    backbone: Backbone | None = None
    """The language model, for strategies that ask one."""
    keep: Callable[[Trace], None] = field(default=lambda trace: None, compare=False, repr=False)
    """Takes each conversation with the model as it ends or is left, for the episode. The answers of a strategy that gives
    none are kept too, as turns that stand alone."""
    warn: Callable[[ModelError], None] = field(
        default=lambda error: None, compare=False, repr=False
    )
    """Takes the error that ended a model's part of a search that continues without it."""
    tunings: Known = field(default_factory=dict, compare=False, repr=False)
    """Schedule measurements of earlier searches on this machine, by class of kernels."""
    target: Target = DEFAULT
    """The device whose facts decide which schedules are worth measuring."""
    left: Callable[[], float] = field(default=lambda: math.inf, compare=False, repr=False)
    """Seconds of the budget that are left."""
    leave_out: Callable[[str, str], None] = field(
        default=lambda title, why: None, compare=False, repr=False
    )
    """Takes the title of a candidate that is not judged, and the reason."""
    bounds: Callable[[], Bounds | None] = field(default=lambda: None, compare=False, repr=False)
    """What bounds the task's time by now; a resumed search gets the same from each call as before."""
    seeds: tuple[Turn, ...] = ()
    """The user's candidates: parents of a model's programs. Judged, once `seeded.first` has begun."""
    limit: int | None = None
    """Candidates that are judged at most, for strategies that keep some for the end; None: time is the limit."""


def device_of(config: Config, device: str) -> str:
    """The name under which what is measured here is remembered: the judge's if it is elsewhere, else this machine's device."""
    return config.remote.judge or config.remote.engine or machine.fingerprint(device)


Strategy = Callable[[SearchProblem], Proposals]

STRATEGIES = {
    "auto": "dvk.search.auto:search",
    "composer": "dvk.search.composer:search",
    "random": "dvk.search.random_plans:search",
    "refine": "dvk.search.refine:search",
    "best_of_n": "dvk.search.best_of_n:search",
    "evolve": "dvk.search.evolve:search",
    "contrastive": "dvk.search.contrastive:search",
    "judge": "dvk.search.judge:search",
    "polca": "dvk.search.polca:search",
    "macro": "dvk.search.macro:search",
}
ASK_A_MODEL = frozenset({"refine", "best_of_n", "evolve", "contrastive", "judge", "polca", "macro"})
"""Strategies that need `SearchProblem.backbone`."""
ASK_NONE = frozenset({"composer", "random"})
"""Strategies that have no use for one; strategies in neither set use a backbone if there is one."""
