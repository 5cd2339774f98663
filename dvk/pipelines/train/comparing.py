"""Two or more policies on the same tasks: scores with intervals over tasks, differences paired by task.

If a task was tried several times (by runs with different seeds), its tries are averaged first, and the bootstrap draws
tasks: an interval shows the variation over tasks, not over trainings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dvk.stats import fast_p
from dvk.stats.fast_p import TaskOutcome

THRESHOLDS = ("1", "1.2", "1.5")


@dataclass(frozen=True)
class PolicyOutcomes:
    """One policy's outcomes.

    Attributes:
        name: display name.
        outcomes: tries at tasks; may be empty.
        remark: a note for the reader, e.g. that a run was stopped.
        steps: steps before the outcomes were measured.
        seeds: seeds of their runs.
    """

    name: str
    outcomes: Sequence[TaskOutcome]
    remark: str = ""
    steps: int | None = None
    seeds: Sequence[int] = ()


def compared(arms: Sequence[PolicyOutcomes]) -> list[dict[str, Any]]:
    """A row an arm: its scores, and their differences from the first arm.

    Returns:
        name, remark, steps, seeds, num_tasks, num_tries; `scores` and, except for the first arm, `differences`: by name
        (fast_1, fast_1.2, fast_1.5, speedup) value, lo and hi. A speedup is the geometric mean with the original kept where
        nothing is faster, its difference a ratio; null if nothing was measured.
    """
    rows = []
    for number, arm in enumerate(arms):
        row: dict[str, Any] = {
            "name": arm.name,
            "remark": arm.remark,
            "steps": arm.steps,
            "seeds": list(arm.seeds),
            "num_tasks": len({o.task for o in arm.outcomes}),
            "num_tries": len(arm.outcomes),
            "scores": _scores(arm),
        }
        if number:
            row["differences"] = _differences(arms[0], arm)
        rows.append(row)
    return rows


def table(rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """The same as text, with a line of headings: a line an arm, and one of differences under each but the first."""
    names = list(rows[0]["scores"]) if rows else []
    told = [["", "tasks", *(_heading(name) for name in names)]]
    for row in rows:
        label = row["name"] + (f" ({row['remark']})" if row["remark"] else "")
        told.append(
            [label, str(row["num_tasks"]), *(shown(name, row["scores"][name]) for name in names)]
        )
        if "differences" in row:
            against = f"… against {rows[0]['name']}"
            told.append(
                [
                    against,
                    str(row["differences"][names[0]]["num_tasks"]),
                    *(shown(name, row["differences"][name], signed=True) for name in names),
                ]
            )
    return told


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """The table in Markdown."""
    head, *lines = table(rows)
    written = [head, ["---"] + ["---:"] * (len(head) - 1), *lines]
    return (
        "\n".join(
            "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in written
        )
        + "\n"
    )


def shown(name: str, found: Mapping[str, Any], *, signed: bool = False) -> str:
    """`41.2 % [30.0, 52.5]`, `+3.1 pp [-1.2, +7.4]` (percentage points), `1.320× [1.210, 1.440]`; without ends for one task, a dash where
    nothing was measured."""
    value, lo, hi = found["value"], found["lo"], found["hi"]
    if value is None:
        return "–"
    if name == "speedup":
        return f"{value:.3f}×" + (f" [{lo:.3f}, {hi:.3f}]" if lo is not None else "")
    sign, unit = ("+", "pp") if signed else ("", "%")
    return f"{100 * value:{sign}.1f} {unit}" + (
        f" [{100 * lo:{sign}.1f}, {100 * hi:{sign}.1f}]" if lo is not None else ""
    )


def _heading(name: str) -> str:
    return name if name != "speedup" else "speedup (original kept)"


def _score(threshold: str) -> Callable[[TaskOutcome], float]:
    return lambda outcome: float(fast_p.is_fast(outcome, float(threshold)))


def _scores(arm: PolicyOutcomes) -> dict[str, Any]:
    scores = fast_p.summary(arm.outcomes, THRESHOLDS)
    if not arm.outcomes:
        nothing = {"value": None, "lo": None, "hi": None}
        return {name: nothing for name in (*(f"fast_{t}" for t in THRESHOLDS), "speedup")}
    ends = {
        f"fast_{t}": (scores["fast_p"][t], *(scores["fast_p_interval"][t] or (None, None)))
        for t in THRESHOLDS
    }
    ends["speedup"] = (scores["geomean_kept"], *(scores["geomean_kept_interval"] or (None, None)))
    return {name: {"value": value, "lo": lo, "hi": hi} for name, (value, lo, hi) in ends.items()}


def _differences(first: PolicyOutcomes, second: PolicyOutcomes) -> dict[str, Any]:
    differences = {
        f"fast_{t}": fast_p.difference(first.outcomes, second.outcomes, _score(t), share=True)
        for t in THRESHOLDS
    }
    logs = fast_p.difference(first.outcomes, second.outcomes, fast_p.log_speedup)
    ratio = {
        end: math.exp(logs[end]) if logs[end] is not None else None for end in ("value", "lo", "hi")
    }
    return {**differences, "speedup": {**ratio, "num_tasks": logs["num_tasks"]}}
