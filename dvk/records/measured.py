"""Measured plans: what the judge found of many plans of one task, kept so that nothing needs to be measured twice.

A table is a JSONL file, gzipped or not, with one `MeasuredTask` a line. It is complete in itself: a task's text is in it.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from dvk.errors import UsageError
from dvk.records.candidate import BackendName, Candidate
from dvk.records.record import Record
from dvk.records.skill_block import GraphFacts
from dvk.records.task import Task
from dvk.records.verdict import Status, Verdict

KEPT = {
    "status": True,
    "tier": True,
    "stage": True,
    "error": True,
    "timing": True,
    "untimed_reason": True,
    "machine": True,
    "contract": True,
    "coverage": True,
}
"""What a table keeps of a verdict."""
ERROR_CHARS = 200


class MeasuredPlan(Record):
    """One plan of the composer and its verdict."""

    kind: str = Field(
        "",
        description="Why it was measured: default, structure, algorithm, random; or the run it is from.",
    )
    recipes: tuple[str, ...] = Field(description="Recipes that it uses, in order.")
    schedule: dict[str, Any] = Field(description="Printed schedule of each kernel, by kernel name.")
    text: str = Field(
        "", description="The plan in words, as a model writes it; empty if it was not worded."
    )
    verdict: Verdict = Field(description="Slimmed: outcome and times.")

    @property
    def key(self) -> str:
        """Equal for equal plans of one task."""
        return plan_key(self.recipes, self.schedule)

    @property
    def is_known(self) -> bool:
        """Whether its verdict says what it is worth: it was timed, or it was wrong."""
        return bool(self.speedup) or self.verdict.status is not Status.OK

    @property
    def speedup(self) -> float | None:
        """Over eager; None if it was wrong or not timed."""
        return self.verdict.timing.speedup.value if self.verdict.timing is not None else None


class MeasuredTask(Record):
    """One task with all of its measured plans."""

    task: Task = Field(description="With its text and its inputs' shapes.")
    backend: BackendName = Field(description="What the kernels are written in.")
    question: str = Field(
        "", description="What a model is asked: the listing and its choices; empty if not worded."
    )
    signature: tuple[str, ...] = Field(
        (), description="Operators of its graph in order; empty if not worded."
    )
    groups: dict[str, str] = Field(
        default_factory=dict, description="Level, category and split, by dimension."
    )
    dvk: str = Field("", description="Version that composed the plans.")
    protocol: int = Field(0, description="Version of the judge's protocol.")
    facts: GraphFacts | None = Field(
        None, description="What conditions of skills are about; null in older tables."
    )
    plans: tuple[MeasuredPlan, ...] = Field(description="The composer's default first.")
    left: int = Field(0, ge=0, description="Plans without a verdict: the budget ended first.")

    @property
    def answers(self) -> tuple[str, ...]:
        """Each plan with words whose verdict says what it is worth, once."""
        return tuple(dict.fromkeys(p.text for p in self.plans if p.text and p.is_known))

    @property
    def default(self) -> MeasuredPlan | None:
        """The composer's own plan."""
        return next((plan for plan in self.plans if plan.kind == "default"), None)

    @property
    def best(self) -> MeasuredPlan | None:
        """The fastest plan; None if none was right and timed."""
        timed = [plan for plan in self.plans if plan.speedup is not None]
        return max(timed, key=lambda plan: plan.speedup or 0.0, default=None)


def plan_key(recipes: Iterable[str], schedule: Mapping[str, Any]) -> str:
    """Canonical text of a plan."""
    return json.dumps([sorted(recipes), schedule], sort_keys=True)


def measured(candidate: Candidate, verdict: Verdict, kind: str) -> MeasuredPlan:
    """A composed candidate's row."""
    kept = verdict.model_dump(include=KEPT)
    if kept["error"]:
        kept["error"] = kept["error"][:ERROR_CHARS]
    return MeasuredPlan(
        kind=kind,
        recipes=candidate.recipes,
        schedule=candidate.schedule,
        verdict=Verdict.model_validate(kept),
    )


def read_table(path: Path) -> Iterator[MeasuredTask]:
    """The tasks of a table.

    Raises:
        UsageError: it cannot be read, is no table, is damaged or holds no task.
    """
    hint, read = "make one with `dvk measure`", 0
    try:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as stream:
            for line in stream:
                if line.strip():
                    yield MeasuredTask.model_validate_json(line)
                    read += 1
    except (ValueError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        what = (
            f"is no table of measured plans after {read} tasks"
            if read
            else "is no table of measured plans"
        )
        raise UsageError(f"`{path}` {what}: {_reason(error)}", hint) from None
    except OSError as error:
        problem = f"cannot read the table `{path}`: {error.strerror or error}"
        raise UsageError(problem, hint) from None
    if not read:
        raise UsageError(f"`{path}` is no table of measured plans: it holds no task", hint)


def _reason(error: Exception) -> str:
    """One line."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        return f"`{place}`: {first['msg']}" if place else str(first["msg"])
    return str(error).splitlines()[0]


def is_table(path: Path) -> bool:
    """Whether a file is a table; false for one that cannot be read."""
    try:
        next(read_table(path), None)
    except UsageError:
        return False
    return True


def write_table(path: Path, rows: Iterable[MeasuredTask]) -> None:
    """Write a table; equal rows give equal bytes."""
    lines = "".join(row.model_dump_json(exclude_defaults=True) + "\n" for row in rows)
    aside = path.with_name(f".{path.name}.new")
    aside.write_bytes(
        gzip.compress(lines.encode(), mtime=0) if path.suffix == ".gz" else lines.encode()
    )
    aside.replace(path)
