"""Control page that referee and runner share in timed calls, and the result of a call."""

from __future__ import annotations

from dataclasses import dataclass

START, END, FIRST, KEPT, HELD, GO, SEED = 0, 1, 2, 508, 509, 510, 511
"""Places of the control page, 64-bit words: stamps in ns, outputs' addresses from FIRST on, earlier outputs that still have their
memory, bytes on a GPU, the number of the call that may begin, its seed."""


@dataclass(frozen=True)
class TimedCall:
    """One timed call: milliseconds by the runner's clock, and what the judge's clock saw around it."""

    inner_ms: float
    gap_ms: float
