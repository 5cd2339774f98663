"""The gain of a skill, looked up in a table of measured plans: nothing runs.

On one task the two arms are the composer's default plan, and that plan with the change. They were timed in one visit of the judge, against
the same reference: their ratio is the gain. Over many tasks the unit is the task.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from dvk.composer.codegen.base import codegen
from dvk.composer.recipes import RECIPES
from dvk.records import Status
from dvk.records.measured import MeasuredPlan, MeasuredTask
from dvk.records.skill_block import SkillBlock
from dvk.stats.student_t import student_quantile, student_tail

FAILED = math.log(0.5)
"""Log-gain of a change that makes the plan wrong: a wrong answer costs more than no gain."""
LEVEL = 0.95
"""Confidence of each end of an interval."""
_DEVIATIONS = 2 * 1.96
"""Standard deviations between the ends of a verdict's 95 % interval."""
LEAST_CLOCK = 0.003
"""Standard deviation of a log-gain by the clock, at least: two timings of one program differ by it."""


@dataclass(frozen=True)
class TaskGain:
    """A skill's gain on one task.

    Attributes:
        task: its id.
        log: logarithm of (speed with the change / speed of the default).
        clock: standard deviation of it by the clock.
        plans: measured plans with the change.
    """

    task: str
    log: float
    clock: float
    plans: int

    @property
    def lo(self) -> float:
        """Lower end of the ratio's interval, by the clock."""
        return math.exp(self.log - 1.645 * self.clock)


@dataclass(frozen=True)
class SkillGain:
    """A skill's gain over tasks, as ratios; the interval's ends are None for fewer than two tasks.

    Attributes:
        num_tasks: with both arms measured.
        gain: geometric mean.
        lo, hi: one-sided bounds of LEVEL.
        p_value: of a gain of `bar` or less.
    """

    num_tasks: int
    gain: float
    lo: float | None
    hi: float | None
    p_value: float


def structure(recipes: Iterable[str]) -> frozenset[str]:
    """A plan's recipes without those that only say what its schedules do."""
    return frozenset(r for r in recipes if r in RECIPES and RECIPES[r].kind != "schedule")


def is_covered(block: SkillBlock, row: MeasuredTask) -> bool:
    """Whether the condition holds for a task and its change would change the default plan, as far as known."""
    return bool(row.facts is not None and block.when.holds(row.facts) and not _is_idle(block, row))


def _is_idle(block: SkillBlock, row: MeasuredTask) -> bool:
    """Whether the default is so already, or the change does not apply."""
    default, change = row.default, block.do
    if default is None or row.facts is None:
        return False
    if change.recipes:
        applies = row.facts.words.get("applies", ())
        missing = [r for r in change.added if r not in default.recipes and r not in applies]
        return bool(missing) or change.is_in(structure(default.recipes))
    tag = _tag(row)
    covered = [name for name in block.when.kernels(row.facts) if name in default.schedule]
    return all(change.is_schedule(default.schedule[name], tag) for name in covered)


def gain_of(block: SkillBlock, row: MeasuredTask) -> TaskGain | None:
    """A skill's gain on one task; None where the table does not hold it.

    Where it has several plans with the change and nothing else, their mean: the skill does not say which.
    """
    default = row.default
    if default is None or default.verdict.timing is None or not is_covered(block, row):
        return None
    logs, clocks = [], []
    for plan in treatments(block, row):
        timing = plan.verdict.timing
        if timing is not None and timing.regime == default.verdict.timing.regime:
            logs.append(math.log(timing.speedup.value / default.verdict.timing.speedup.value))
            clocks.append(math.hypot(_clock(plan), _clock(default)))
        elif timing is None and plan.verdict.status not in (Status.OK, Status.BROKEN_TASK):
            logs.append(FAILED)
            clocks.append(0.0)
    if not logs:
        return None
    return TaskGain(row.task.id, fmean(logs), max(fmean(clocks), LEAST_CLOCK), len(logs))


def treatments(block: SkillBlock, row: MeasuredTask) -> list[MeasuredPlan]:
    """The measured plans that are the default with the change and nothing else."""
    default, change = row.default, block.do
    if default is None or row.facts is None:
        return []
    before = structure(default.recipes)
    if change.recipes:
        wanted = (before | {*change.added}) - {*change.removed}
        return [
            plan
            for plan in row.plans
            if plan.kind == "structure" and structure(plan.recipes) == wanted
        ]
    tag, found = _tag(row), {}
    covered = set(block.when.kernels(row.facts)) & default.schedule.keys()
    for plan in row.plans:
        if structure(plan.recipes) != before or plan.schedule.keys() != default.schedule.keys():
            continue
        differ = {k for k in plan.schedule if plan.schedule[k] != default.schedule[k]}
        done = {k for k in covered if change.is_schedule(plan.schedule[k], tag)}
        if differ and differ <= done:
            found[plan.key] = (len(done), plan)
    most = max((number for number, _ in found.values()), default=0)
    return [plan for number, plan in found.values() if number == most]


def pooled(gains: Sequence[TaskGain], bar: float = 1.0) -> SkillGain | None:
    """Gain over tasks; None for no task.

    Args:
        bar: what `p_value` is about.
    """
    if not gains:
        return None
    logs = [one.log for one in gains]
    mean = fmean(logs)
    if len(logs) < 2:
        return SkillGain(1, math.exp(mean), None, None, 1.0)
    clock = math.sqrt(sum(one.clock**2 for one in gains)) / len(gains)
    error = max(stdev(logs) / math.sqrt(len(logs)), clock)
    half = student_quantile(LEVEL, len(logs) - 1) * error
    p_value = student_tail((mean - math.log(bar)) / error, len(logs) - 1)
    return SkillGain(
        len(logs), math.exp(mean), math.exp(mean - half), math.exp(mean + half), p_value
    )


def _clock(plan: MeasuredPlan) -> float:
    timing = plan.verdict.timing
    assert timing is not None, "it was timed"
    return math.log(timing.speedup.hi / timing.speedup.lo) / _DEVIATIONS


def _tag(row: MeasuredTask) -> str:
    return codegen(row.backend).schedule_types[0].tag
