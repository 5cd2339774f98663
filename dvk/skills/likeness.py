"""Similarity of two skills: Jaccard's index of their words, independent of order and corpus."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import combinations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dvk.records import Skill

_WORD = re.compile(r"[^\W_]+")


def words(skill: Skill) -> frozenset[str]:
    """The distinct words of name, description and body; `num_warps` are two."""
    return frozenset(
        word.lower() for word in _WORD.findall(f"{skill.name} {skill.description} {skill.body}")
    )


def likeness(one: frozenset[str], other: frozenset[str]) -> float:
    """|A ∩ B| / |A ∪ B|, 0 to 1; 0 for two without words."""
    return len(one & other) / len(one | other) if one or other else 0.0


def near_duplicates(skills: Mapping[str, Skill], least: float) -> list[tuple[float, str, str]]:
    """Pairs with the same recipe, or none, of at least this similarity: the most similar first, then by name.

    Two sets of very different size cannot be similar, which skips most of the comparisons.
    """
    result = []
    said = {name: words(skill) for name, skill in skills.items()}
    for one, other in combinations(sorted(skills), 2):
        small, large = sorted((len(said[one]), len(said[other])))
        if (
            skills[one].recipe == skills[other].recipe
            and small >= least * large
            and (share := likeness(said[one], said[other])) >= least
        ):
            result.append((share, one, other))
    return sorted(result, key=lambda pair: (-pair[0], pair[1:]))
