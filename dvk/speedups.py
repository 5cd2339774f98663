"""A speedup in words: the one place that decides what may be said of a measured ratio.

The rules, with their numbers in one place:

- An interval whose ends are more than `WIDE` apart, as a factor, is no headline by its middle: its lower end is, rounded down, as in
  `at least 10×`. A narrow one is shown as its point and its ends.
- The machine was busy where the reference against itself (the A/A control, 1× in truth) may be off by more than `NOISY`.
- What is not claimed is `slower` or `equal` only where the interval shows it: as long as a gain of `MATTERS` is inside it, it is
  `too_noisy` to tell.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from dvk.records import Interval, Timing, show_ratio

WIDE = 1.5
"""Ends further apart than this factor, about ±22 % of the middle: two such measurements need not share a digit."""
NOISY = 1.2
"""Factor that the control's interval reaches, from which on the machine is called busy; a quiet one stays within 1.02."""
MATTERS = 1.1
"""Speedup that a search is after; where the interval reaches it, nothing faster was found cannot be said."""
MOST_MARGIN = 2.0
"""Beyond this a figure for what could still be claimed on such a machine says nothing."""

Outcome = Literal["faster", "slower", "equal", "too_noisy"]


@dataclass(frozen=True)
class Words:
    """What is said of one timing."""

    outcome: Outcome
    headline: str
    """The speedup alone: `2.31×`, or `at least 10×`."""
    sentence: str
    """What was found, with its figures."""
    noise: str
    """That the machine was too busy; empty where it was not."""
    hint: str
    """How to get a better number; empty where none is needed."""


def words(timing: Timing, *, pairs: int = 50, seconds: float = 1.0) -> Words:
    """Turn a timing, claimed or not, into words.

    Args:
        timing: of a verdict.
        pairs: setting `judge.claim_pairs` it was made with.
        seconds: setting `judge.claim_s`.
    """
    speedup, claim = timing.speedup, timing.claim
    outcome = outcome_of(timing)
    noise = ""
    if claim is not None and noisy(claim.control):
        control = claim.control
        noise = (f"this machine was too busy for a precise number: the reference timed against itself, 1× in truth, came out between "
                 f"{show_ratio(control.lo)} and {show_ratio(control.hi)}")
    unsteady = outcome == "too_noisy" or bool(noise) or speedup.known and wide(speedup)
    hint = better(pairs, seconds) if unsteady else ""
    return Words(outcome, headline(speedup), _sentence(timing, outcome), noise, hint)


def outcome_of(timing: Timing) -> Outcome:
    """What a timing shows; without a claim the interval alone decides."""
    speedup, claim = timing.speedup, timing.claim
    if claim.holds if claim is not None else speedup.lo > 1:
        return "faster"
    if speedup.hi < 1:
        return "slower"
    return "equal" if speedup.hi < MATTERS else "too_noisy"


def wide(speedup: Interval) -> bool:
    """Its middle is no figure to name."""
    return not speedup.known or speedup.hi / speedup.lo > WIDE


def noisy(control: Interval) -> bool:
    """The reference against itself came out so differently that the machine was busy."""
    return max(control.hi, 1 / control.lo) > NOISY


def headline(speedup: Interval) -> str:
    """`2.31×`; `at least 10×` where the interval is wide; `between 0.34× and 1.99×` where it is wide and holds 1."""
    if not speedup.known:
        return f"{show_ratio(speedup.value)} (no interval)"
    if not wide(speedup):
        return show_ratio(speedup.value)
    if speedup.lo > 1:
        return f"at least {floored(speedup.lo)}×"
    return f"between {show_ratio(speedup.lo)} and {show_ratio(speedup.hi)}"


def shown(speedup: Interval | None) -> str:
    """For a cell or a line, with the interval: `2.31× [2.28, 2.34]`, `at least 10× [10.7, 90.0]`, `unclear [0.34, 1.99]`, a dash."""
    if speedup is None:
        return "–"
    if not speedup.known or not wide(speedup):
        return str(speedup)
    ends = str(speedup).partition(" ")[2]
    return f"{headline(speedup)} {ends}" if speedup.lo > 1 else f"unclear {ends}"


def floored(ratio: float) -> str:
    """Rounded down to two digits, or three beside 1: what it stands for is at least that."""
    digits = (3 if ratio < MATTERS else 2) - 1 - math.floor(math.log10(ratio))
    return f"{math.floor(ratio * 10**digits) / 10**digits:.{max(0, digits)}f}"


def over(speedup: Interval, whom: str) -> str:
    """`2.31× faster than eager [2.28, 2.34]`; `at least 10× faster than eager (the interval [10.7, 90.0] is wide)`."""
    ends = str(speedup).partition(" ")[2]
    note = f"(the interval {ends} is wide)" if speedup.known and wide(speedup) else ends
    return f"{headline(speedup)} {whom} {note}"


def better(pairs: int, seconds: float) -> str:
    """How to measure more precisely.

    Args:
        pairs: pairs of calls a process until now.
        seconds: longest time an arm and process until now.
    """
    return (f"for a better number end other programs on this machine, or measure longer with --set judge.claim_pairs={4 * pairs} "
            f"--set judge.claim_s={4 * seconds:g}")


def interval(entry: Mapping[str, Any], prefix: str = "") -> Interval | None:
    """The interval in a row of a summary (`speedup`, `lo`, `hi`, or with a prefix `speedup_lo` …); None where a figure is missing."""
    value, lo, hi = entry.get("speedup"), entry.get(f"{prefix}lo"), entry.get(f"{prefix}hi")
    return Interval(value=value, lo=lo, hi=hi) if value is not None and lo is not None and hi is not None else None


def _sentence(timing: Timing, outcome: Outcome) -> str:
    speedup, claim = timing.speedup, timing.claim
    ends = f"between {show_ratio(speedup.lo)} and {show_ratio(speedup.hi)}"
    if outcome == "faster":
        return over(speedup, "faster than eager")
    if not speedup.known:
        return f"{show_ratio(speedup.value)} of eager's speed, without an interval: nothing can be claimed"
    if outcome == "slower":
        return f"slower than eager: {ends} of its speed"
    if outcome == "equal":
        return f"no difference from eager that matters: {ends} of its speed"
    if claim is None:
        return f"too noisy to tell: the speedup lies {ends}"
    count = len(claim.processes)
    told = f"too noisy to tell: {count} fresh process{'es' if count > 1 else ''} put the speedup {ends}"
    if speedup.lo > 1 and min(claim.processes) <= 1:
        return f"{told}, and one of them saw {show_ratio(min(claim.processes))}"
    if speedup.lo <= 1:
        return told
    if 1 + claim.margin > MOST_MARGIN:
        return f"{told}, and the reference against itself was off by too much for a claim"
    return f"{told}; at this noise it must be above {show_ratio(1 + claim.margin)} for certain"
