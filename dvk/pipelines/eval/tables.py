"""All figures of an evaluation, from its rows.

fast_p is the share of *all* tasks: one that could not be loaded counts as failed in every table. If a task was tried several
times its tries are averaged first (`scores`). By turn, the first time counts: only winners are timed again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any

from dvk.pipelines.eval.request import Over
from dvk.pipelines.eval.rows import EvalMeasurement, EvalRow, best_of, outcome
from dvk.pipelines.report.units import many
from dvk.stats import fast_p

MOST_GROUPS = 24
"""A dimension with more values than this identifies tasks, not kinds of tasks."""

Found = tuple[EvalRow, EvalMeasurement]


def summarise(
    rows: Sequence[EvalRow],
    *,
    baselines: Sequence[Over] = (),
    flagged: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Any]:
    """Every table.

    Args:
        rows: of all tasks, those that failed to load included.
        baselines: baselines timed besides eager.
        flagged: tasks with the reason why a speedup on them means nothing.

    Returns:
        `scores.summary` for the mean over samples of each sample's result over all its turns, `fast_p_compile` (null
        unless measured), and tables of the same kind: `first_turn`; `best_of`, the best sample of each task; `levels`; `groups`,
        by dimension and value; `compile` and `max-autotune`, over each, if measured. Shares by turn: `by_turn`, best until then,
        and `per_turn`, that turn's own. `regimes`: how many samples' figures were timed in either way. `roofline`, `hygiene`,
        `failed` (task → why), `num_untimed`; `num_claims` and `num_held`, of winners that were claimed to be faster and are.
    """
    finals, compiled = [(row, row.final) for row in rows], "compile" in baselines
    longest = max((len(row.turns) for row in rows), default=0)
    dimensions = sorted({name for row in rows for name in row.groups})
    groups = {
        name: by_value(finals, name, compiled)
        for name in dimensions
        if name == "level" or _few(rows, name)
    }
    found = {
        **table(finals, compiled),
        "first_turn": table([(row, row.best(1)) for row in rows], compiled),
        "best_of": table(best_of(rows), compiled),
        "by_turn": {
            str(t): shares([(row, row.best(t)) for row in rows])
            for t in range(1, max(1, longest) + 1)
        },
        "per_turn": {
            str(t): shares([(row, _own(row, t)) for row in rows])
            for t in range(1, max(1, longest) + 1)
        },
        "levels": groups.get("level", {}),
        "groups": groups,
        "regimes": {
            way: sum(end.regime == way for _, end in finals) for way in ("device", "end_to_end")
        },
        "roofline": roofline(finals),
        "hygiene": hygiene(finals, flagged or {}, compiled),
        "failed": failures(rows),
        "num_untimed": sum(end.correct and end.speedup is None for _, end in finals),
        "num_claims": sum(end.holds is not None for _, end in finals),
        "num_held": sum(end.holds is True for _, end in finals),
    }
    return (
        found
        | {
            name: fast_p.summary([outcome(row, end, name) for row, end in finals])
            for name in baselines
        }
        | ({"portfolio": portfolio(rows, baselines)} if baselines else {})
    )


def portfolio(rows: Sequence[EvalRow], baselines: Sequence[Over]) -> dict[str, Any]:
    """The tables of what is handed out, the fastest of own kernels and PyTorch's lines: over eager, and `over` each baseline.

    `lines`: each line alone, over eager. `winners`: how many samples each way won. `not_timed`: by baseline, task → why.
    """
    ends = [(row, *row.portfolio()) for row in rows]
    finals = [(row, end) for row, _, end in ends]
    return {
        **table(finals),
        "over": {
            name: fast_p.summary([outcome(row, end, name) for row, end in finals])
            for name in baselines
        },
        "lines": {
            name: table([(row, row.lines.get(name, EvalMeasurement())) for row in rows])
            for name in baselines
        },
        "winners": dict(Counter(name for _, name, end in ends if end.speedup is not None)),
        "not_timed": {
            name: {row.task: row.not_timed[name] for row in rows if name in row.not_timed}
            for name in baselines
        },
    }


def mixed(summary: Mapping[str, Any]) -> str | None:
    """A note on figures that were timed in two ways; None if there are none, or in a summary of an older dvk."""
    regimes = summary.get("regimes") or {}
    if not regimes.get("device") or not regimes.get("end_to_end"):
        return None
    what = "tasks" if summary["samples"] == 1 else "samples"
    return (
        f"two ways of timing: figures of {regimes['device']} {what} are of the device alone, of {regimes['end_to_end']} from end to end "
        "(with the host's time, which CUDA graphs save)"
    )


def measured_notes(summary: Mapping[str, Any]) -> list[str]:
    """Notes on figures whose times come from a table of measured plans: its machine, and what it does not know."""
    if (table := summary.get("table")) is None:
        return []
    machines = "; ".join(table["machines"]) or "an unknown machine"
    notes = [
        f"all times are from {table['file']}, measured earlier on {machines}: nothing ran here"
    ]
    if names := list(table["left_out"]):
        notes.append(
            f"{many(len(names), 'task')} of the suite left out, not in the table (measured.jsonl says why): {_first(names)}"
        )
    if names := list(table["unknown"]):
        notes.append(
            f"{many(len(names), 'task')} with nothing known, in no figure (results.jsonl says why): {_first(names)}"
        )
    return notes


def _first(names: Sequence[str], count: int = 5) -> str:
    return ", ".join(names[:count]) + (", …" if len(names) > count else "")


def table(found: Sequence[Found], compiled: bool = False) -> dict[str, Any]:
    """`scores.summary` over eager, with `fast_p_compile`."""
    over = (
        fast_p.summary([outcome(row, end, "compile") for row, end in found])["fast_p"]
        if compiled
        else None
    )
    return {**fast_p.summary([outcome(row, end) for row, end in found]), "fast_p_compile": over}


def shares(found: Sequence[Found]) -> dict[str, float]:
    """fast_p alone, without intervals."""
    outcomes = [outcome(row, end) for row, end in found]
    return {
        t: fast_p.mean(fast_p.by_task(outcomes, lambda o, t=t: float(fast_p.is_fast(o, float(t)))))  # type: ignore[misc]
        for t in fast_p.THRESHOLDS
    }


def roofline(found: Sequence[Found]) -> dict[str, Any]:
    """Share of the machine's measured ceilings that right candidates reach: of bandwidth, or of arithmetic if that binds.

    Returns:
        num_tasks; mean and median share with the mean's interval, over_half (share of tasks above a half), arithmetic_bound
        (share of tasks bound by arithmetic); null if nothing was measured, as before `dvk doctor` ran.
    """
    by_task: dict[str, list[float]] = {}
    bound: dict[str, bool] = {}
    for row, end in found:
        share = of_roofline(row, end)
        if share is not None:
            by_task.setdefault(row.task, []).append(share)
            bound[row.task] = (row.flop_ms or 0.0) > (end.floor_ms or 0.0)
    reached = [fmean(values) for values in by_task.values()]
    if not reached:
        return {
            "num_tasks": 0,
            "mean": None,
            "interval": None,
            "median": None,
            "over_half": None,
            "arithmetic_bound": None,
        }
    ends = fast_p.interval(reached)
    return {
        "num_tasks": len(reached),
        "mean": fmean(reached),
        "interval": ends and list(ends),
        "median": median(reached),
        "over_half": fmean(share > 0.5 for share in reached),
        "arithmetic_bound": fmean(bound.values()),
    }


def of_roofline(row: EvalRow, end: EvalMeasurement) -> float | None:
    """Lower bound on the time of bytes or FLOPs, over the time taken, at most 1; None if neither is known."""
    floor = max(end.floor_ms or 0.0, row.flop_ms or 0.0)
    return min(1.0, floor / end.candidate_ms) if floor and end.candidate_ms else None


def hygiene(
    found: Sequence[Found], flagged: Mapping[str, Sequence[str]], compiled: bool
) -> dict[str, Any]:
    """Flagged tasks with reasons, and the totals without them."""
    clean = [(row, end) for row, end in found if row.task not in flagged]
    return {
        "num_flagged": len(flagged),
        "flagged": {name: list(why) for name, why in sorted(flagged.items())},
        "clean": table(clean, compiled) if clean and flagged else None,
    }


def failures(rows: Sequence[EvalRow]) -> dict[str, str]:
    """Tasks without a right sample, with the first sample's reason."""
    right = {row.task for row in rows if row.final.correct}
    why: dict[str, str] = {}
    for row in rows:
        if row.task not in right:
            why.setdefault(row.task, row.error or "the second measurement found it wrong")
    return dict(sorted(why.items()))


def _own(row: EvalRow, turn: int) -> EvalMeasurement:
    return row.turns[turn - 1] if turn <= len(row.turns) else EvalMeasurement()


def by_value(
    found: Sequence[Found], dimension: str, compiled: bool = False
) -> dict[str, dict[str, Any]]:
    """A table for every value of a dimension, e.g. for every level."""
    values = sorted({row.groups[dimension] for row, _ in found if dimension in row.groups})
    return {
        value: table(
            [(row, end) for row, end in found if row.groups.get(dimension) == value], compiled
        )
        for value in values
    }


def _few(rows: Sequence[EvalRow], dimension: str) -> bool:
    return len({row.groups.get(dimension) for row in rows}) <= MOST_GROUPS
