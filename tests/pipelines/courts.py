"""A court whose verdicts a test makes up, for searches of `dvk optimize` without a judge."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from dvk.records import Candidate, Claim, Interval, Status, Timing, Verdict

Figures = tuple[float, float, float]
QUIET: Figures = (0.99, 1.0, 1.01)


def verdict(
    tier: Any, speedup: Figures, control: Figures = QUIET, holds: bool | None = None
) -> Verdict:
    """A right candidate of so many times eager's speed: lower end, middle, upper end."""
    found, aa = (Interval(lo=lo, value=value, hi=hi) for lo, value, hi in (speedup, control))
    claim = Claim(
        speedup=found,
        processes=(found.value,) * 5,
        control=aa,
        margin=0.02,
        holds=found.lo > 1.02 if holds is None else holds,
    )
    timing = Timing(
        candidate_ms=1.0,
        reference_ms=found.value,
        speedup=found,
        num_pairs=9,
        seconds=0.1,
        claim=claim if tier == "claim" else None,
    )
    return Verdict(
        status=Status.OK,
        tier=tier,
        stage="done",
        timing=timing,
        seconds=0.2,
        stages_s={"time": 0.1},
    )


class Court:
    """Judges by a function of the number of the call, from 0, and the tier; None is a cut, an exception is raised."""

    def __init__(self, judge: Callable[[int, str], Verdict | BaseException | None]):
        self.by, self.asked = judge, list[tuple[str, str]]()
        self.left_s = list[float]()
        """Seconds until each deadline."""

    def __call__(self, *_: Any, **__: Any) -> Court:
        return self

    def __enter__(self) -> Court:
        return self

    def __exit__(self, *_: object) -> None: ...

    def judge(
        self,
        candidate: Candidate,
        tier: Any = "search",
        baselines: Any = (),
        deadline: float | None = None,
    ) -> Verdict | None:
        self.asked.append((tier, candidate.source))
        self.left_s += [deadline - time.monotonic()] if deadline is not None else []
        found = self.by(len(self.asked) - 1, tier)
        if isinstance(found, BaseException):
            raise found
        return found

    def of(self, tier: str) -> list[str]:
        return [source for one, source in self.asked if one == tier]
