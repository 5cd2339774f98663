"""What a skill's evidence says on a machine: number of tasks, gain, interval; ranking by it.

An entry of a skill's evidence with `source` "table", "trial" or "search" sums up tasks on one machine. A gain of few tasks is shrunk
towards none: n tasks count n / (n + PRIOR).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dvk.composer.plan_change import machine_words
from dvk.records import Skill
from dvk.records.skill_block import GraphFacts

PRIOR = 4.0
"""Tasks without a gain that every skill is taken to have been seen on."""
WORTH = 1.01
"""Gain from which a skill is worth its place."""
ANONYMOUS = ("4x", "2x", "8x", "nvidia", "amd", "intel", "80gb", "hbm3")
"""Words of a device's name that do not tell it from others."""


@dataclass(frozen=True)
class Standing:
    """A skill's gain on one machine.

    Attributes:
        num_tasks: that it was measured on.
        gain, lo, hi: ratios; the ends are 0 and infinity if unknown.
        machine: fingerprint.
    """

    num_tasks: int
    gain: float
    lo: float
    hi: float
    machine: str

    @property
    def shrunken(self) -> float:
        """The gain, less sure of few tasks."""
        return math.exp(math.log(self.gain) * self.num_tasks / (self.num_tasks + PRIOR))

    @property
    def device(self) -> str:
        """The device in a word or two."""
        return " ".join(device_words(self.machine)) or "another machine"

    def text(self) -> str:
        """As a selection prompt shows it: `14 tasks x1.09 [1.04, 1.15]`."""
        many = f"{self.num_tasks} task{'s' if self.num_tasks != 1 else ''}"
        ends = f" [{self.lo:.2f}, {self.hi:.2f}]" if math.isfinite(self.hi) else ""
        return f"{many} x{self.gain:.2f}{ends}"


def standing(skill: Skill, machine: str = "", backend: str = "") -> Standing | None:
    """The evidence of the machine with most tasks; None without any.

    Args:
        machine: fingerprint; evidence of other devices does not count. Empty takes any.
        backend: evidence of others does not count. Empty takes any.
    """
    entries = [
        one
        for entry in skill.evidence
        if (not backend or entry.get("backend") in (None, backend))
        and (one := _entry(entry)) is not None
        and (not machine or same_device(one.machine, machine))
    ]
    return max(entries, key=lambda one: one.num_tasks, default=None)


def same_device(one: str, other: str) -> bool:
    """Whether two fingerprints name the same kind of device."""
    return device_words(one) == device_words(other)


def device_words(fingerprint: str) -> tuple[str, ...]:
    """The words of a device's name that tell it from others."""
    return tuple(word for word in machine_words(fingerprint) if word not in ANONYMOUS)


def _entry(entry: Mapping[str, Any]) -> Standing | None:
    if entry.get("source") not in ("table", "trial", "search") or not entry.get("gain"):
        return None
    tasks = entry.get("tasks")
    number = tasks if isinstance(tasks, int) else len(tasks or ())
    lo, hi = entry.get("lo"), entry.get("hi")
    return Standing(
        max(number, 1),
        float(entry["gain"]),
        0.0 if lo is None else float(lo),
        math.inf if hi is None else float(hi),
        str(entry.get("machine", "")),
    )


def relevant(skills: Iterable[Skill], facts: GraphFacts) -> list[Skill]:
    """The skills whose condition holds, and those without one, in their order."""
    return [skill for skill in skills if skill.block is None or skill.block.when.holds(facts)]


def ranked(skills: Iterable[Skill], machine: str, backend: str) -> list[Skill]:
    """By shrunken gain on a machine, the best first; those without evidence in their order, as gains of none."""

    def worth(skill: Skill) -> float:
        record = standing(skill, machine, backend)
        return record.shrunken if record is not None else 1.0

    return sorted(skills, key=lambda skill: -worth(skill))


def chosen(skills: Iterable[Skill], facts: GraphFacts, machine: str, most: int) -> list[Skill]:
    """The skills that evidence selects for a task: those whose shrunken gain is worth it; of contradicting ones the better."""
    backend = facts.words.get("backend", ("",))[0]
    result: list[Skill] = []
    with_block = [skill for skill in relevant(skills, facts) if skill.block is not None]
    for skill in ranked(with_block, machine, backend):
        record = standing(skill, machine, backend)
        if record is None or record.shrunken <= WORTH or record.lo <= 1.0 or len(result) == most:
            continue
        if not any(contradict(skill, other) for other in result):
            result.append(skill)
    return result


def contradict(one: Skill, other: Skill) -> bool:
    """Whether no plan is as both say."""
    if one.block is None or other.block is None:
        return False
    a, b = one.block.do, other.block.do
    if set(a.added) & set(b.removed) or set(b.added) & set(a.removed):
        return True
    if a.recipes or b.recipes or not _overlap(one, other):
        return False
    values = dict(b.values)
    return bool(a.tag and b.tag and a.tag != b.tag) or any(
        key in values and values[key] != value for key, value in a.values
    )


def _overlap(one: Skill, other: Skill) -> bool:
    """Whether their conditions may hold for one kernel: not if they name different kinds of work."""
    assert one.block is not None and other.block is not None
    for term in one.block.when.on_kernels:
        for also in other.block.when.on_kernels:
            words = term.fact == also.fact and term.comparison == also.comparison == "="
            if words and not set(term.values) & set(also.values):
                return False
    return True
