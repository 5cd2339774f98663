"""Effects of using a skill, by role: pure functions of the library's events.

A trial is one task in one step, played with the skill and without any (the null scheme); several schemes with the skill
make one trial, because they share its result as the baseline. Its gain is a difference of log-speedups. Old trials count
less: 2^(−age / half-life), age in steps.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from dvk.skills.events import HARM, PUTS, Event
from dvk.stats.student_t import student_quantile

HALF_LIFE = 50.0
"""Training steps after which a trial counts half, since the policy has changed."""
LEVEL = 0.95
"""Confidence of the intervals of gains."""

if TYPE_CHECKING:
    from dvk.records import Skill

USE, LIBRARY = "use", "library"
"""Keys of an evidence entry that sums up a skill's use in another library: that library's label, and its identity; see `as_evidence`."""


@dataclass(frozen=True)
class SkillUsage:
    """Statistics of one skill in one role.

    Attributes:
        skill: its name.
        role: selection (was it chosen?), policy (did it help?) or summary (was it given while skills were written?).
        offered: times a selection could have chosen it.
        given: times it was: schemes played with it, summaries written with it, selections that chose it.
        won: schemes with it that had their task's fastest kernel.
        trials: comparisons with the null scheme.
        gain: decayed mean of their gains, log-speedup; None without any.
        lo, hi: ends of its interval; None for fewer than two trials' worth.
        total: decayed sum of gains: the skill's recent benefit, in frequency and in effect.
        born: step in which it was added, or restored.
        came: the kind of that event.
        last_used: step in which it was last given; None: never.
    """

    skill: str
    role: str = "policy"
    offered: int = 0
    given: int = 0
    won: int = 0
    trials: int = 0
    gain: float | None = None
    lo: float | None = None
    hi: float | None = None
    total: float = 0.0
    born: int = 0
    came: str = ""
    last_used: int | None = None


Known = Mapping[tuple[str, str], SkillUsage]
"""By skill and role; a skill in the library always has an entry for the policy."""


@dataclass
class _Count:
    """One skill in one role while its events are read."""

    offered: int = 0
    given: int = 0
    won: int = 0
    last: int | None = None
    gains: dict[tuple[int, str], list[float]] = field(default_factory=lambda: defaultdict(list))


def tally(
    events: Sequence[Event], step: int | None = None, *, half_life: float = HALF_LIFE
) -> dict[tuple[str, str], SkillUsage]:
    """The statistics of every skill that exists after `events`, as of `step`, by default that of the last event.

    Plays of skills that were merged into a skill count for it. Plays before a skill was restored, or added again, do not:
    a user decided to bring it back. Plays together with a skill that has since been retired for harm do not count either:
    a harmful skill must not discredit those that were chosen with it by chance.
    """
    now = max((event.step for event in events), default=0) if step is None else step
    becomes, births = aliases(events), _births(events)
    blamed = (
        event
        for event in events
        if event.kind == "retired" and event.data.get("cause", HARM) == HARM
    )
    harmful = {event.skill for event in blamed if becomes[event.skill] is None}
    counts: dict[str, dict[str, _Count]] = {
        name: {"policy": _Count()} for name in births if becomes[name] == name
    }
    for place, event in enumerate(events):
        name = becomes.get(event.skill) if event.kind == "given" else None
        if name is None or name not in counts or place < births[event.skill][0]:
            continue
        if place > births[name][0] or births[name][1].kind != "restored":
            spoilt = not harmful.isdisjoint(event.data.get("together", ()))
            _count(
                counts[name].setdefault(event.data.get("role", "policy"), _Count()), event, spoilt
            )
    return {
        (name, role): _usage(name, role, count, births[name][1], now, half_life)
        for name, roles in counts.items()
        for role, count in roles.items()
    }


def aliases(events: Iterable[Event]) -> dict[str, str | None]:
    """Current name of every name that occurs: itself, the skill it was merged into at last, or None if gone."""
    into: dict[str, str | None] = {}
    for event in events:
        if event.kind in PUTS:
            into[event.skill] = event.skill
        elif event.kind in ("removed", "retired"):
            into[event.skill] = None
        elif event.kind == "merged":
            into[event.skill] = event.data["into"]
    result: dict[str, str | None] = {}
    for name in into:
        at: str | None = name
        seen: set[str] = set()
        while at is not None and into.get(at) != at and at not in seen:
            seen.add(at)
            at = into.get(at)
        result[name] = at
    return result


def estimate(
    values: Sequence[float], weights: Sequence[float], level: float
) -> tuple[float, float | None, float | None]:
    """Weighted mean with its t-interval: (mean, lo, hi).

    With W = Σw the trials are worth n = W² / Σw² equal ones (Kish), their variance is Σw(x − m)² / (W − Σw² / W), and the mean
    errs by √(variance / n) with n − 1 degrees of freedom; for equal weights that is Student's interval. For n < 2 no ends.
    """
    total, squares = sum(weights), sum(w * w for w in weights)
    mean = sum(w * x for w, x in zip(weights, values, strict=True)) / total
    size = total * total / squares
    if size < 2 - 1e-9:
        return mean, None, None
    variance = sum(w * (x - mean) ** 2 for w, x in zip(weights, values, strict=True)) / (
        total - squares / total
    )
    degrees = (
        round(size - 1, 3) if size < 31 else math.floor(size - 1)
    )  # few different ones: a quantile takes milliseconds
    half = student_quantile(0.5 + level / 2, max(1.0, degrees)) * math.sqrt(variance / size)
    return mean, mean - half, mean + half


def as_evidence(usage: SkillUsage, label: str, identity: str) -> dict[str, Any]:
    """An evidence entry that sums up a skill's use in the library called `label`, with `identity` to separate libraries of that name."""
    kept = ("role", "given", "won", "trials", "gain", "lo", "hi", "total")
    return {USE: label, LIBRARY: identity, **{key: getattr(usage, key) for key in kept}}


def remembered(known: Known, skills: Iterable[Skill]) -> dict[tuple[str, str], SkillUsage]:
    """`known`, extended for skills without trials by those that their evidence reports from another library."""
    result = dict(known)
    for skill in skills:
        own = result.get((skill.name, "policy"), SkillUsage(skill.name))
        entries = [entry for entry in skill.evidence if USE in entry and entry.get("trials")]
        if entries and not own.trials and own.came != "restored":
            best = max(entries, key=lambda entry: entry["trials"])
            told: dict[str, Any] = {key: best.get(key) for key in ("trials", "gain", "lo", "hi")}
            result[skill.name, "policy"] = replace(own, **told, total=best.get("total") or 0.0)
    return result


def _births(events: Sequence[Event]) -> dict[str, tuple[int, Event]]:
    """The last addition of each skill to the library: place among `events`, and the event."""
    return {
        event.skill: (place, event)
        for place, event in enumerate(events)
        if event.kind in PUTS and event.kind != "changed"
    }


def _count(count: _Count, event: Event, spoilt: bool) -> None:
    data = event.data
    if data.get("role") == "selection":
        count.offered += data.get("offered", 1)
        count.given += data.get("chosen", 0)
    else:
        count.given += 1
        count.won += bool(data.get("won"))
        if data.get("gain") is not None and not spoilt:
            count.gains[event.step, data.get("task", "")].append(data["gain"])
    count.last = event.step if count.last is None else max(count.last, event.step)


def _usage(
    name: str, role: str, count: _Count, birth: Event, now: int, half_life: float
) -> SkillUsage:
    values = [fmean(gains) for gains in count.gains.values()]
    ages = [max(0, now - step) for step, _ in count.gains]
    newest = min(
        ages, default=0
    )  # the mean needs only ratios, and the weights of very old trials round to 0
    weights = [2 ** (-(age - newest) / half_life) for age in ages]
    gain, lo, hi = estimate(values, weights, LEVEL) if values else (None, None, None)
    total = 2 ** (-newest / half_life) * sum(w * x for w, x in zip(weights, values, strict=True))
    return SkillUsage(
        name,
        role,
        count.offered,
        count.given,
        count.won,
        len(values),
        gain,
        lo,
        hi,
        total,
        birth.step,
        birth.kind,
        count.last,
    )
