"""A task's results, one row a sample: the only source of tables, pages and comparisons.

The winner among several turns was lucky as well as good. So a sample's winner among several is timed again, and of several
samples the best is chosen by its first time; only the second time counts. A claim, if requested, is always what counts.

Times on the device alone and from end to end cannot be compared. Without a second time to decide between them, a candidate that is
faster than eager on the device alone comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from dvk.composer.plan_space import AS_IT_IS
from dvk.harness.checking.health import degenerate
from dvk.harness.remote.table import is_unknown
from dvk.pipelines.eval.request import Over, Unplayed
from dvk.pipelines.tracebacks import file_of
from dvk.records import Episode, Record, Status, Turn, Verdict
from dvk.stats.fast_p import TaskOutcome


class EvalMeasurement(Record):
    """The judge's findings on one candidate; the default is a wrong or missing one."""

    correct: bool = Field(False, description="The judge said ok.")
    speedup: float | None = Field(
        None, description="Eager time / candidate time; null when wrong or untimed."
    )
    lo: float | None = Field(None, description="Lower end of its 95 % interval.")
    over: dict[str, float] = Field(
        default_factory=dict,
        description="Each other baseline that was timed: its time / candidate time.",
    )
    over_lo: dict[str, float] = Field(
        default_factory=dict, description="Lower ends of their 95 % intervals."
    )
    candidate_ms: float | None = Field(None, description="Median time of a candidate call.")
    reference_ms: float | None = Field(None, description="Median time of an eager call.")
    over_ms: dict[str, float] = Field(
        default_factory=dict, description="Median times of the other baselines' calls."
    )
    floor_ms: float | None = Field(
        None, description="Time in which the bytes that must move could move on this machine."
    )
    regime: Literal["end_to_end", "device"] | None = Field(
        None,
        description="How all this was timed, as in `Timing`; null when untimed, or written by an older dvk: unknown.",
    )
    holds: bool | None = Field(
        None, description="The claim that it is faster than eager holds; null where none was made."
    )

    @classmethod
    def of(cls, verdict: Verdict | None) -> EvalMeasurement:
        """A verdict's figures; None is a turn without a candidate."""
        if verdict is None:
            return cls()
        unclaimed = False if verdict.tier == "claim" else None
        timing = verdict.timing
        if verdict.status is not Status.OK or timing is None:
            return cls(correct=verdict.status is Status.OK, holds=unclaimed)
        return cls(
            correct=True,
            speedup=timing.speedup.value,
            lo=timing.speedup.lo,
            candidate_ms=timing.candidate_ms,
            reference_ms=timing.reference_ms,
            floor_ms=timing.floor_ms,
            over_ms=dict(timing.baselines_ms),
            over={name: ratio.value for name, ratio in timing.baselines.items()},
            over_lo={name: ratio.lo for name, ratio in timing.baselines.items()},
            regime=timing.regime,
            holds=timing.claim.holds if timing.claim is not None else unclaimed,
        )


class EvalRow(Record):
    """One sample at one task."""

    task: str = Field(description="Name in the suite.")
    sample: int = Field(0, description="Which conversation, from 0.")
    groups: dict[str, str] = Field(
        default_factory=dict, description="Level, category, … of the task."
    )
    turns: tuple[EvalMeasurement, ...] = Field(
        (), description="Each turn's own candidate, in order."
    )
    again: EvalMeasurement | None = Field(
        None, description="The winner's second time; null where it was not taken."
    )
    status: str = Field(
        "", description="Status of the winner, or of the last turn if none is right."
    )
    error: str | None = Field(
        None, description="Why there is no right candidate; null when there is one."
    )
    known: bool = Field(
        True,
        description="False where a table of measured plans judges, and holds no plan of this sample: no figure counts it.",
    )
    traceback: str | None = Field(
        None,
        description="File in the run folder: of an exception inside dvk; null where there was none.",
    )
    mode: Literal["train", "eval"] | None = Field(
        None, description="That the module was judged in; null of a function, or not known."
    )
    health: tuple[str, ...] = Field(
        (), description="What the judge found degenerate about the task."
    )
    written_inputs: tuple[str, ...] = Field(
        (), description="Inputs that the reference writes in place."
    )
    flop_ms: float | None = Field(
        None,
        description="Time in which the reference's matrix products could be done on this machine.",
    )
    prompt_tokens: int | None = Field(
        None, description="Tokens read; null where the backbone does not tell."
    )
    completion_tokens: int | None = Field(None, description="Tokens written, likewise.")
    judge_s: float = Field(0.0, description="Wall clock the judge spent on its candidates.")

    lines: dict[str, EvalMeasurement] = Field(
        default_factory=dict,
        description="PyTorch's own lines for the task, judged and timed as candidates once a task, by baseline.",
    )
    not_timed: dict[str, str] = Field(
        default_factory=dict, description="Why a requested baseline has no figure here."
    )

    def portfolio(self) -> tuple[str, EvalMeasurement]:
        """The fastest right way, own kernels or a line of PyTorch, and its name; eager where nothing is faster."""
        own = self.final
        ways = {"dvk": own} if own.speedup is not None else {}
        ways |= {
            name: self._over_lines(line)
            for name, line in self.lines.items()
            if line.speedup is not None and (own.speedup is None or same_timing_kind(line, own))
        }
        best = max(ways, key=lambda name: ways[name].speedup or 0.0, default="dvk")
        return best, ways.get(best, own)

    def _over_lines(self, one: EvalMeasurement) -> EvalMeasurement:
        """A line's figures with its speedups over the other lines: all were timed beside eager."""
        timed = {n: line.speedup for n, line in self.lines.items() if line.speedup}
        over = {name: (one.speedup or 0.0) / speedup for name, speedup in timed.items()}
        return one.model_copy(update={"over": over, "over_lo": dict(over)})

    def best(self, length: int | None = None) -> EvalMeasurement:
        """Among the first `length` turns (all): the fastest right one, else the first right one, else a failure."""
        turns = self.turns[:length]
        timed = [turn for turn in turns if turn.speedup is not None]
        return (
            max(timed, key=_rank)
            if timed
            else next((t for t in turns if t.correct), EvalMeasurement())
        )

    @property
    def final(self) -> EvalMeasurement:
        """The time that counts: the winner's second time if it won against others, or is a claim."""
        return (
            self.again
            if self.again is not None and (len(self.turns) > 1 or self.again.holds is not None)
            else self.best()
        )

    @property
    def degenerate(self) -> bool:
        """Whether the task is degenerate: it accepts made-up answers on all inputs."""
        return degenerate(self.health)


def outcome(row: EvalRow, measurement: EvalMeasurement, over: Over = "eager") -> TaskOutcome:
    """The row as input of the field's scores."""
    speedup, lo = (
        (measurement.speedup, measurement.lo)
        if over == "eager"
        else (measurement.over.get(over), measurement.over_lo.get(over))
    )
    return TaskOutcome(row.task, measurement.correct, speedup, lo, row.groups, measurement.regime)


def same_timing_kind(one: EvalMeasurement, other: EvalMeasurement) -> bool:
    """Whether they were timed in one way, as far as known."""
    return one.regime == other.regime or None in (one.regime, other.regime)


def best_of(rows: Iterable[EvalRow]) -> list[tuple[EvalRow, EvalMeasurement]]:
    """The best sample of each task by first times, with its second time if there is one."""
    held: dict[str, EvalRow] = {}
    for row in rows:
        other = held.get(row.task)
        if other is None or _rank(row.best()) > _rank(other.best()):
            held[row.task] = row
    return [(row, row.again or row.best()) for row in held.values()]


def _rank(measurement: EvalMeasurement) -> tuple[bool, bool, float]:
    """Sort key of first times: like with like, as far as both are faster than eager."""
    speedup = measurement.speedup or 0.0
    return measurement.correct, measurement.regime == "device" and speedup > 1, speedup


# ------------------------------------------------------------------ from episodes


def tries(episode: Episode) -> list[list[Turn]]:
    """The turns of every sample: of each policy conversation."""
    return [list(trace.turns) for trace in episode.traces if trace.role == "policy"]


def winners(turns: Sequence[Turn]) -> list[Turn]:
    """The fastest right turn, and the fastest of those timed in the other way: on the device alone, or from end to end. Their times
    cannot be compared. Where none is shown to be faster than eager, the model as it is comes first, if it was tried."""
    best: dict[str, tuple[tuple[bool, bool, float], Turn]] = {}
    for turn in turns:
        timing = turn.verdict.timing if turn.verdict is not None else None
        if timing is None:
            continue
        rank = _standing(turn)
        if timing.regime not in best or rank > best[timing.regime][0]:
            best[timing.regime] = rank, turn
    return [turn for _, turn in sorted(best.values(), key=lambda one: one[0], reverse=True)]


def _standing(turn: Turn) -> tuple[bool, bool, float]:
    """Sort key of a timed turn: whether it is shown to be faster than eager, whether it is the model as it is if not, its speedup."""
    speedup = turn.verdict.timing.speedup  # type: ignore[union-attr]
    faster = speedup.lo > 1
    return faster, not faster and is_unchanged(turn), speedup.value


def is_unchanged(turn: Turn) -> bool:
    """Whether its candidate is the composer's text of the model as it is."""
    made = turn.candidate
    return made is not None and made.proposer == "composer" and made.title == AS_IT_IS


def winner(turns: Sequence[Turn], again: str | None = None) -> Turn | None:
    """The one of `winners` that counts: the candidate of a second time, if there is one, else the fastest; None when none was timed."""
    best = winners(turns)
    return next(
        (t for t in best if t.candidate is not None and t.candidate.id == again),
        best[0] if best else None,
    )


def rows_for(
    episodes: Sequence[Episode],
    unplayed: Sequence[Unplayed],
    again: Mapping[tuple[str, int], Verdict],
    groups: Mapping[str, Mapping[str, str]] | None = None,
    facts: Mapping[str, Mapping[str, Any]] | None = None,
    lines: Sequence[Mapping[str, Any]] = (),
    baselines: Sequence[Over] = (),
) -> list[EvalRow]:
    """The rows of all tasks, by name; one without turns for a task that could not be loaded.

    Args:
        again: second verdicts by (task, sample).
        groups: by task, if known.
        facts: `playing.facts` by task, if known.
        lines: rows of `lines.judge_lines`.
        baselines: those that were requested.
    """
    groups, facts = groups or {}, facts or {}
    rows = [
        EvalRow(
            task=u.name,
            groups=dict(groups.get(u.name, {})),
            error=u.error,
            known=u.known,
            traceback=file_of(u.name) if u.traceback else None,
        )
        for u in unplayed
    ]
    for episode in episodes:
        rows += rows_of(
            episode, again, groups.get(episode.task.name, {}), facts.get(episode.task.name, {})
        )
    rows = [
        _with_lines(row, again, [one for one in lines if one["task"] == row.task], baselines)
        for row in rows
    ]
    return sorted(rows, key=lambda row: (row.task, row.sample))


def timed_beside(verdict: Verdict) -> dict[str, EvalMeasurement]:
    """The baselines that were timed in the same rounds as a winner, over eager."""
    timing = verdict.timing
    if timing is None:
        return {}
    return {
        name: EvalMeasurement(
            correct=True,
            speedup=timing.reference_ms / ms,
            candidate_ms=ms,
            reference_ms=timing.reference_ms,
            regime=timing.regime,
        )
        for name, ms in timing.baselines_ms.items()
    }


def _with_lines(
    row: EvalRow,
    again: Mapping[tuple[str, int], Verdict],
    lines: Sequence[Mapping[str, Any]],
    baselines: Sequence[Over],
) -> EvalRow:
    """The row with PyTorch's own lines, and the reason for each requested baseline without a figure."""
    second = again.get((row.task, row.sample))
    found = timed_beside(second) if second is not None else {}
    why: dict[str, str] = dict(second.baselines_left_out) if second is not None else {}
    for one in lines:
        if one["line"] in found:
            continue  # timed in the winner's rounds
        verdict = Verdict.model_validate(one["verdict"]) if one.get("verdict") else None
        found[one["line"]] = EvalMeasurement.of(verdict)
        error = one.get("error") or (verdict and (verdict.error or verdict.untimed_reason))
        if error:
            why.setdefault(one["line"], str(error).strip().partition("\n")[0])
    if baselines and second is None and row.error is not None:
        why = dict.fromkeys(baselines, f"nothing was timed: {row.error}") | why
    untimed = [n for n in baselines if n not in found or found[n].speedup is None]
    why = {n: why.get(n, "it was not timed: resume the run") for n in untimed}
    return row.model_copy(
        update={"lines": found, "not_timed": why, "again": _over(row.again, found)}
    )


def _over(
    measured: EvalMeasurement | None, lines: Mapping[str, EvalMeasurement]
) -> EvalMeasurement | None:
    """A second time with its ratios to lines that were judged alone, but timed in the same way."""
    if measured is None or not measured.speedup:
        return measured
    more = {
        name: measured.speedup / line.speedup
        for name, line in lines.items()
        if line.speedup and name not in measured.over and same_timing_kind(line, measured)
    }
    return measured.model_copy(
        update={"over": {**more, **measured.over}, "over_lo": {**more, **measured.over_lo}}
    )


def rows_of(
    episode: Episode,
    again: Mapping[tuple[str, int], Verdict],
    groups: Mapping[str, str],
    facts: Mapping[str, Any],
) -> list[EvalRow]:
    """A row a sample; one without turns if nothing was played.

    Args:
        again: second verdicts by (task, sample).
        groups, facts: of the task.
    """
    name, result = episode.task.name, []
    seen: set[str] = set()
    for sample, turns in enumerate(tries(episode) or [[]]):
        verdicts = [turn.verdict for turn in turns]
        second = again.get((name, sample))
        right = next((v for v in verdicts if v is not None and v.status is Status.OK), None)
        last = next((v for v in reversed(verdicts) if v is not None), None)
        told = [turn.tokens for turn in turns if turn.tokens is not None]
        crashed = facts.get("traceback") or any(
            v.traceback for v in [*verdicts, second] if v is not None
        )
        result.append(
            EvalRow(
                task=name,
                sample=sample,
                groups=dict(groups),
                mode=episode.task.mode,
                turns=tuple(EvalMeasurement.of(v) for v in verdicts),
                again=EvalMeasurement.of(second) if second is not None else None,
                flop_ms=facts.get("flop_ms"),
                traceback=file_of(name) if crashed else None,
                status=(right or last).status.value if right or last else "",  # type: ignore[union-attr]
                known=right is not None
                or not any(v is not None and is_unknown(v) for v in verdicts),
                error=None if right else reason(turns, facts.get("cannot", "")),
                health=next((v.health for v in verdicts if v is not None and v.health), ()),
                written_inputs=episode.task.written_inputs,
                prompt_tokens=sum(len(t.prompt) for t in told) if told else None,
                completion_tokens=sum(len(t.completion) for t in told) if told else None,
                judge_s=round(sum(_seconds(turn, seen) for turn in turns), 3),
            )
        )
    return result


def _seconds(turn: Turn, seen: set[str]) -> float:
    """The judge's cost; equal candidates of a task are judged once and share their verdict."""
    if (
        turn.verdict is None
        or turn.verdict.cached
        or turn.candidate is None
        or turn.candidate.id in seen
    ):
        return 0.0
    seen.add(turn.candidate.id)
    return turn.verdict.seconds


def reason(turns: Sequence[Turn], cannot: str = "") -> str:
    """Why a sample has no right candidate: its last error, or why there is no graph."""
    for turn in reversed(turns):
        if turn.verdict is not None and turn.verdict.error:
            return f"{turn.verdict.status.value}: {turn.verdict.error.splitlines()[0][:200]}"
        if turn.malformed:
            return f"malformed: {turn.malformed[:200]}"
    return "the module's operators cannot be captured" + (f": {cannot[:300]}" if cannot else "")
