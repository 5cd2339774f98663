"""What the methods of a library return."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from dvk.records import Skill


@dataclass(frozen=True)
class Hit:
    """One skill that a search found."""

    name: str
    score: float
    """Minus SQLite's weighted bm25(), of `ask` times the share of the question: higher is better, positive, comparable within one
    answer only."""
    description: str
    snippet: str
    """The passage of the body with the most hits, each marked «so»; empty when not asked for."""
    row: Mapping[str, Any] = field(repr=False, compare=False)

    @property
    def tags(self) -> Sequence[str]:
        """The skill's tags; LibraryError if another tool has damaged it."""
        try:
            return list(json.loads(self.row["tags"]))
        except (TypeError, ValueError):
            return self.skill.tags  # raises the error that names the skill

    @cached_property
    def skill(self) -> Skill:
        """The whole record."""
        from dvk.skills.rows import to_skill

        return to_skill(self.row)


class Added(NamedTuple):
    """Results of `add_all`, by skill name."""

    added: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    """Names that existed already and were left unchanged: as requested, or because the content is equal."""
