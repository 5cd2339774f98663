"""A candidate that slows the reference down looks fast; the reference alone tells. Pure.

Threads that wake slowly slow both arms alike, so a slow reference counts only against who gains by it; and a busy machine slows by
as much as a cheat does, so a suspicion is held against the reference timed alone once more, and then against fresh processes.
"""

from __future__ import annotations

SLOWED = 2.5
"""A reference that takes this many times longer beside a candidate than alone is measured again without it."""
GAINED = 1.2
"""Who is not so many times faster than that reference has gained nothing."""

LOOKS = 2
"""Fresh processes that must all do it again. With one, 2 of 240 honest candidates were called cheats on two cores beside a model that
writes and others' compilers."""


def slowdown_suspected(beside_ms: float, candidate_ms: float, alone_ms: float) -> bool:
    """The reference's time beside the candidate needs an explanation."""
    return beside_ms > SLOWED * alone_ms and beside_ms > GAINED * candidate_ms


def slowdown_message(beside_ms: float, alone_ms: float) -> str | None:
    """What is wrong, if the reference timed alone again does not explain it."""
    if beside_ms <= SLOWED * alone_ms:
        return None
    return f"the reference takes {beside_ms:.3g} ms beside it and {alone_ms:.3g} ms without it"
