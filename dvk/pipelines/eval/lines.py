"""PyTorch's own lines in an evaluation: each requested baseline as a candidate, judged and timed once a task.

Baselines that were timed in the same rounds as a winner are not judged again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dvk import harness
from dvk.composer.dropin.lines import OF_BASELINE, candidate, cannot
from dvk.pipelines.eval.progress import Progress
from dvk.pipelines.eval.request import EvalRequest
from dvk.pipelines.eval.rows import timed_beside
from dvk.records import Candidate, Episode, Task, Verdict


def judge_lines(
    episodes: Sequence[Episode],
    known: Sequence[Mapping[str, Any]],
    again: Mapping[tuple[str, int], Verdict],
    request: EvalRequest,
    progress: Progress,
    pool: harness.JudgeQueue[Any],
) -> Iterator[dict[str, Any]]:
    """A row for each task and baseline: `task`, `line`, and its `verdict`, or why there is none, `error`.

    Args:
        known: rows of an earlier run.
        again: second verdicts by (task, sample).
        pool: the judges.
    """
    there = {(row["task"], row["line"]) for row in known}
    places: list[tuple[str, str]] = []
    jobs: list[tuple[Task, Candidate]] = []
    for task in {episode.task.name: episode.task for episode in episodes}.values():
        seconds = [timed_beside(v) for (named, _), v in again.items() if named == task.name]
        for name in request.baselines:
            if (task.name, name) in there or seconds and all(name in one for one in seconds):
                continue
            if (why := cannot(task, name)) is not None:
                yield {"task": task.name, "line": name, "error": why}
                continue
            places.append((task.name, name))
            jobs.append((task, candidate(task, OF_BASELINE[name], "cpp")))
    if not jobs:
        return
    progress.stage(f"judging {len(jobs)} lines of PyTorch")
    spec = harness.JudgeSpec(contract="module")
    for position, verdict in pool.map(jobs, spec):
        progress.judged(1)
        yield {"task": places[position][0], "line": places[position][1], "verdict": verdict}
