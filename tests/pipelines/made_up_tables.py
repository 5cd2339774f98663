"""Tables with made-up speeds: what pays can be read off the question."""

from __future__ import annotations

from dvk.records import Interval, Status, Task, Timing, Verdict
from dvk.records.measured import MeasuredPlan, MeasuredTask

TEXTS = ("plan", "plan +own_matmul", "plan\nk0 = looped block 64", "plan\nk0 = flat block 32")


def plan(text: str, speedup: float | None) -> MeasuredPlan:
    timing = None
    if speedup is not None:
        ends = Interval(value=speedup, lo=0.99 * speedup, hi=1.01 * speedup)
        timing = Timing(
            candidate_ms=1.0, reference_ms=speedup, speedup=ends, num_pairs=9, seconds=0.1
        )
    status = Status.OK if timing is not None else Status.MISMATCH
    verdict = Verdict(
        status=status,
        tier="search",
        stage="done" if timing else "check",
        error=None if timing else "off by 3",
        timing=timing,
    )
    kind = "default" if text == "plan" else "random"
    return MeasuredPlan(
        kind=kind, recipes=(), schedule={"k0": {"text": text}}, text=text, verdict=verdict
    )


def task(number: int, suite: str) -> MeasuredTask:
    """Long rows want a loop, short ones own products; writing flat is wrong."""
    long = number % 2 == 1
    speeds = (1.0, 0.9 if long else 1.5, 1.5 if long else 0.9, None)
    words = f"norm rows {number % 7} {'long' if long else 'short'}"
    return MeasuredTask(
        task=Task(
            id=f"{suite}{number}", name=f"{suite}{number}", source="", entry="M", kind="module"
        ),
        backend="triton",
        question=f"{words}\nplan",
        groups={"suite": suite},
        plans=tuple(plan(text, speed) for text, speed in zip(TEXTS, speeds, strict=True)),
    )
