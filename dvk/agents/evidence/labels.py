"""The right choice among offered skills, by a table; how good a selection is against it.

A skill's label on a task is its gain there. The right choice is every skill whose lower bound is above WORTH, the best first; none is the
null scheme. A skill without a label, because the table does not hold its plan, is neither right nor wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dvk.agents.dialects import Dialect
from dvk.agents.evidence.gains import TaskGain, gain_of, is_covered
from dvk.agents.evidence.standing import WORTH
from dvk.agents.task_context import TaskContext
from dvk.backbone import Conversation
from dvk.config import AgentsConfig
from dvk.records import Skill
from dvk.records.measured import MeasuredTask


@dataclass(frozen=True)
class SelectionLabel:
    """What a table says of the skills offered for one task.

    Attributes:
        gains: by skill; None if unknown.
        right: names of those that pay, the best first.
    """

    gains: Mapping[str, float | None]
    right: tuple[str, ...]


def label(skills: Iterable[Skill], row: MeasuredTask, most: int) -> SelectionLabel:
    """The labels of the skills offered for a task, and the right choice of at most `most`.

    A skill whose condition does not hold, or that changes nothing there, gains nothing: 1.
    """
    gains: dict[str, float | None] = {}
    paying: list[tuple[float, str]] = []
    for skill in skills:
        gain = _gain(skill, row)
        gains[skill.name] = math.exp(gain.log) if isinstance(gain, TaskGain) else gain
        if isinstance(gain, TaskGain) and gain.lo > WORTH:
            paying.append((-gain.log, skill.name))
    return SelectionLabel(gains, tuple(name for _, name in sorted(paying)[:most]))


def _gain(skill: Skill, row: MeasuredTask) -> TaskGain | float | None:
    if skill.block is None or row.facts is None:
        return None
    if not is_covered(skill.block, row):
        return 1.0
    return gain_of(skill.block, row)


def selection_example(
    dialect: Dialect,
    subject: TaskContext,
    skills: Sequence[Skill],
    row: MeasuredTask,
    settings: AgentsConfig,
) -> tuple[Conversation, str] | None:
    """A selection question with its right answer; None where the table labels none of the skills.

    Args:
        skills: those offered, in the order of the question.
    """
    labels = label(skills, row, settings.num_chosen)
    if not any(gain is not None for gain in labels.gains.values()):
        return None
    reasons = {name: f"x{labels.gains[name]:.2f} here" for name in labels.right}
    names = [skill.name for skill in skills]
    return (
        dialect.selection(subject, skills, settings),
        dialect.write_selection(names, reasons, ""),
    )


@dataclass(frozen=True)
class SelectionScore:
    """How good selections are against a table.

    Attributes:
        precision: share of chosen skills with a label that pay; None if none was chosen.
        recall: share of tasks with a paying skill on which one was chosen; None without such tasks.
        tasks: with at least one label.
        paying: of them, with a skill that pays.
        chosen: skills chosen, with a label.
        unknown: skills chosen, without one.
    """

    precision: float | None
    recall: float | None
    tasks: int
    paying: int
    chosen: int
    unknown: int


def score(labels: Sequence[SelectionLabel], chosen: Sequence[Sequence[str]]) -> SelectionScore:
    """Compare selections with labels, task by task."""
    right = wrong = unknown = paying = hit = tasks = 0
    for found, names in zip(labels, chosen, strict=True):
        known = {name for name in names if found.gains.get(name) is not None}
        good = {name for name in known if (found.gains[name] or 0.0) > WORTH}
        right, wrong = right + len(good), wrong + len(known) - len(good)
        unknown += len(names) - len(known)
        tasks += any(gain is not None for gain in found.gains.values())
        paying += bool(found.right)
        hit += bool(found.right and good)
    return SelectionScore(
        right / (right + wrong) if right + wrong else None,
        hit / paying if paying else None,
        tasks,
        paying,
        right + wrong,
        unknown,
    )
