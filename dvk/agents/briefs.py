"""What a search puts before the policy beside the task: earlier versions, what to do with them, what was learnt so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dvk.records import Turn

Operation = Literal["improve", "combine", "contrast", "change"]
"""`improve` the last version shown, the others being examples; `combine` all into one; `contrast` them in words before writing;
`change` one thing in the only one."""


@dataclass(frozen=True)
class Brief:
    """One task of writing."""

    operation: Operation
    shown: tuple[Turn, ...]
    """Judged or malformed attempts, in the order they are shown."""
    lessons: str = ""
    """What the search has learnt so far, in words."""
    change: str = ""
    """Of operation `change`: which one."""


@dataclass(frozen=True)
class ReviewAdvice:
    """What a reviewer said of one version."""

    problem: str
    """What is wrong with it, or what keeps it slow."""
    change: str
    """Exactly one."""
