"""Learned relations between skills: from plays with both, and from the skills in use when a skill was written.

Two skills combine when their gain together is clearly more than the sum of both, and conflict when it is clearly less.
With up to three skills a scheme the third's effect must be separated from the pair's: the gains of all plays are fitted
with one effect a skill, by least squares; a pair's excess over that is its relation. If a skill was never given
without the other, the pair cannot be determined and is left out.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean
from typing import TYPE_CHECKING

from dvk.skills.events import Event
from dvk.skills.likeness import likeness, words
from dvk.skills.rows import LEARNED
from dvk.skills.usage import aliases
from dvk.stats.student_t import student_quantile

LEAST_JOINT = 10
"""Plays of two skills together before their interaction is estimated."""
JOINT_LEVEL = 0.99
"""Confidence of the interval around the interaction of two skills; high, since many pairs are tested."""
JOINT_EFFECT = 0.05
"""Log-speedup beyond the sum, either way, from which two skills combine or conflict: 5 %."""
REFINES = 0.35
"""Share of words in common from which a skill refines one that its author was given; 2 % of all pairs of seeds share as much."""

if TYPE_CHECKING:
    from dvk.records import Skill

Relations = Mapping[str, Mapping[str, Sequence[str]]]
"""Skill → kind → names."""
_OPPOSITE = {"combines": "conflicts", "conflicts": "combines"}


@dataclass(frozen=True)
class JointEffect:
    """Joint effect of two skills beyond the sum of both.

    Attributes:
        one, other: their names, in order.
        plays: with both.
        excess: log-speedup beyond the sum.
        lo, hi: ends of its interval.
    """

    one: str
    other: str
    plays: int
    excess: float
    lo: float
    hi: float

    def kind(self, effect: float) -> str | None:
        """combines, conflicts, or None if neither is clear."""
        if self.lo > 0 and self.excess >= effect:
            return "combines"
        return "conflicts" if self.hi < 0 and self.excess <= -effect else None


def learned(skills: Iterable[Skill], events: Sequence[Event]) -> dict[str, dict[str, list[str]]]:
    """All learned relations of `skills`: skill → kind → names."""
    there = {skill.name: skill for skill in skills}
    relations: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for pair in joints(events):
        kind = pair.kind(JOINT_EFFECT)
        if kind is not None and pair.one in there and pair.other in there:
            relations[pair.one][kind].append(pair.other)
            relations[pair.other][kind].append(pair.one)
    for name, skill in there.items():
        for parent in skill.provenance.get("given", ()):
            if (
                parent in there
                and parent != name
                and likeness(words(skill), words(there[parent])) >= REFINES
            ):
                relations[name]["refines"].append(parent)
    return {name: dict(kinds) for name, kinds in relations.items()}


def joints(events: Sequence[Event]) -> list[JointEffect]:
    """Pairs that were given together often enough and whose excess can be determined, by name.

    Plays are y = Σ effect(skill) + excess · [both] + error, one a step, task and set of skills. By Frisch and Waugh the excess is
    z̃·y / z̃·z̃, where z̃ is what the skills' own columns leave of [both], and errs by √(s² / z̃·z̃).
    """
    plays = _plays(events)
    pairs = Counter(pair for _, given in plays for pair in combinations(sorted(given), 2))
    asked = sorted(pair for pair, times in pairs.items() if times >= LEAST_JOINT)
    if not asked:
        return []
    import numpy as np

    column = {
        name: number
        for number, name in enumerate(sorted({name for _, given in plays for name in given}))
    }
    effects = np.zeros((len(plays), len(column)))
    for row, (_, given) in enumerate(plays):
        effects[row, [column[name] for name in given]] = 1.0
    gains = np.array([gain for gain, _ in plays])
    left, sizes, _ = np.linalg.svd(effects, full_matrices=False)
    basis = left[:, sizes > 1e-9 * sizes[0]]
    rest, degrees = gains - basis @ (basis.T @ gains), len(plays) - basis.shape[1] - 1
    result = []
    for one, other in asked:
        both = effects[:, column[one]] * effects[:, column[other]]
        own = both - basis @ (basis.T @ both)
        size = float(own @ own)
        if degrees < 2 or size < 1e-6 * float(both @ both):
            continue
        excess = float(own @ rest) / size
        error = math.sqrt(max(0.0, float(np.sum((rest - excess * own) ** 2))) / degrees / size)
        half = student_quantile(0.5 + JOINT_LEVEL / 2, degrees) * error
        result.append(
            JointEffect(one, other, pairs[one, other], excess, excess - half, excess + half)
        )
    return result


def related(skill: Skill, new: Mapping[str, Sequence[str]]) -> Skill:
    """`skill` with its learned relations, marked as such; the author's relations stay, also against learned ones."""
    relations = {kind: list(names) for kind, names in skill.relations.items()}
    noted = {kind: list(names) for kind, names in skill.provenance.get(LEARNED, {}).items()}
    for kind, names in new.items():
        against = _OPPOSITE.get(kind, "")
        for name in names:
            if name == skill.name or name in relations.get(kind, ()):
                continue
            if name in noted.get(against, ()):  # learned earlier, from less data
                noted[against].remove(name)
                relations[against].remove(name)
            if name not in relations.get(against, ()):
                relations.setdefault(kind, []).append(name)
                noted.setdefault(kind, []).append(name)
    if noted == skill.provenance.get(LEARNED, {}):
        return skill
    kept = {
        kind: tuple(names)
        for kind, names in relations.items()
        if names or kind in skill.relations and not skill.relations[kind]
    }
    noted = {kind: names for kind, names in noted.items() if names}
    return skill.model_copy(
        update={"relations": kept, "provenance": {**skill.provenance, LEARNED: noted}}
    )


def _plays(events: Sequence[Event]) -> list[tuple[float, frozenset[str]]]:
    """Gains of sets of skills, one a step, task and set; under the current names of merged skills."""
    becomes = aliases(events)
    gains: dict[tuple[int, str, frozenset[str]], list[float]] = defaultdict(list)
    for event in events:
        if (
            event.kind == "given"
            and event.data.get("role", "policy") == "policy"
            and event.data.get("gain") is not None
        ):
            names = frozenset(
                becomes.get(name) or name for name in (event.skill, *event.data.get("together", ()))
            )
            gains[event.step, event.data.get("task", ""), names].append(event.data["gain"])
    return [(fmean(values), names) for (_, _, names), values in gains.items()]
