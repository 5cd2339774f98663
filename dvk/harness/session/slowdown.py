"""Detection of candidates that slow the reference down to look fast, by timing the reference alone. Pure.

Threads that wake slowly slow both arms alike, so a slow reference counts only against a candidate that gains by it. A busy machine slows as
much as a cheat does, so a suspicion is tested against the reference timed alone once more, and then against fresh processes.
"""

from __future__ import annotations

SLOWED = 2.5
"""Ratio of the reference's time with a candidate to its time alone from which it is measured again without it."""
GAINED = 1.2
"""Least speedup over that reference that counts as a gain."""

LOOKS = 2
"""Fresh processes that must all repeat it. With one, 2 of 240 honest candidates were called cheats on two cores alongside a model that
writes and other compilers."""


def slowdown_suspected(beside_ms: float, candidate_ms: float, alone_ms: float) -> bool:
    """Whether the reference's time with the candidate needs an explanation."""
    return beside_ms > SLOWED * alone_ms and beside_ms > GAINED * candidate_ms


def slowdown_message(beside_ms: float, alone_ms: float) -> str | None:
    """Return the error, if the reference timed alone again does not explain it."""
    if beside_ms <= SLOWED * alone_ms:
        return None
    return f"the reference takes {beside_ms:.3g} ms with it and {alone_ms:.3g} ms without it"
