"""A search's final report: the parts of the summary. Only reads."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from dvk.agents import TaskContext
from dvk.backbone.recorded import RecordedBackbone
from dvk.composer import CapturedGraph, fuse
from dvk.composer.recipes import inexact
from dvk.config import JudgeConfig
from dvk.errors import DvkError
from dvk.records import Episode, Interval, Status, Task, Timing, Turn
from dvk.search.repeats import program
from dvk.speedups import outcome_of, shown, words


def outcome(
    turns: Sequence[Turn],
    winner: Turn | None,
    faster: bool,
    reason: str | None,
    unread: str | None,
    *,
    unjudged: str | None = None,
    judge: JudgeConfig | None = None,
) -> dict[str, Any]:
    """Status, figures, their wording, and the winner's authors.

    Args:
        winner: the turn that confirmed it, or refuted it.
        reason: why the search ended early, if it did.
        unread: why no answer of the model could be parsed, if none could.
        unjudged: why the search ended before its first verdict, if it did.
        judge: the timing settings.
    """
    settings = judge or JudgeConfig()
    timing = _timing(winner)
    said = timing and words(timing, pairs=settings.claim_pairs, seconds=settings.claim_s)
    figures = _figures(timing)
    eager = figures["eager"]
    ok = [t.verdict for t in turns if t.verdict is not None and t.verdict.status is Status.OK]
    status = _status(turns, faster, bool(ok), unjudged)
    if reason is None and status in ("no_speedup", "too_noisy"):
        reason = (ok[0].untimed_reason if ok else unread) or _refuted(turns, winner)
    elif reason is None:
        reason = {"no_verdict": unjudged, "failed": "no candidate agreed with the reference"}.get(
            status
        )
    candidate = winner.candidate if winner is not None else None
    return {
        "status": status,
        "speedup": eager and eager["speedup"],
        "speedup_lo": eager and eager["lo"],
        "speedup_hi": eager and eager["hi"],
        "regime": timing and timing.regime,
        "headline": said.headline if said and faster else None,
        "control": timing.claim.control.model_dump(mode="json")
        if timing and timing.claim
        else None,
        "noise": said.noise or None if said else None,
        "hint": said.hint or None if said else None,
        "baselines": figures,
        "num_candidates": len(programs(turns)),
        "title": candidate.title if candidate else None,
        "proposer": candidate.proposer if candidate else None,
        "recipes": list(candidate.recipes) if candidate else [],
        "inexact": inexact(candidate.recipes) if candidate else [],
        "skills": list(candidate.skills) if candidate else [],
        "reason": reason,
    }


def _figures(timing: Timing | None) -> dict[str, dict[str, float] | None]:
    """A row for eager and for each baseline: `ms`, and the speedup over it with its interval."""
    if timing is None:
        return {"eager": None}

    def row(ms: float, speedup: Interval) -> dict[str, float]:
        return {"ms": ms, "speedup": speedup.value, "lo": speedup.lo, "hi": speedup.hi}

    figures: dict[str, dict[str, float] | None] = {
        "eager": row(timing.reference_ms, timing.speedup)
    }
    for name, speedup in timing.baselines.items():
        figures[name] = row(timing.baselines_ms[name], speedup)
    return figures


def _status(turns: Sequence[Turn], faster: bool, right: bool, unjudged: str | None) -> str:
    """`too_noisy` if a gain that matters is possible: a claim leaves it open."""
    if faster:
        return "faster"
    if not turns and unjudged:
        return "no_verdict"
    if turns and not right:
        return "failed"
    timings = [
        timing
        for turn in turns
        if turn.verdict and turn.verdict.tier == "claim" and (timing := _timing(turn))
    ]
    return (
        "too_noisy"
        if any(outcome_of(timing) == "too_noisy" for timing in timings)
        else "no_speedup"
    )


def _timing(turn: Turn | None) -> Timing | None:
    return turn.verdict.timing if turn is not None and turn.verdict is not None else None


def ranked(turns: Sequence[Turn]) -> list[tuple[Turn, Interval]]:
    """A search's timed programs, the fastest first: each program's first turn, and the mean of all that measured it.

    The user's own model, which the composer proposes without any recipe, is left out.
    """
    timed = [
        t
        for t in turns
        if t.candidate
        and t.verdict
        and t.verdict.timing
        and t.verdict.tier == "search"
        and (t.candidate.recipes or t.candidate.proposer != "composer")
    ]
    return sorted(
        ((same[0], mean(same)) for same in programs(timed)), key=lambda one: -one[1].value
    )


def programs(turns: Sequence[Turn]) -> list[list[Turn]]:
    """Turns with a candidate, those of one program together, however often it was measured."""
    result: dict[str, list[Turn]] = {}
    for turn in turns:
        if turn.candidate is not None:
            result.setdefault(program(turn.candidate.source), []).append(turn)
    return list(result.values())


def mean(turns: Sequence[Turn]) -> Interval:
    """Geometric mean of the speedups of timed turns."""
    speedups = [t.verdict.timing.speedup for t in turns if t.verdict and t.verdict.timing]
    value, lo, hi = (
        math.prod(ends) ** (1 / len(ends))
        for ends in zip(*((s.value, s.lo, s.hi) for s in speedups))
    )
    return Interval(value=value, lo=lo, hi=hi)


def _refuted(turns: Sequence[Turn], claim: Turn | None) -> str:
    """Why nothing is claimed, although candidates were timed.

    Args:
        claim: the turn whose figures are given.
    """
    timing = (
        _timing(claim)
        if claim is not None and claim.verdict is not None and claim.verdict.tier == "claim"
        else None
    )
    candidates = ranked(turns)
    if timing is None or not candidates:
        refused = [
            t
            for t in turns
            if t.verdict is not None
            and t.verdict.tier == "claim"
            and t.verdict.status is not Status.OK
        ]
        if refused:
            assert refused[0].verdict is not None
            return f"the best candidate was refused when it was judged again: {_first_line(refused[0].verdict.error)}"
        return (
            f"the fastest candidate measured {shown(candidates[0][1])}"
            if candidates
            else "no candidate could be timed"
            if turns
            else "nothing was proposed"
        )
    # A drop-in for several sets of inputs has a text that no search has timed.
    speedup = next(
        (
            s
            for t, s in candidates
            if t.candidate and claim and claim.candidate and t.candidate.id == claim.candidate.id
        ),
        candidates[0][1],
    )
    what = "the search's best" if speedup is candidates[0][1] else "the candidate"
    return f"{what}, {shown(speedup)} in the search, was timed again in fresh processes: {words(timing).sentence}"


def _first_line(text: str | None) -> str:
    return (text or "no reason was given").strip().partition("\n")[0]


def why_unparsed(made: Episode) -> str | None:
    """Why a model's answers gave nothing, if no code could be parsed from any of them."""
    said = [t for trace in made.traces if trace.role == "policy" for t in trace.turns if t.messages]
    if not said or any(t.candidate for t in said):
        return None
    why = Counter(t.malformed or "it holds no code" for t in said).most_common(1)[0][0]
    return f"none of the model's {len(said)} answers could be read; most often: {why}"


def groups(subject: TaskContext, winner: Turn | None) -> list[str]:
    """The composer's fusions in the winner, a line a kernel; empty if a model wrote it."""
    candidate = winner.candidate if winner is not None else None
    if subject.captured is None or candidate is None or candidate.proposer != "composer":
        return []
    made = fuse(subject.task, subject.captured, candidate.recipes)
    return [
        *(f"{k.name}: {k.summary} ({k.num_rows:,} × {k.row_length:,})" for k in made.ordered),
        *(r.summary for r in made.recurrences),
    ]


def cost(turns: Sequence[Turn], made: Episode, backbone: RecordedBackbone | None) -> dict[str, Any]:
    """Seconds of the judge and of the model, tokens, US dollars; null for the model's fields without a model."""
    spent = {
        tier: sum(
            (
                t.verdict.seconds
                for t in turns
                if t.verdict and (t.verdict.tier == "claim") == (tier == "claim")
            ),
            0.0,
        )
        for tier in ("search", "claim")
    }
    said = [t for trace in made.traces for t in trace.turns if t.messages]
    used = backbone.usage if backbone is not None else None
    return {
        "judge_s": round(spent["search"], 2),
        "confirm_s": round(spent["claim"], 2),
        "model_s": used and round(used.seconds, 2),
        "prompt_tokens": used and used.prompt_tokens,
        "completion_tokens": used and used.completion_tokens,
        "usd": used and used.cost_usd,
        "answers": len(said) if used else None,
        "malformed": sum(t.malformed is not None for t in said) if used else None,
    }


def mode(captured: CapturedGraph | None, task: Task) -> str | None:
    """The judged mode, `train` or `eval`; None for a function, and if unknown."""
    if task.kind == "module" and captured is not None:
        return "train" if captured.graph.training else "eval"
    return task.mode


def in_train_mode(captured: CapturedGraph | None, task: Task) -> str:
    """A warning that the module is judged in train mode although that matters, with a remedy; empty if it does not."""
    if captured is None or not captured.depending or task.kind != "module":
        return ""
    named = ", ".join(captured.depending[:3]) + (
        f" and {len(captured.depending) - 3} more" if len(captured.depending) > 3 else ""
    )
    return (
        f"the file leaves the module in train mode, which {named} depend{'s' if len(captured.depending) == 1 else ''} on: "
        "add --eval to make it fast for inference"
    )


def warnings(backbone: RecordedBackbone | None, failure: DvkError | None) -> list[str]:
    """The model's errors in a search that still came to an end.

    Args:
        failure: the error that ended the model's part.
    """
    if failure is not None:
        return [
            f"the model ended early: {failure.message} ({failure.hint}); what the search had found was kept"
        ]
    answers = [
        one for call in (backbone.calls if backbone is not None else []) for one in call.completions
    ]
    lost = [one.error or "no reason was given" for one in answers if one.finish == "error"]
    if not lost:
        waited = backbone.usage.seconds if backbone is not None else 0.0
        return (
            [f"the model gave no answer in the {waited:.0f} s that it had"]
            if waited and not answers
            else []
        )
    return [
        f"{len(lost)} of the model's {len(answers)} answers failed; most often: {Counter(lost).most_common(1)[0][0]}"
    ]


def proposers(turns: Sequence[Turn]) -> list[dict[str, Any]]:
    """By proposer, in the order they began: candidates, right ones, the search's best speedup, seconds of the judge."""
    rows: dict[str, dict[str, Any]] = {}
    for same in programs([t for t in turns if t.verdict is not None and t.verdict.tier != "claim"]):
        once = list(
            {t.candidate.id: t for t in reversed(same) if t.candidate}.values()
        )  # the first verdict of each candidate
        verdicts = [t.verdict for t in once if t.verdict is not None]
        name = same[0].candidate.proposer if same[0].candidate is not None else ""
        row = rows.setdefault(
            name, {"name": name, "candidates": 0, "correct": 0, "best": None, "judge_s": 0.0}
        )
        row["candidates"] += 1
        row["correct"] += all(verdict.status is Status.OK for verdict in verdicts)
        row["judge_s"] = round(row["judge_s"] + sum(verdict.seconds for verdict in verdicts), 2)
        if any(verdict.timing for verdict in verdicts):
            row["best"] = max(row["best"] or 0.0, mean(once).value)
    return list(rows.values())
