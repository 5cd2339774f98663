"""From a played episode to events `given`: the skills that were offered, chosen and used, and the results.

    selection   offered, chosen: times; one event a skill that was offered and episode
    policy      task, scheme, together (the other skills), reward, reward_without, gain, won; one a skill and scheme
    summary     task, scheme, together; one a skill and summary

A conversation's worth is the logarithm of its fastest correct kernel's speedup, and 0 if none is faster than the original,
which its user then keeps; a scheme's is the mean over its conversations. Gain is that minus the null scheme's.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from statistics import fmean

from dvk.records import Episode, Status, Trace
from dvk.skills.events import Event


def plays(episode: Episode) -> list[Event]:
    """One episode's events.

    Args:
        episode: as played; with rewards on its turns if those shall be kept.
    """
    task, step = episode.task.id, episode.step
    selections = [
        t
        for t in episode.traces
        if t.role == "selection" and t.turns and t.turns[-1].finish != "error"
    ]
    offered = Counter(name for trace in selections for name in trace.skills)
    chosen = Counter(name for trace in selections for name in set(trace.turns[-1].chosen))
    result = [
        Event(
            "given",
            name,
            step,
            {"role": "selection", "task": task, "offered": times, "chosen": chosen[name]},
        )
        for name, times in offered.items()
    ]
    schemes: dict[int | None, list[Trace]] = defaultdict(list)
    for trace in episode.traces:
        if trace.role == "policy" and trace.turns and not trace.broken:
            schemes[trace.scheme].append(trace)
    fastest = max(
        (_best(trace) or 0.0 for traces in schemes.values() for trace in traces), default=0.0
    )
    null = schemes.get(None, [])
    without, reward_without = _mean(map(_best, null)), _mean(map(_reward, null))
    for scheme, traces in schemes.items():
        if scheme is None:
            continue
        worth = _mean(map(_best, traces))
        data = {
            "role": "policy",
            "task": task,
            "scheme": scheme,
            "reward": _mean(map(_reward, traces)),
            "reward_without": reward_without,
            "gain": worth - without if worth is not None and without is not None else None,
            "won": fastest > 0 and any(_best(trace) == fastest for trace in traces),
        }
        result += _each(traces[0].skills, step, data)
    for trace in episode.traces:
        if trace.role == "summary":
            result += _each(
                trace.skills, step, {"role": "summary", "task": task, "scheme": trace.scheme}
            )
    return result


def _each(skills: Sequence[str], step: int, data: dict[str, object]) -> list[Event]:
    return [
        Event(
            "given", name, step, {**data, "together": [other for other in skills if other != name]}
        )
        for name in skills
    ]


def _best(trace: Trace) -> float | None:
    """Log-speedup of the fastest correct kernel, at least 0; None if correct ones were not timed."""
    verdicts = [turn.verdict for turn in trace.turns if turn.verdict is not None]
    speeds = [verdict.timing.speedup.value for verdict in verdicts if verdict.timing is not None]
    if not speeds and any(verdict.status is Status.OK for verdict in verdicts):
        return None
    return max(0.0, math.log(max(speeds))) if speeds else 0.0


def _reward(trace: Trace) -> float | None:
    """The best turn's reward; None if no turn has one."""
    return max((turn.reward for turn in trace.turns if turn.reward is not None), default=None)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
