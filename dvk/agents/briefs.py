"""Material that a search adds to the prompt: earlier versions, the operation to apply, findings so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dvk.records import Turn

Operation = Literal["improve", "combine", "contrast", "change"]
"""`improve` the last version shown, the others being examples; `combine` all into one; `contrast` them in words before writing;
`change` one thing in the only one."""


@dataclass(frozen=True)
class Brief:
    """One writing task for the model."""

    operation: Operation
    shown: tuple[Turn, ...]
    """Judged or malformed attempts, in the order they are shown."""
    lessons: str = ""
    """Findings of the search so far, as text."""
    change: str = ""
    """The change to make, for operation `change`."""


@dataclass(frozen=True)
class ReviewAdvice:
    """A reviewer's comment on one version."""

    problem: str
    """The defect, or the cause of the slowness."""
    change: str
    """Exactly one."""
