"""Gains weighted by launches: the time of all calls that a model makes, eager and with the winners."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from dvk.pipelines.eval.rows import EvalRow
from dvk.pipelines.eval.suites import SuiteTask

KINDS = ("definition", "class")
"""Groups that a gain is also told for."""


def weighted(rows: Sequence[EvalRow], problems: Sequence[SuiteTask]) -> dict[str, Any]:
    """`weighted` of the summary: reference_ms, ms and speedup of all launches, as a whole and by definition or class; empty where no task
    counts launches.

    A task without a faster winner counts as eager; one that was not timed is left out and counted.
    """
    counted = {p.name: p for p in problems if p.launches is not None}
    if not counted:
        return {}
    best: dict[str, tuple[float, float]] = {}
    for row in rows:
        timed = row.final
        if timed.reference_ms is None or row.task not in counted:
            continue
        ratio = max(1.0, timed.speedup or 1.0)
        if row.task not in best or ratio > best[row.task][0]:
            best[row.task] = ratio, timed.reference_ms
    by_kind: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for name, (ratio, reference_ms) in best.items():
        problem = counted[name]
        before = (problem.launches or 0.0) * reference_ms
        kind = next((problem.groups[k] for k in KINDS if k in problem.groups), name)
        by_kind[kind].append((before, before / ratio))
    whole = _ratio([pair for pairs in by_kind.values() for pair in pairs])
    found = {
        **whole,
        "num_not_timed": len(counted.keys() - best.keys()),
        "by_kind": {name: _ratio(pairs) for name, pairs in by_kind.items()},
    }
    return {"weighted": found}


def _ratio(pairs: Sequence[tuple[float, float]]) -> dict[str, float | None]:
    before, after = sum(p[0] for p in pairs), sum(p[1] for p in pairs)
    return {"reference_ms": before, "ms": after, "speedup": before / after if after else None}
