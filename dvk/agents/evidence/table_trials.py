"""Trials of proposed skills without a sample: the gain of their change over every task of a table that their condition covers.

Where the judge answers from a table, both arms are plans that it holds, on the same tasks, and no answer can fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from dvk.agents.evidence.facts import with_facts
from dvk.agents.evidence.gains import LEVEL, SkillGain, TaskGain, gain_of, pooled
from dvk.agents.evidence.growth import BAR, LEAST, RATE, evidence
from dvk.config import Config
from dvk.harness.remote.table import PREFIX, known_tasks
from dvk.records import Skill
from dvk.records.measured import MeasuredTask
from dvk.stats.effect_size import Bounded, Gain, OnTask
from dvk.stats.false_discovery import benjamini_hochberg

__all__ = ["LEVEL", "TableTrial", "table_of", "table_trials"]


class TableTrial:
    """The outcome for one skill.

    Attributes:
        skill: with the evidence.
        gain: as trials by samples have it; None if the table holds neither arm of any task.
        why: the reason for the refusal; empty if it gains.
    """

    def __init__(self, skill: Skill, gain: Gain | None, why: str):
        self.skill, self.gain, self.why = skill, gain, why


def table_of(config: Config) -> Path | None:
    """The table that judges, if one does."""
    judge = config.remote.judge
    return (
        Path(judge.removeprefix(PREFIX)).expanduser()
        if judge and judge.startswith(PREFIX)
        else None
    )


def table_trials(
    skills: Sequence[Skill], backend: str, path: Path, least: int = LEAST
) -> list[TableTrial]:
    """The trials of a step's proposals with a change of plan, false discoveries controlled over all of them.

    Args:
        least: tasks that a gain must come from.
    """
    rows = [row for row in _rows(path, path.stat().st_mtime_ns) if row.backend == backend]
    by_task = [_gains(skill, rows) for skill in skills]
    totals = [pooled(gains, BAR) for gains in by_task]
    kept = benjamini_hochberg([1.0 if t is None else t.p_value for t in totals], RATE)
    return [
        _outcome(skill, gains, total, keep, rows, least)
        for skill, gains, total, keep in zip(skills, by_task, totals, kept, strict=True)
    ]


@lru_cache(maxsize=2)
def _rows(path: Path, changed_ns: int) -> tuple[MeasuredTask, ...]:
    del changed_ns
    return tuple(with_facts(known_tasks(path)))


def _gains(skill: Skill, rows: Sequence[MeasuredTask]) -> list[TaskGain]:
    assert skill.block is not None, "it has a change of plan"
    return [gain for row in rows if (gain := gain_of(skill.block, row)) is not None]


def _outcome(
    skill: Skill,
    gains: Sequence[TaskGain],
    total: SkillGain | None,
    kept: bool,
    rows: Sequence[MeasuredTask],
    least: int,
) -> TableTrial:
    if total is None or total.lo is None or total.hi is None or total.num_tasks < least:
        number = 0 if total is None else total.num_tasks
        return TableTrial(
            skill, None, f"the table measured it on {number} tasks, {least} are needed"
        )
    bounded = Bounded(total.gain, total.lo, total.hi)
    tasks = {g.task: OnTask(bounded, 1.0, total.gain, g.plans) for g in gains}
    gain = Gain(bounded, "tasks", tasks, len(gains), 0, 0)
    seen = skill.model_copy(update={"evidence": (*skill.evidence, evidence(total, rows))})
    said = f"{total.gain:.2f}× of without it, at least {total.lo:.2f}× (over {total.num_tasks} tasks of the table)"
    if total.lo <= BAR:
        return TableTrial(seen, gain, f"{said}; its lower bound is to exceed {BAR:g}×")
    return TableTrial(
        seen, gain, "" if kept else f"{said}; among so many proposals it may be chance"
    )
