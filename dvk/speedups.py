"""Speedups in words: the one place that decides how a measured ratio is reported.

The rules, with their numbers in one place:

- An interval whose ends are more than `WIDE` apart, as a factor, is reported by its lower end, rounded down, as in `at least 10×`.
  A narrow one is reported by its point and its ends.
- The machine was busy if the reference against itself (the A/A control, 1× in truth) may be off by more than `NOISY`.
- A ratio without a claim is `slower` or `equal` only if the interval shows it: while a gain of `MATTERS` is inside, it is `too_noisy`.
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
"""Factor of the control's interval from which the machine counts as busy; a quiet one stays within 1.02."""
MATTERS = 1.1
"""Smallest speedup that a search looks for; if the interval reaches it, `nothing faster was found` cannot be claimed."""
MOST_MARGIN = 2.0
"""Factor from which a claimable figure on such a machine is not reported."""

Outcome = Literal["faster", "slower", "equal", "too_noisy"]


@dataclass(frozen=True)
class Words:
    """The report of one timing."""

    outcome: Outcome
    headline: str
    """The speedup alone: `2.31×`, or `at least 10×`."""
    sentence: str
    """The result, with its figures."""
    noise: str
    """That the machine was too busy; empty if it was not."""
    hint: str
    """How to get a better number; empty if none is needed."""


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
    if claim is not None and is_noisy(claim.control):
        control = claim.control
        noise = (
            f"this machine was too busy for a precise number: the reference timed against itself, 1× in truth, came out between "
            f"{show_ratio(control.lo)} and {show_ratio(control.hi)}"
        )
    unsteady = outcome == "too_noisy" or bool(noise) or speedup.known and is_wide(speedup)
    hint = precision_hint(pairs, seconds) if unsteady else ""
    return Words(outcome, headline(speedup), _sentence(timing, outcome), noise, hint)


def outcome_of(timing: Timing) -> Outcome:
    """Return what a timing shows; without a claim the interval alone decides."""
    speedup, claim = timing.speedup, timing.claim
    if claim.holds if claim is not None else speedup.lo > 1:
        return "faster"
    if speedup.hi < 1:
        return "slower"
    return "equal" if speedup.hi < MATTERS else "too_noisy"


def is_wide(speedup: Interval) -> bool:
    """Whether the interval is too wide to name its middle."""
    return not speedup.known or speedup.hi / speedup.lo > WIDE


def is_noisy(control: Interval) -> bool:
    """Whether the A/A control differs so much that the machine was busy."""
    return max(control.hi, 1 / control.lo) > NOISY


def headline(speedup: Interval) -> str:
    """`2.31×`; `at least 10×` where the interval is wide; `between 0.34× and 1.99×` where it is wide and holds 1."""
    if not speedup.known:
        return f"{show_ratio(speedup.value)} (no interval)"
    if not is_wide(speedup):
        return show_ratio(speedup.value)
    if speedup.lo > 1:
        return f"at least {round_down(speedup.lo)}×"
    return f"between {show_ratio(speedup.lo)} and {show_ratio(speedup.hi)}"


def shown(speedup: Interval | None) -> str:
    """Format for a cell or a line, with the interval: `2.31× [2.28, 2.34]`, `at least 10× [10.7, 90.0]`, `unclear [0.34, 1.99]`, a dash."""
    if speedup is None:
        return "–"
    if not speedup.known or not is_wide(speedup):
        return str(speedup)
    ends = str(speedup).partition(" ")[2]
    return f"{headline(speedup)} {ends}" if speedup.lo > 1 else f"unclear {ends}"


def round_down(ratio: float) -> str:
    """Round down to two digits, or three close to 1, so that the value is a lower bound."""
    digits = (3 if ratio < MATTERS else 2) - 1 - math.floor(math.log10(ratio))
    return f"{math.floor(ratio * 10**digits) / 10**digits:.{max(0, digits)}f}"


def over_baseline(speedup: Interval, whom: str) -> str:
    """`2.31× faster than eager [2.28, 2.34]`; `at least 10× faster than eager (the interval [10.7, 90.0] is wide)`."""
    ends = str(speedup).partition(" ")[2]
    note = f"(the interval {ends} is wide)" if speedup.known and is_wide(speedup) else ends
    return f"{headline(speedup)} {whom} {note}"


def precision_hint(pairs: int, seconds: float) -> str:
    """Say how to measure more precisely.

    Args:
        pairs: pairs of calls per process so far.
        seconds: longest time per arm and process so far.
    """
    return (
        f"for a better number end other programs on this machine, or measure longer with --set judge.claim_pairs={4 * pairs} "
        f"--set judge.claim_s={4 * seconds:g}"
    )


def interval(entry: Mapping[str, Any], prefix: str = "") -> Interval | None:
    """Return the interval in a row of a summary (`speedup`, `lo`, `hi`, or with a prefix `speedup_lo` …); None if a figure is missing."""
    value, lo, hi = entry.get("speedup"), entry.get(f"{prefix}lo"), entry.get(f"{prefix}hi")
    return (
        Interval(value=value, lo=lo, hi=hi)
        if value is not None and lo is not None and hi is not None
        else None
    )


def _sentence(timing: Timing, outcome: Outcome) -> str:
    speedup, claim = timing.speedup, timing.claim
    ends = f"between {show_ratio(speedup.lo)} and {show_ratio(speedup.hi)}"
    if outcome == "faster":
        told = over_baseline(speedup, "faster than eager")
        return f"{told} on the GPU, host time not counted" if timing.regime == "device" else told
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
    return f"{told}; at this noise the interval must lie above {show_ratio(1 + claim.margin)}"
