"""Judges existing candidates again: recorded episodes, or a run folder of KernelBench's.

They are judged again, not counted: a figure of `dvk eval` is this machine's verdict of today, against this suite's tasks and
the requested baselines, so that records from other machines, versions or judges are comparable. For the
figures of a finished evaluation, use its folder with `--resume` or `--compare`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dvk import backends
from dvk.agents import TaskContext
from dvk.errors import UsageError
from dvk.harness.queue import JudgeQueue
from dvk.interop.kernelbench import results
from dvk.pipelines.eval.kernelbench_ids import numbers
from dvk.pipelines.eval.request import Unplayed
from dvk.pipelines.eval.suites import SuiteTask
from dvk.records import Candidate, Episode, Trace, Turn

EPISODES, KERNELBENCH = "episodes:", "kernelbench:"
AHEAD = 4
"""Candidates waiting per worker: the next task is examined meanwhile."""

Told = dict[str, list[Trace]]


def is_record(policy: str) -> bool:
    """Whether the policy names existing candidates."""
    return policy.startswith((EPISODES, KERNELBENCH))


@dataclass
class _Open:
    """A task whose candidates are being judged."""

    subject: TaskContext
    traces: list[list[Turn]]
    skills: list[Trace]
    left: int = 0
    turns: dict[tuple[int, int], Turn] = field(default_factory=dict)


def replay_records(
    subjects: Iterable[TaskContext],
    problems: Sequence[SuiteTask],
    policy: str,
    judging: JudgeQueue[Any],
) -> Iterator[Episode | Unplayed]:
    """An episode a task, with the record's turns and today's verdicts; tasks without a record count as failed.

    Raises:
        UsageError: the record cannot be read, or has none of these tasks.
    """
    kind, _, place = policy.partition(":")
    told = _kernels(Path(place), problems) if f"{kind}:" == KERNELBENCH else _episodes(Path(place))
    games: dict[str, _Open] = {}
    missing: list[Unplayed] = []
    met = 0
    waiting = iter(subjects)
    subject = next(waiting, None)
    while subject is not None or games:
        while subject is not None and judging.num_pending < AHEAD * judging.workers:
            traces = told.get(subject.task.id) or told.get(subject.task.name)
            if traces is None:
                missing.append(Unplayed(name=subject.task.name, error="nothing is recorded of it"))
            else:
                met += 1
                game = _begin(subject, traces, judging)
                if game.left:
                    games[subject.task.name] = game
                else:
                    yield _episode(game)
            subject = next(waiting, None)
        if not games:
            continue
        for (name, sample, turn), verdict in judging.results(wait=True):
            game = games[name]
            game.traces[sample][turn] = game.traces[sample][turn].model_copy(
                update={"verdict": verdict}
            )
            game.left -= 1
            if not game.left:
                yield _episode(games.pop(name))
    if missing and not met:
        raise UsageError(
            f"`{place}` records none of these tasks", "give the suite that it was played on"
        )
    yield from missing


def _begin(subject: TaskContext, traces: Sequence[Trace], judging: JudgeQueue[Any]) -> _Open:
    game = _Open(subject, [list(trace.turns) for trace in traces], list(traces))
    for sample, turns in enumerate(game.traces):
        for number, turn in enumerate(turns):
            if turn.candidate is not None:
                game.left += 1
                judging.submit((subject.task.name, sample, number), subject.task, turn.candidate)
    return game


def _episode(game: _Open) -> Episode:
    traces = [
        trace.model_copy(update={"turns": tuple(turns), "rollout": number})
        for number, (trace, turns) in enumerate(zip(game.skills, game.traces, strict=True))
    ]
    return Episode(task=game.subject.task, traces=tuple(traces))


def _episodes(place: Path) -> Told:
    """Policy conversations by the id and the name of their task: of a JSONL file, or of all files of a run."""
    files = sorted((place / "episodes").glob("*.jsonl")) if place.is_dir() else [place]
    if not files or not all(file.is_file() for file in files):
        raise UsageError(
            f"no episodes in `{place}`", "give a JSONL file of episodes, or a run's folder"
        )
    result: Told = defaultdict(list)
    for file in files:
        with file.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.strip():
                    continue
                try:
                    episode = Episode.model_validate(json.loads(line))
                except (ValidationError, ValueError):
                    hint = "give a file that dvk optimize, eval, sft or train wrote"
                    raise UsageError(f"{file}:{number}: not an episode", hint) from None
                traces = [trace for trace in episode.traces if trace.role == "policy"]
                for key in {episode.task.id, episode.task.name}:
                    result[key] += traces
    return dict(result)


def _kernels(place: Path, problems: Sequence[SuiteTask]) -> Told:
    """One conversation of one turn a kernel, by the problem's name."""
    kernels, result = results.kernels(place), {}
    for name, numbered in numbers(problems).items():
        if numbered in kernels:
            result[name] = [
                _alone(source, f"sample {sample}")
                for sample, source in sorted(kernels[numbered].items())
            ]
    return result


def _alone(source: str, title: str) -> Trace:
    candidate = Candidate(
        source=source, backend=backends.detect(source), proposer="kernelbench", title=title
    )
    return Trace(role="policy", turns=(Turn(candidate=candidate),))
