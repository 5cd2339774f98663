"""KernelBench's numbers of problems: level and problem_id."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

from dvk.interop.kernelbench.results import KernelBenchResult
from dvk.pipelines.eval.rows import tries, winner
from dvk.pipelines.eval.suites import SuiteTask
from dvk.records import Episode, Status, Verdict


def numbers(problems: Sequence[SuiteTask]) -> dict[str, tuple[int, int]]:
    """Name → (level, problem_id): from the names if all of a level have distinct ones, else by their order, from 1."""
    levels: dict[str, list[SuiteTask]] = defaultdict(list)
    for problem in problems:
        levels[problem.groups.get("level", "")].append(problem)
    said = {name: re.search(r"(\d+)$", name) for name in levels}
    named = {int(result[1]) for result in said.values() if result}
    result: dict[str, tuple[int, int]] = {}
    for place, (name, members) in enumerate(sorted(levels.items()), start=1):
        number = said[name]
        level = int(number[1]) if number and len(named) == len(levels) else place
        ids = [problem.number for problem in members]
        usable = None not in ids and len(set(ids)) == len(ids)
        for order, problem in enumerate(members, start=1):
            result[problem.name] = (
                level,
                problem.number if usable and problem.number is not None else order,
            )
    return result


def results_by_id(
    problems: Sequence[SuiteTask],
    episodes: Sequence[Episode],
    failed: Mapping[str, str],
    again: Mapping[tuple[str, int], Verdict],
    chosen: Mapping[tuple[str, int], str] | None = None,
) -> list[KernelBenchResult]:
    """Every sample's winner under its numbers, and a failure for every problem that was not played.

    Args:
        failed: tasks that could not be loaded → why.
        again: second verdicts by (task, sample).
        chosen: the candidates of those second verdicts, likewise; for missing keys the fastest.
    """
    places, files = numbers(problems), {p.name: p.name.rpartition("/")[2] + ".py" for p in problems}
    result = [
        KernelBenchResult(*places[name], 0, files[name], error=why)
        for name, why in failed.items()
        if name in places
    ]
    for episode in episodes:
        name = episode.task.name
        if name not in places:
            continue
        for sample, turns in enumerate(tries(episode) or [[]]):
            right = (t for t in turns if t.verdict is not None and t.verdict.status is Status.OK)
            best = winner(turns, (chosen or {}).get((name, sample)))
            best = (
                best
                or next(right, None)
                or next((t for t in reversed(turns) if t.verdict is not None), None)
            )
            verdict = again.get((name, sample)) or (best.verdict if best is not None else None)
            source = (
                best.candidate.source if best is not None and best.candidate is not None else None
            )
            said = next((t.malformed for t in reversed(turns) if t.malformed), None)
            result.append(
                KernelBenchResult(*places[name], sample, files[name], verdict, source, said)
            )
    return result
