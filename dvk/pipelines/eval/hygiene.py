"""Tasks of a suite on which a speedup means nothing.

Two sources: the judge's findings (`harness.health`: made-up answers that the task accepts, on
every kind of inputs), which are always there; and, if requested, probes of the tasks themselves before they are played
(`tasks.hygiene`): constant outputs, outputs that ignore an input, values out of range.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from dvk.config import Config
from dvk.pipelines.eval.progress import Progress
from dvk.pipelines.eval.request import HYGIENE
from dvk.pipelines.eval.rows import EvalRow
from dvk.pipelines.eval.suites import SuiteTask
from dvk.records import Device
from dvk.runs import RunFolder
from dvk.tasks.hygiene import hygiene

WORTHLESS = re.compile(
    r"is constant|is one value|is out of range|holds NaN|gives the same for other inputs|input \d+ does not matter"
)
"""Findings that flag a task; others, such as a weight that does not matter, are only reported."""
AT_A_TIME = 20


def probe(
    problems: Sequence[SuiteTask],
    run: RunFolder,
    device: Device,
    config: Config,
    progress: Progress,
    eval_mode: bool = False,
) -> None:
    """Run the tasks and record the findings; tasks with a record are skipped."""
    known = {row["name"] for row in run.read(HYGIENE)}
    left = [p for p in problems if p.name not in known and p.error is None]
    if left:
        progress.stage(f"probing {len(left)} tasks")
    # On a GPU each task's context takes seconds and its inputs gigabytes: one after the other, few a child.
    found = hygiene(
        (p.path.read_text(encoding="utf-8", errors="replace") for p in left),
        config.limits,
        device=device,
        native=True,
        per_child=AT_A_TIME,
        eval_mode=eval_mode,
    )
    for problem, one in zip(left, found, strict=True):
        run.append(HYGIENE, {"name": problem.name, "reasons": list(one.reasons)})


def hygiene_flags(rows: Sequence[EvalRow], run: RunFolder) -> dict[str, list[str]]:
    """Flagged tasks with all their findings."""
    result: dict[str, list[str]] = {}
    for probed in run.read(HYGIENE):
        if any(WORTHLESS.search(reason) for reason in probed["reasons"]):
            result[probed["name"]] = list(probed["reasons"])
    for row in rows:
        if row.degenerate:
            result[row.task] = list(dict.fromkeys([*result.get(row.task, []), *row.health]))
    return result
