"""`--baseline` of `dvk verify`: PyTorch's own lines, each judged and timed once a reference, as a candidate of the same tier.

A candidate's speedup over a baseline is its speedup over eager over the baseline's, with an interval of both. So a baseline is compiled
and timed once however many candidates there are, and a claim over it also rests on separate fresh processes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from dvk.composer.dropin.lines import OF_BASELINE, candidate, cannot
from dvk.pipelines.verify.jobs import VerifyRequest
from dvk.records import Candidate, Interval, Task, Verdict
from dvk.runs import RunFolder

LINES = "lines.jsonl"
Place = tuple[str, str]
"""A task's id, and a baseline."""


class BaselineLines:
    """The verdicts on the baselines of a run's references, or why there is none; kept in the run's folder.

    Args:
        request: names the baselines; without any nothing is done.
        run: the folder.
    """

    def __init__(self, request: VerifyRequest, run: RunFolder):
        self._request, self._run = request, run
        self._found: dict[Place, Verdict | str] = {}
        for row in run.read(LINES) if request.resume else ():
            if row["tier"] == request.tier and row.get("verdict"):
                self._found[row["task"], row["line"]] = Verdict.model_validate(row["verdict"])

    def jobs(self, tasks: Iterable[Task]) -> list[tuple[Place, Task, Candidate]]:
        """Return the lines that are to be judged; the reasons of others are kept."""
        result = []
        for task in {task.id: task for task in tasks}.values():
            for name in self._request.baselines:
                place = task.id, name
                why = (
                    "the smoke tier times nothing"
                    if self._request.tier == "smoke"
                    else cannot(task, name)
                )
                if why is not None:
                    self._found[place] = why
                elif place not in self._found:
                    result.append((place, task, candidate(task, OF_BASELINE[name], "cpp")))
        return result

    def add(self, place: Place, verdict: Verdict) -> None:
        """Keep the verdict on a line."""
        self._found[place] = verdict
        self._run.append(
            LINES,
            {
                "task": place[0],
                "line": place[1],
                "tier": self._request.tier,
                "verdict": verdict.model_dump(mode="json"),
            },
        )

    def beside(self, verdict: Verdict, task: Task | None) -> Verdict:
        """Return a candidate's verdict with its speedup over each baseline, or the reason why there is none.

        Args:
            task: None if its reference could not be loaded.
        """
        over: dict[str, Interval] = {}
        ms: dict[str, float] = {}
        why: dict[str, str] = {}
        for name in self._request.baselines:
            line = self._found.get((task.id, name)) if task is not None else None
            if isinstance(line, Verdict) and line.timing is not None and verdict.timing is not None:
                if line.timing.regime == verdict.timing.regime:
                    over[name] = ratio(verdict.timing.speedup, line.timing.speedup)
                    ms[name] = line.timing.candidate_ms
                    continue
            why[name] = _reason(verdict, line)
        if verdict.timing is None:
            return verdict.model_copy(update={"baselines_left_out": why})
        timing = verdict.timing.model_copy(update={"baselines": over, "baselines_ms": ms})
        return verdict.model_copy(update={"timing": timing, "baselines_left_out": why})


def _reason(verdict: Verdict, line: Verdict | str | None) -> str:
    if isinstance(line, str):
        return line
    if verdict.timing is None or line is None:
        return verdict.untimed_reason or "the candidate was not timed"
    if line.timing is None:
        error = (line.error or line.untimed_reason or "it was not timed").strip()
        return f"{line.status.value}: {error.partition(chr(10))[0][:300]}"
    return "the candidate's launches are timed on the device alone, a baseline from end to end"


def ratio(one: Interval, other: Interval) -> Interval:
    """Return the ratio of two independent ratios, with half-widths added in quadrature on the log scale."""
    value = one.value / other.value
    if not (one.known and other.known):
        return Interval.unknown(value)
    lo = math.hypot(math.log(one.value / one.lo), math.log(other.hi / other.value))
    hi = math.hypot(math.log(one.hi / one.value), math.log(other.value / other.lo))
    return Interval(value=value, lo=value * math.exp(-lo), hi=value * math.exp(hi))
