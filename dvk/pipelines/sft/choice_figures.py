"""Figures of chosen plans against a table: right, fast_p, geometric mean, and how much of the gap to the oracle is closed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dvk.records.measured import MeasuredPlan, MeasuredTask
from dvk.stats.fast_p import TaskOutcome, summary

DRAWS = 2000
"""Bootstrap draws."""
LEVEL = (2.5, 97.5)
FIXED = 3
"""A fixed rule is looked at if the table holds it for this many tasks."""


class Chosen(NamedTuple):
    """A plan that a model chose for a task."""

    text: str
    plan: MeasuredPlan | None
    """None: the table does not hold it."""


def figures(chosen: Sequence[tuple[MeasuredTask, Chosen]]) -> dict[str, Any]:
    """Scores of choices.

    Returns:
        tasks, unknown (plans that the table does not hold: left out of everything else,
        which is None without a known plan), right (share), fast (threshold → share of right
        and faster), geomean (a wrong plan counts as eager), default, oracle, fixed (geometric means of the composer's own plan, the
        table's best plan of each task, and the best single change of recipes applied wherever it is known), rule (that change), closed
        (share of ln(oracle / default)) and closed_interval (bootstrap over tasks).
    """
    known = [(task, one.plan) for task, one in chosen if one.plan is not None]
    outcomes = [
        TaskOutcome(task.task.name, plan.speedup is not None, plan.speedup, _lower(plan))
        for task, plan in known
    ]
    speed = np.array([_log(plan) for _, plan in known])
    default = np.array([_log(task.default) for task, _ in known])
    oracle = np.array([_log(task.best) for task, _ in known])
    rule, fixed = best_rule([task for task, _ in known])
    gap = oracle - default
    result: dict[str, Any] = {
        "tasks": len(chosen),
        "unknown": len(chosen) - len(known),
        "right": float(np.mean([o.correct for o in outcomes])) if known else None,
        "fast": summary(outcomes)["fast_p"] if known else {},
        "rule": rule,
    }
    for name, values in (
        ("geomean", speed),
        ("default", default),
        ("oracle", oracle),
        ("fixed", fixed),
    ):
        result[name] = float(np.exp(values.mean())) if len(values) else None
    result["closed"] = _share((speed - default).sum(), gap.sum())
    drawn = np.random.default_rng(0).integers(0, max(1, len(known)), (DRAWS, len(known)))
    shares = [_share((speed - default)[d].sum(), gap[d].sum()) for d in drawn] if known else [0.0]
    result["closed_interval"] = [float(np.percentile(shares, end)) for end in LEVEL]
    return result


def best_rule(tasks: Sequence[MeasuredTask]) -> tuple[str, np.ndarray]:
    """The first line of a plan that gains most if it is applied wherever the table holds it alone; and log-speeds under it."""
    default = np.array([_log(task.default) for task in tasks])
    texts = [{plan.text: plan for plan in task.plans if "\n" not in plan.text} for task in tasks]
    counts = Counter(text for plans in texts for text in plans if text)
    best, found = "plan", default
    for text, count in counts.items():
        if count >= FIXED:
            speed = np.array(
                [
                    _log(plans[text]) if text in plans else own
                    for plans, own in zip(texts, default, strict=True)
                ]
            )
            if speed.sum() > found.sum():
                best, found = text, speed
    return best, found


def _log(plan: MeasuredPlan | None) -> float:
    return math.log(plan.speedup) if plan is not None and plan.speedup else 0.0


def _lower(plan: MeasuredPlan) -> float | None:
    return plan.verdict.timing.speedup.lo if plan.verdict.timing is not None else None


def _share(gained: float, gap: float) -> float:
    return float(gained / gap) if gap > 0 else 0.0
