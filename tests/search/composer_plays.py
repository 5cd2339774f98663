"""Plays of the composer against a judge that is known."""

from __future__ import annotations

from pathlib import Path

from dvk import tasks
from dvk.composer.capture.export import trace
from dvk.config import Config
from dvk.records import Candidate, Interval, Skill, Status, Timing, Verdict
from dvk.search import SearchProblem
from dvk.search.composer import search
from tests.tasks.shrink import TASKS, shrunken


def problem(name: str, folder: Path, skills: tuple[Skill, ...] = ()) -> SearchProblem:
    task = tasks.load(str(shrunken(TASKS / "examples" / f"{name}.py", folder)))
    return SearchProblem(task, trace(task), "cpp", skills, Config())


def verdict(speedup: float) -> Verdict:
    exact = Interval(value=speedup, lo=speedup, hi=speedup)
    timing = Timing(candidate_ms=1.0, reference_ms=speedup, speedup=exact, num_pairs=9, seconds=0.1)
    return Verdict(status=Status.OK, tier="search", stage="done", timing=timing)


def play(given: SearchProblem, score) -> list[Candidate]:
    """Run a strategy on a made-up clock; every candidate it proposed, in order."""
    proposals = search(given)
    seen: list[Candidate] = []
    batch = next(proposals, None)
    while batch is not None:
        seen += batch
        try:
            batch = proposals.send([verdict(score(c)) for c in batch])
        except StopIteration:
            break
    return seen
