"""The benchmark suite of `data/tasks/suite`: its files, their signatures, and its index.

python -m tests.tasks.suite         # write the index again after a file has changed
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from dvk.composer.capture.batch import capture_many
from dvk.composer.capture.export import CannotCompose, CapturedGraph
from dvk.records import Task, content_hash
from dvk.taskgen import signature_of
from tests.tasks.shrink import TASKS

FOLDER = TASKS / "suite"
INDEX = FOLDER / "index.json"
COUNTS = {
    "development": {"single": 60, "fusion": 60, "network": 24},
    "heldout": {"single": 30, "fusion": 30, "network": 12},
}
"""Files of each half and level."""
PLAIN = {("matmul",), ("conv",), ("conv_transpose",), ("pool",)}
"""Sequences of which a suite needs many tasks, in other forms and sizes; all others occur once."""


@dataclass(frozen=True)
class Entry:
    """A line of the index.

    Attributes:
        signature: families of operators in order, as the generator's split sees them; None where the module cannot be captured.
    """

    name: str
    half: str
    level: str
    signature: tuple[str, ...] | None

    @property
    def path(self) -> Path:
        """Its file."""
        return FOLDER / self.half / self.level / f"{self.name}.py"


def entries() -> list[Entry]:
    """Read the index."""
    rows = json.loads(INDEX.read_text())
    return [
        Entry(
            r["name"],
            r["half"],
            r["level"],
            None if r["signature"] is None else tuple(r["signature"]),
        )
        for r in rows
    ]


def files() -> list[Path]:
    """All task files, by half, level and name."""
    return sorted(FOLDER.glob("*/*/*.py"))


def large() -> list[Path]:
    """The task files at the sizes of public suites, by half and name."""
    return sorted((TASKS / "large").glob("*/*.py"))


def captured() -> dict[Path, CapturedGraph | CannotCompose]:
    """Every file's graph at its native sizes, without memory for its tensors."""
    paths = files()
    tasks = [
        Task(id=content_hash(text), name=path.stem, source=text, entry="Model", kind="module")
        for path in paths
        for text in [path.read_text()]
    ]
    return {paths[index]: found for index, found in capture_many(tasks)}


def rows(found: dict[Path, CapturedGraph | CannotCompose]) -> list[dict[str, object]]:
    """The index of what was captured."""
    return [
        {
            "name": path.stem,
            "half": path.parts[-3],
            "level": path.parts[-2],
            "signature": list(signature_of(one.graph.signature()))
            if isinstance(one, CapturedGraph)
            else None,
        }
        for path, one in found.items()
    ]


if __name__ == "__main__":
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows(captured()))
    INDEX.write_text(f"[\n{lines}\n]\n")
