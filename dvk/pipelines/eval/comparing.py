"""Two evaluations side by side: differences paired by task, with intervals over tasks.

Tasks that only one of them tried are left out of every difference and counted. Several samples at a task are averaged first.
Times on the device alone are not compared with times from end to end: such tasks are left out of ratios, counted, and kept in shares.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dvk.config import Config
from dvk.errors import DvkError, UsageError
from dvk.pipelines.eval import compare_page
from dvk.pipelines.eval.request import AGAIN, EPISODES, ROWS, SUMMARY, UNPLAYED, Unplayed
from dvk.pipelines.eval.rows import EvalRow, Over, best_of, outcome, rows_for, same_timing_kind
from dvk.pipelines.eval.tables import table
from dvk.records import Episode, Verdict
from dvk.runs import RunFolder
from dvk.stats import fast_p
from dvk.stats.fast_p import TaskOutcome

MOST_TOLD = 10
"""Number of tasks listed that gained or lost most."""


def load(place: Path) -> tuple[list[EvalRow], dict[str, Any]]:
    """The known rows of an evaluation and its summary, by its folder; for an unfinished one, or one of an older dvk, from its episodes.

    Raises:
        UsageError: it is not an evaluation.
    """
    try:
        run = RunFolder.beside(place)
        try:
            rows = [EvalRow.model_validate(row) for row in run.read(ROWS)]
        except ValidationError:
            rows = []
        if not rows:
            again = {
                (row["task"], row["sample"]): Verdict.model_validate(row["verdict"])
                for row in run.read(AGAIN)
            }
            rows = rows_for(
                [Episode.model_validate(e) for e in run.read(EPISODES)],
                [Unplayed.model_validate(u) for u in run.read(UNPLAYED)],
                again,
            )
        said = run.read(SUMMARY)
    except (DvkError, OSError, ValidationError, KeyError):
        rows, said = [], []
    rows = [row for row in rows if row.known]
    if not rows:
        raise UsageError(f"no results in `{place}`", "give the run folder of a dvk eval")
    return rows, dict(said[-1]) if said else {}


def compare(
    first: Path, second: Path, out: Path | None = None, argv: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The second evaluation's gain over the first.

    Args:
        out: folder for `report.html` and `comparison.json`.
        argv: the command line, for that folder.

    Returns:
        `first` and `second`: run, policy, and the table of the tasks that both tried; num_shared, num_only_first, num_only_second;
        `differences`: by score (fast_0 … fast_3, speedup, faster_when_right) value, lo, hi, num_tasks; `best_of` and, where both
        measured it, `compile` likewise; `levels`: by level; num_unlike, tasks left out of ratios for how they were timed;
        `gained` and `lost`: tasks that changed most, with both speedups.

    Raises:
        UsageError: one of them is not an evaluation, or they share no task.
        RunFolderError: `out` is in use or cannot be written.
    """
    RunFolder.refuse_used(out, resume=False)
    (one, said), (two, told) = load(first), load(second)
    names = {row.task for row in one} & {row.task for row in two}
    if not names:
        raise UsageError(
            f"`{first}` and `{second}` share no task", "compare evaluations of one suite"
        )
    before, after = ([row for row in rows if row.task in names] for rows in (one, two))
    compiled = all(any("compile" in row.final.over for row in rows) for rows in (before, after))
    levels = sorted({row.groups["level"] for row in before if "level" in row.groups})
    gaps = changes(before, after)
    paired = differences(_outcomes(before), _outcomes(after))
    result = {
        "first": {"run": str(first), "policy": said.get("policy"), **_finals(before)},
        "second": {"run": str(second), "policy": told.get("policy"), **_finals(after)},
        "num_shared": len(names),
        "num_only_first": len({row.task for row in one} - names),
        "num_only_second": len({row.task for row in two} - names),
        "num_unlike": paired["speedup"]["num_unlike"],
        "differences": paired,
        "best_of": differences(
            *([outcome(row, end) for row, end in best_of(rows)] for rows in (before, after))
        ),
        "compile": differences(_outcomes(before, "compile"), _outcomes(after, "compile"))
        if compiled
        else None,
        "levels": {
            level: differences(
                *(
                    _outcomes([r for r in rows if r.groups.get("level") == level])
                    for rows in (before, after)
                )
            )
            for level in levels
        },
        "gained": [gap for gap in gaps if gap["ratio"] > 1][:MOST_TOLD],
        "lost": [gap for gap in reversed(gaps) if gap["ratio"] < 1][:MOST_TOLD],
    }
    if out is not None:
        with RunFolder.open(
            out, command="eval", name="comparison", argv=argv, config=Config(), resume=False
        ) as run:
            compare_page.write(run, result, before, after)
            run.finish("done")
    return result


def differences(first: Sequence[TaskOutcome], second: Sequence[TaskOutcome]) -> dict[str, Any]:
    """By score: second minus first for shares; second over first for `speedup`, the original kept where nothing is faster, and for
    `faster_when_right`, over the tasks that both solved, each with num_unlike, the tasks left out for how they were timed."""
    result = {
        f"fast_{t}": fast_p.difference(
            first,
            second,
            lambda o, t=t: float(fast_p.is_fast(o, float(t))),  # type: ignore[misc]
            share=True,
        )
        for t in fast_p.THRESHOLDS
    }
    out = mixed_timing_tasks(first, second)
    before, after = ([o for o in outcomes if o.task not in out] for outcomes in (first, second))
    result["speedup"] = _ratio(fast_p.difference(before, after, fast_p.log_speedup), len(out))
    before, after = (
        [o for o in outcomes if o.correct and o.speedup] for outcomes in (before, after)
    )
    result["faster_when_right"] = _ratio(
        fast_p.difference(before, after, lambda o: math.log(o.speedup or 1.0)), len(out)
    )
    return result


def mixed_timing_tasks(first: Sequence[TaskOutcome], second: Sequence[TaskOutcome]) -> set[str]:
    """Tasks with times on the device alone and times from end to end."""
    ways: dict[str, set[str]] = {}
    for one in (*first, *second):
        if one.regime is not None:
            ways.setdefault(one.task, set()).add(one.regime)
    return {task for task, found in ways.items() if len(found) > 1}


def changes(first: Sequence[EvalRow], second: Sequence[EvalRow]) -> list[dict[str, Any]]:
    """Tasks by what a user would gain from the second instead of the first, most first: task, first, second, ratio.

    A speedup is that of the best sample; null if none is right. Tasks that were timed in two ways are left out.
    """
    best = [{row.task: end for row, end in best_of(rows)} for rows in (first, second)]
    result = []
    for task in best[0].keys() & best[1].keys():
        ends = [of[task] for of in best]
        kept = [max(1.0, end.speedup or 0.0) if end.correct else 1.0 for end in ends]
        if any(end.correct for end in ends) and same_timing_kind(*ends):
            result.append(
                {
                    "task": task,
                    "first": ends[0].speedup,
                    "second": ends[1].speedup,
                    "ratio": kept[1] / kept[0],
                }
            )
    return sorted(result, key=lambda gap: (-gap["ratio"], gap["task"]))


def _finals(rows: Sequence[EvalRow]) -> dict[str, Any]:
    return table(
        [(row, row.final) for row in rows], any("compile" in row.final.over for row in rows)
    )


def _outcomes(rows: Sequence[EvalRow], over: Over = "eager") -> list[TaskOutcome]:
    return [outcome(row, row.final, over) for row in rows]


def _ratio(logs: dict[str, Any], num_unlike: int) -> dict[str, Any]:
    ends = {
        end: math.exp(logs[end]) if logs[end] is not None else None for end in ("value", "lo", "hi")
    }
    return {**ends, "num_tasks": logs["num_tasks"], "num_unlike": num_unlike}
