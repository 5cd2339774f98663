"""The judge's log as rows for the agent: what was tried, what came of it, the best so far.

Rows have speedups, no times of the reference and no tolerances.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from dvk.agents.feedback import complaint
from dvk.records import Turn
from dvk.speedups import shown

ERROR = 300
"""Characters of an error in a row."""


def row(number: int, turn: Turn) -> dict[str, Any]:
    """A trial's row.

    Args:
        number: from 1.
    """
    assert turn.candidate is not None and turn.verdict is not None, "a trial is judged"
    verdict, timing = turn.verdict, turn.verdict.timing
    return {
        "trial": number,
        "after_s": round(turn.elapsed_s, 1),
        "what": turn.candidate.title,
        "candidate": turn.candidate.id,
        "asked": "bench" if verdict.tier == "search" else "check",
        "status": verdict.status.value,
        "speedup": timing.speedup.value if timing else None,
        "speedup_lo": timing.speedup.lo if timing and timing.speedup.known else None,
        "speedup_hi": timing.speedup.hi if timing and timing.speedup.known else None,
        "error": complaint(verdict)[:ERROR] if verdict.error else None,
        "untimed_reason": verdict.untimed_reason,
        "cached": verdict.cached,
    }


def log(turns: Sequence[Turn]) -> str:
    """All rows as JSON lines."""
    return "".join(json.dumps(row(n, turn)) + "\n" for n, turn in enumerate(turns, start=1))


def best(turns: Sequence[Turn]) -> tuple[int, Turn] | None:
    """The right and timed trial of the largest speedup with its number; None if there is none."""
    timed = [(n, t) for n, t in enumerate(turns, start=1) if t.verdict and t.verdict.timing]
    return max(timed, key=lambda one: _speedup(one[1]), default=None)


def line(number: int, turn: Turn) -> str:
    """A trial in a line: `trial 3: 1.42× [1.38, 1.46], two rows a warp`."""
    assert turn.candidate is not None and turn.verdict is not None, "a trial is judged"
    timing = turn.verdict.timing
    what = shown(timing.speedup) if timing else turn.verdict.status.value
    return f"trial {number}: {what}, {turn.candidate.title}"


def _speedup(turn: Turn) -> float:
    timing = turn.verdict.timing if turn.verdict else None
    return timing.speedup.value if timing else 0.0
