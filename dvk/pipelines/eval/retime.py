"""The second time of winners: the winner among several turns was lucky as well as good, so it is timed again, and only that counts.

On a GPU most turns are timed by the device alone. Candidates that replay a CUDA graph are timed from end to end, since they save
host time, and so are those that no launch plan can represent. If a sample has winners of both kinds, the first is timed from end to
end, too. The second is timed again, and counts, if it was shown to be faster than eager and than the first there, and is again. Else
the figure stays the device's. A claim is made of the one that is faster from end to end, or of the other one if that is found
wrong. Rows record the kind of each figure, tables count the kinds, and comparisons take no ratio of two kinds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dvk import harness
from dvk.harness.queue import default_contract
from dvk.pipelines.eval.progress import Progress
from dvk.pipelines.eval.request import EvalRequest
from dvk.pipelines.eval.rows import is_unchanged, tries, winners
from dvk.records import Candidate, Episode, Status, Task, Tier, Turn, Verdict

FIRST = -1
"""Before the candidates of other tasks: those come in batches, and would leave all second times to the end."""
Key = tuple[str, int]
"""A task and a sample of it."""
Race = tuple[Turn, Turn]
"""The fastest by the device alone, and the fastest from end to end."""


def time_again(
    episodes: Sequence[Episode],
    known: Mapping[Key, Verdict],
    request: EvalRequest,
    progress: Progress,
    pool: harness.JudgeQueue[Any],
) -> Iterator[dict[str, Any]]:
    """Judge winners again: of every sample among several turns, and of every task among several samples; all, if claims or baselines are
    requested: baselines are timed once, together with the winner.

    Args:
        known: verdicts of an earlier run; for a claim only earlier claims count.
        pool: the judges.
    """
    tasks = {episode.task.name: episode.task for episode in episodes}
    best_turns = {
        key: best for episode in episodes for key, best in _wanted(episode, known, request).items()
    }
    if not (request.claim or request.baselines):
        for key in [k for k, best in best_turns.items() if is_unchanged(best[0])]:
            # It is not chosen for its speed, so that its first time is as good as a second.
            turn = best_turns.pop(key)[0]
            assert turn.verdict is not None, "it was timed"
            yield _row(key, turn, turn.verdict)
    if not best_turns:
        return
    single = {key: best[0] for key, best in best_turns.items() if len(best) == 1}
    races = {key: _race(best) for key, best in best_turns.items() if len(best) > 1}
    if not request.claim:
        # There is nothing to decide if the second, from end to end, is not shown to be faster than eager, and the first is no slower.
        single |= {
            key: ours
            for key, (ours, whole) in races.items()
            if _gain(whole) <= 1 and (_gain(ours) > 1 or is_unchanged(ours))
        }
    others = {key: whole for key, (_, whole) in races.items()}
    bars: dict[Key, float] = {}
    for key, verdict in _from_end_to_end(
        {k: race[0] for k, race in races.items() if k not in single}, tasks, progress, pool
    ):
        ours, whole = races[key]
        bars[key] = max(1.0, _speed(verdict))
        bar = _speed(verdict) if request.claim else bars[key]
        first = _speed(whole.verdict) if request.claim else _gain(whole)
        single[key], others[key] = (whole, ours) if first > bar else (ours, whole)
    yield from _judged_again(pool, single, others, bars, tasks, request, progress)


def num_wanted(
    episodes: Sequence[Episode], known: Mapping[Key, Verdict], request: EvalRequest
) -> int:
    """How many winners are still to be timed again."""
    return sum(len(_wanted(episode, known, request)) for episode in episodes)


def _wanted(
    episode: Episode, known: Mapping[Key, Verdict], request: EvalRequest
) -> dict[Key, list[Turn]]:
    """An episode's winners that are to be timed again: for a claim only an earlier claim makes that needless."""
    won = _won(episode, request.claim or bool(request.baselines))
    return {
        key: best
        for key, best in won.items()
        if key not in known or request.claim and known[key].tier != "claim"
    }


def _judged_again(
    pool: harness.JudgeQueue[Any],
    single: dict[Key, Turn],
    others: dict[Key, Turn],
    bars: dict[Key, float],
    tasks: dict[str, Task],
    request: EvalRequest,
    progress: Progress,
) -> Iterator[dict[str, Any]]:
    """The second verdicts; of a winner that is found wrong, or whose figure from end to end is not above its bar again, the other one's.

    Args:
        others: those that come next.
        bars: what a figure from end to end must exceed to count in place of the device's.
    """
    tier: Tier = "claim" if request.claim else "search"
    while single:
        places, next_ = list(single), {}
        jobs = [_job(tasks[key[0]], single[key]) for key in places]
        spec = harness.JudgeSpec(
            tier=tier, baselines=request.baselines, contract=default_contract(jobs[0][0].device)
        )
        for position, verdict in pool.map(jobs, spec, priority=FIRST):
            progress.judged(1)
            key = places[position]
            wrong = verdict.status is not Status.OK
            lost = not request.claim and _is_whole(single[key]) and _below(verdict, bars.get(key))
            if (wrong or lost) and key in others:
                next_[key] = others.pop(key)
            else:
                yield _row(key, single[key], verdict)
        single = next_


def _won(episode: Episode, all_count: bool) -> dict[Key, list[Turn]]:
    """The winners of samples that are to be timed again."""
    samples = tries(episode)
    first = {id(turn) for turn in winners([turn for turns in samples for turn in turns])}
    best = {
        (episode.task.name, sample): [t for t in winners(turns) if t.candidate is not None]
        for sample, turns in enumerate(samples)
    }
    return {
        key: mine
        for key, mine in best.items()
        if mine
        and (
            all_count
            or len(samples[key[1]]) > 1
            or (len(samples) > 1 and any(id(turn) in first for turn in mine))
        )
    }


def _race(best: Sequence[Turn]) -> Race:
    one, other = best
    return (one, other) if other.verdict.timing.regime == "end_to_end" else (other, one)  # type: ignore[union-attr]


def _from_end_to_end(
    turns: dict[Key, Turn],
    tasks: dict[str, Task],
    progress: Progress,
    pool: harness.JudgeQueue[Any],
) -> Iterator[tuple[Key, Verdict]]:
    """Each winner by the device's time, timed from end to end."""
    places = list(turns)
    jobs = [_job(tasks[key[0]], turns[key]) for key in places]
    for position, verdict in pool.map(jobs, harness.JudgeSpec(contract="module"), priority=FIRST):
        progress.judged(1)
        yield places[position], verdict


def _gain(turn: Turn) -> float:
    """The lower end of the speedup of a timed one."""
    return turn.verdict.timing.speedup.lo  # type: ignore[union-attr]


def _speed(verdict: Verdict | None) -> float:
    return (
        verdict.timing.speedup.value if verdict is not None and verdict.timing is not None else 0.0
    )


def _is_whole(turn: Turn) -> bool:
    timing = turn.verdict.timing if turn.verdict is not None else None
    return timing is not None and timing.regime == "end_to_end"


def _below(verdict: Verdict, bar: float | None) -> bool:
    """Whether a figure from end to end is not above its bar; one of the device's time has none."""
    timing = verdict.timing
    return (
        bar is not None
        and timing is not None
        and timing.regime == "end_to_end"
        and timing.speedup.value <= bar
    )


def _job(task: Task, turn: Turn) -> tuple[Task, Candidate]:
    assert turn.candidate is not None
    return task, turn.candidate


def _row(key: Key, turn: Turn, verdict: Verdict) -> dict[str, Any]:
    assert turn.candidate is not None
    return {"task": key[0], "sample": key[1], "candidate": turn.candidate.id, "verdict": verdict}
