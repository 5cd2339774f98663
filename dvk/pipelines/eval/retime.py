"""The second time of winners: the winner among several turns was lucky as well as good, so it is timed again, and only that counts.

On a GPU most turns are timed by the device alone. Candidates that replay a CUDA graph are timed from end to end, since they save
host time, and so are those that no launch plan can represent. If a sample has winners of both kinds the two race from end to
end, and the second wins only if it is shown to be faster there; else the figure stays the device's. A claim is from end to end
in any case, and made of the faster one there, or of the other one if that is found wrong. Rows record the kind of each figure,
tables count the kinds, and comparisons take no ratio of two kinds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from dvk import harness
from dvk.config import Config
from dvk.harness.queue import default_contract
from dvk.pipelines.eval.progress import Progress
from dvk.pipelines.eval.request import EvalRequest
from dvk.pipelines.eval.rows import tries, winners
from dvk.records import Candidate, Episode, Status, Task, Tier, Turn, Verdict

Key = tuple[str, int]
"""A task and a sample of it."""
Race = tuple[Turn, Turn]
"""The fastest by the device alone, and the fastest from end to end."""


def time_again(
    episodes: Sequence[Episode],
    known: dict[Key, Verdict],
    request: EvalRequest,
    config: Config,
    progress: Progress,
    workers: int,
) -> Iterator[dict[str, Any]]:
    """Judge winners again: of every sample among several turns, and of every task among several samples; all, if claims or baselines are
    requested: baselines are timed once, together with the winner.

    Args:
        known: verdicts of an earlier run; for a claim only earlier claims count.
        workers: candidates in flight.
    """
    done = {key for key, verdict in known.items() if verdict.tier == "claim" or not request.claim}
    tasks = {episode.task.name: episode.task for episode in episodes}
    best_turns = {
        key: best
        for episode in episodes
        for key, best in _won(episode, request.claim or bool(request.baselines)).items()
        if key not in done
    }
    if not best_turns:
        return
    progress.stage(f"timing {len(best_turns)} winners again")
    single = {key: best[0] for key, best in best_turns.items() if len(best) == 1}
    races = {key: _race(best) for key, best in best_turns.items() if len(best) > 1}
    if not request.claim:
        # There is nothing to decide if the first is faster than eager and the second, from end to end, is not.
        single |= {
            key: ours for key, (ours, whole) in races.items() if _gain(ours) > 1 >= _gain(whole)
        }
    others = {key: whole for key, (_, whole) in races.items()}
    pool: harness.JudgeQueue[int] = harness.JudgeQueue(workers, config)
    for key, verdicts in _raced(
        pool, {k: race for k, race in races.items() if k not in single}, tasks, progress
    ):
        ours, whole = races[key]
        if request.claim:
            single[key], others[key] = (
                (whole, ours) if _speed(verdicts[1]) > _speed(verdicts[0]) else (ours, whole)
            )
        elif _faster(verdicts[1], verdicts[0]):
            yield _row(key, whole, verdicts[1])
        else:
            single[key] = ours
    yield from _judged_again(pool, single, others, tasks, request, progress)


def _judged_again(
    pool: harness.JudgeQueue[int],
    single: dict[Key, Turn],
    others: dict[Key, Turn],
    tasks: dict[str, Task],
    request: EvalRequest,
    progress: Progress,
) -> Iterator[dict[str, Any]]:
    """The second verdicts; of a winner that is found wrong, the other one's.

    Args:
        others: those that come next.
    """
    tier: Tier = "claim" if request.claim else "search"
    while single:
        places, wrong = list(single), {}
        jobs = [_job(tasks[key[0]], single[key]) for key in places]
        spec = harness.JudgeSpec(
            tier=tier, baselines=request.baselines, contract=default_contract(jobs[0][0].device)
        )
        for position, verdict in pool.map(jobs, spec):
            progress.judged(1)
            key = places[position]
            if verdict.status is not Status.OK and key in others:
                wrong[key] = others.pop(key)
            else:
                yield _row(key, single[key], verdict)
        single = wrong


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


def _raced(
    pool: harness.JudgeQueue[int],
    races: dict[Key, Race],
    tasks: dict[str, Task],
    progress: Progress,
) -> Iterator[tuple[Key, list[Verdict]]]:
    """Both of each race, timed from end to end, in their order."""
    places = [(key, side) for key in races for side in range(2)]
    jobs = [_job(tasks[key[0]], races[key][side]) for key, side in places]
    seen: dict[Key, dict[int, Verdict]] = defaultdict(dict)
    for position, verdict in pool.map(jobs):
        progress.judged(1)
        key, side = places[position]
        seen[key][side] = verdict
        if len(seen[key]) == 2:
            yield key, [seen[key][0], seen[key][1]]


def _gain(turn: Turn) -> float:
    """The lower end of the speedup of a timed one."""
    return turn.verdict.timing.speedup.lo  # type: ignore[union-attr]


def _speed(verdict: Verdict) -> float:
    return verdict.timing.speedup.value if verdict.timing is not None else 0.0


def _faster(one: Verdict, other: Verdict) -> bool:
    """Whether it is right, and the lower end of its interval is above the other's speedup."""
    if one.timing is None or other.timing is None:
        return one.timing is not None
    return one.timing.speedup.lo > max(1.0, other.timing.speedup.value)


def _job(task: Task, turn: Turn) -> tuple[Task, Candidate]:
    assert turn.candidate is not None
    return task, turn.candidate


def _row(key: Key, turn: Turn, verdict: Verdict) -> dict[str, Any]:
    assert turn.candidate is not None
    return {"task": key[0], "sample": key[1], "candidate": turn.candidate.id, "verdict": verdict}
