"""The end of `dvk optimize`: best.py, the episodes, the report, the summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from dvk.agents import TaskContext
from dvk.agents.task_context import tensor
from dvk.composer.dropin import replacing
from dvk.errors import DvkError
from dvk.harness.profiling.blocks import block_times
from dvk.pipelines import report
from dvk.pipelines.optimize import blocks, credit, portfolio, seeds
from dvk.pipelines.optimize import summary as optimize_summary
from dvk.pipelines.optimize.episode import episode
from dvk.pipelines.optimize.session import SearchSession
from dvk.records import Candidate, Episode, Task, Turn
from dvk.tasks.specs import parse_input

UNPROVEN = "unproven.py"


def finish(
    sessions: Sequence[SearchSession],
    winners: Sequence[Turn | None],
    groups: Sequence[Sequence[str]],
    strategy: str,
    backbone: str | None,
    dynamic: dict[str, Any] | None = None,
    more: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """Write everything; return the summary. Its headline is the first set of inputs with something faster.

    Args:
        winners: for each session, the turn that confirmed the drop-in, or refuted the best candidate; None if there was none.
        groups: for each, the fusions, a line a kernel.
        dynamic: the range of sizes that the drop-in serves, if any.
        more: further keys of the summary.
    """
    faster = [
        winner is not None and winner.verdict is not None and winner.verdict.faster
        for winner in winners
    ]
    episodes = [_episode(s) for s in sessions]
    outcomes = _outcomes(sessions, winners, faster, episodes)
    found = [outcome["status"] for outcome in outcomes]
    lead = next((found.index(status) for status in ("faster", "too_noisy") if status in found), 0)
    session, winner = sessions[lead], winners[lead]
    run = session.run
    candidate = winner.candidate if winner is not None and faster[lead] else None
    files = _files(session, winner, candidate)
    subject = TaskContext(session.task, session.captured, session.backend)
    if candidate is not None and len(sessions) == 1:
        outcomes[lead]["skills"] = credit.credited(subject, session.skills, candidate)
    labels = [label(s.task) for s in sessions]
    interrupted = any(s.interrupted for s in sessions)
    # A text for several sets of inputs has several fusions.
    fused = winner if faster[lead] and len(sessions) == 1 else None
    turns = [turn for s in sessions for turn in s.turns]
    summary = {
        **outcomes[lead],
        "num_candidates": len(optimize_summary.programs(turns)),
        **files,
        "groups": list(groups[lead]),
        "blocks": blocks.rows(subject, fused, _times(session, interrupted)),
        "strategy": strategy,
        "backbone": backbone,
        "cost": optimize_summary.cost(turns, episodes[lead], session.backbone),
        "proposers": optimize_summary.proposers(turns),
        "arms": credit.arms(turns),
        "winner": portfolio.winner(winner, faster[lead]),
        "dynamic": dynamic,
        **_facts(sessions[0], session),
        "shapes": [_row(n, labels, outcomes[n], winners[n], groups) for n in range(len(sessions))],
        **more,
    }
    run.write_text("episodes/optimize.jsonl", "".join(e.model_dump_json() + "\n" for e in episodes))
    report.write(
        run,
        episodes[lead],
        summary,
        best_source=candidate.source if candidate else None,
        graph=session.graph,
        skills={s.name: s for s in session.skills},
        others={name: e for name, e, s in zip(labels, episodes, sessions) if s is not session},
    )
    run.append("summary.jsonl", summary)
    run.finish("interrupted" if interrupted else "done")
    return summary


def _episode(session: SearchSession) -> Episode:
    """The whole record of a search."""
    subject = TaskContext(session.task, session.captured, session.backend)
    made = episode(subject, session.turns, session.skills, session.traces, session.backbone)
    return made.model_copy(update={"proposed_skills": session.proposed})


def _files(
    session: SearchSession, winner: Turn | None, candidate: Candidate | None
) -> dict[str, str | None]:
    """Write the drop-in, or else the best candidate without a proof; return their paths and the drop-in's `use`.

    Args:
        winner: the turn that confirmed it, or refuted it.
        candidate: the drop-in.
    """
    if candidate is None:
        return {"best": None, "use": None, "unproven": _unproven(session, winner)}
    run = session.run
    best = str(run.write_text("best.py", candidate.source))
    # An earlier, shorter search's unproven candidate is proved now.
    (run.path / UNPROVEN).unlink(missing_ok=True)
    arguments = session.captured.arguments if session.captured is not None else ()
    how = replacing.used(session.task, candidate.source, arguments)
    return {"best": best, "use": how[0], "unproven": None}


def _outcomes(
    sessions: Sequence[SearchSession],
    winners: Sequence[Turn | None],
    faster: Sequence[bool],
    episodes: Sequence[Episode],
) -> list[dict[str, Any]]:
    """What each set's search came to."""
    return [
        optimize_summary.outcome(
            s.turns,
            w,
            f,
            s.reason,
            optimize_summary.why_unparsed(e),
            unjudged=s.unjudged,
            judge=s.config.judge,
        )
        for s, w, f, e in zip(sessions, winners, faster, episodes)
    ]


def _facts(first: SearchSession, session: SearchSession) -> dict[str, Any]:
    """What the run and the task were.

    Args:
        first: the search for the first set of inputs, whose clock is the command's.
        session: the search that the summary is of.
    """
    return {
        "own": portfolio.best_own(session.turns),
        "portfolio": portfolio.rows(session.turns, session.left_out),
        "run": str(session.run.path),
        "seeds": seeds.rows(session.seeds, session.turns),
        "ended": "stopped by the user" if first.interrupted else first.ended,
        "seconds": round(first.elapsed_s, 2),
        "budget_s": session.config.optimize.budget_s,
        "expected_s": first.expected and round(first.expected.total, 1),
        "train": session.task.train,
        "mode": optimize_summary.mode(session.captured, session.task),
        "train_mode": optimize_summary.in_train_mode(session.captured, session.task) or None,
        "written_inputs": list(session.task.written_inputs),
        "warnings": optimize_summary.warnings(session.backbone, session.failure),
    }


def _unproven(session: SearchSession, winner: Turn | None) -> str | None:
    """Path of the best candidate that was right but whose speedup is not proved; None if there is none.

    Args:
        winner: the turn that refuted it, if one did.
    """
    refuted = (
        winner.candidate
        if winner is not None and winner.verdict is not None and winner.verdict.timing is not None
        else None
    )
    best = refuted or next((turn.candidate for turn in session.unconfirmed), None)
    if best is None:
        return None
    said = "# Unproven: this candidate agreed with the original wherever it was checked, but no speedup was confirmed for it.\n"
    return str(session.run.write_text(UNPROVEN, said + best.source))


def _times(session: SearchSession, interrupted: bool) -> dict[str, float]:
    """Times of an eager call by block; empty if that was interrupted: the search's own findings matter more."""
    names = [] if interrupted else blocks.names(session.captured)
    if not names:
        return {}
    try:
        return block_times(session.task, names, session.config.limits)
    except (KeyboardInterrupt, DvkError):
        return {}


def _row(
    number: int,
    labels: Sequence[str],
    outcome: Mapping[str, Any],
    winner: Turn | None,
    groups: Sequence[Sequence[str]],
) -> dict[str, Any]:
    """The summary's text on one set of inputs."""
    timing = winner.verdict.timing if winner is not None and winner.verdict is not None else None
    same = next(
        (labels[n] for n in range(number) if groups[number] and groups[n] == groups[number]), None
    )
    told_ = (
        "status",
        "speedup",
        "speedup_lo",
        "speedup_hi",
        "headline",
        "baselines",
        "num_candidates",
        "reason",
    )
    return {
        "inputs": labels[number],
        **{key: outcome[key] for key in told_},
        "ms": timing and timing.candidate_ms,
        "groups": list(groups[number]),
        "same_kernels_as": same,
    }


def label(task: Task) -> str:
    """A set of inputs as text: `x float32[64, 1024], scale=2.0`."""
    plain = [spec for spec in task.input_specs if parse_input(spec).dtype is None]
    return ", ".join([*map(tensor, task.inputs), *plain])
