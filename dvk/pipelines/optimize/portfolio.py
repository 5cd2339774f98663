"""What was fastest: dvk's own kernels, or a line of PyTorch; a row for each way. Only reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dvk.pipelines.optimize.summary import programs, ranked
from dvk.records import Interval, Status, Turn
from dvk.search.seeded import PROPOSER

OWN = "dvk"
"""The winner's name where it is none of PyTorch's lines and no candidate of the user's."""


def winner(turn: Turn | None, faster: bool) -> str | None:
    """The line of PyTorch that is handed out, `seed` for a candidate of the user's, or `dvk`; None if nothing is faster."""
    if turn is None or turn.candidate is None or not faster:
        return None
    return turn.candidate.line or (PROPOSER if turn.candidate.proposer == PROPOSER else OWN)


def rows(turns: Sequence[Turn], left_out: Mapping[str, str]) -> list[dict[str, Any]]:
    """A row for each way to run the module: eager, PyTorch's lines in the order in which they were judged, the user's candidates, the
    best of dvk's own kernels.

    `name`; `kind` (pytorch, seed, dvk); `status` (of a verdict, or `left_out`); `speedup`, `lo`, `hi` over eager and `ms` of a
    call (null where it was not timed); `tier` and `regime` of that figure (those of two regimes do not compare); `reason` why there is
    none.

    Args:
        left_out: reasons by name of the lines that were not judged.
    """
    found = [_eager(turns)]
    judged = [same for same in programs(turns) if same[0].candidate and same[0].candidate.line]
    found += [_row(same[0].candidate.line, "pytorch", same) for same in judged if same[0].candidate]
    there = {row["name"] for row in found}
    found += [
        _named(name, "pytorch", status="left_out", reason=why)
        for name, why in left_out.items()
        if name not in there
    ]
    found += [
        _row(same[0].candidate.title, PROPOSER, same)
        for same in programs(turns)
        if same[0].candidate and same[0].candidate.proposer == PROPOSER
    ]
    own = best_own(turns)
    return [*found, own] if own is not None else found


def best_own(turns: Sequence[Turn]) -> dict[str, Any] | None:
    """The row of dvk's fastest candidate; `title` names it. None if none was right and timed."""
    made = (t for t, _ in ranked(turns) if t.candidate and not t.candidate.line)
    best = next((t for t in made if t.candidate and t.candidate.proposer != PROPOSER), None)
    if best is None or best.candidate is None:
        return None
    same = [t for t in turns if t.candidate and t.candidate.id == best.candidate.id]
    return {**_row("dvk's own kernels", "dvk", same), "title": best.candidate.title}


def _eager(turns: Sequence[Turn]) -> dict[str, Any]:
    timings = [t.verdict.timing for t in turns if t.verdict and t.verdict.timing]
    ms = timings[0].reference_ms if timings else None
    one = Interval(value=1.0, lo=1.0, hi=1.0) if timings else None
    return _named("eager", "pytorch", one, ms, "reference")


def _row(name: str, kind: str, same: Sequence[Turn]) -> dict[str, Any]:
    """The row of one program: its claim's figures if it was confirmed, else the search's."""
    timed = [t.verdict for t in same if t.verdict and t.verdict.timing]
    claims = [verdict for verdict in timed if verdict.tier == "claim"]
    if timed:
        verdict = (claims or timed)[-1]
        timing = verdict.timing
        assert timing is not None
        named = _named(name, kind, timing.speedup, timing.candidate_ms, verdict.tier)
        return {**named, "regime": timing.regime}
    verdicts = [t.verdict for t in same if t.verdict]
    status = verdicts[-1].status if verdicts else Status.BROKEN_TASK
    said = (verdicts[-1].error or verdicts[-1].untimed_reason) if verdicts else None
    return _named(name, kind, status=status.value, reason=(said or "").strip().partition("\n")[0])


def _named(
    name: str,
    kind: str,
    speedup: Interval | None = None,
    ms: float | None = None,
    tier: str | None = None,
    *,
    status: str = Status.OK.value,
    reason: str | None = None,
) -> dict[str, Any]:
    return {
        "name": name,
        "kind": kind,
        "status": status,
        "speedup": speedup and speedup.value,
        "lo": speedup and speedup.lo,
        "hi": speedup and speedup.hi,
        "ms": ms,
        "tier": tier,
        "regime": None,
        "reason": reason,
    }
