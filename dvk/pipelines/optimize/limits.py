"""What ends a search before its budget does: the roofline, a cap on the model, the user."""

from __future__ import annotations

from collections.abc import Sequence

from dvk.agents.bounds import ms_text
from dvk.records import Turn

NEAR = 1.05
"""Ratio of a time to the roofline from which on nothing is left to gain: a claim needs about as much."""


def at_roofline(turns: Sequence[Turn]) -> str | None:
    """Why nothing can be gained any more; None if something can, or the roofline is not known.

    The judge's roofline counts the bytes that are certainly needed, at the highest bandwidth measured here. A candidate's time is
    taken at the slow end of its interval.
    """
    for turn in turns:
        timing = turn.verdict.timing if turn.verdict is not None else None
        if timing is None or not timing.floor_ms or turn.candidate is None:
            continue
        proven = timing.reference_ms / timing.speedup.lo if timing.speedup.lo > 0 else None
        for name, ms in ((turn.candidate.title, proven), ("eager PyTorch", timing.reference_ms)):
            if ms is not None and ms <= NEAR * timing.floor_ms:
                return (
                    f"nothing is left to gain: {name} takes {ms_text(ms)} a call at most, and moving the data alone takes "
                    f"{ms_text(timing.floor_ms)} on this machine"
                )
    return None
