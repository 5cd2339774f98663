"""What the library remembers: a `Skill`."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from dvk.records.record import Record


class Skill(Record):
    """A piece of kernel-writing knowledge."""

    name: str = Field(description="Identity: snake_case.", pattern=r"^[a-z0-9][a-z0-9_]*$")
    description: str = Field(description="One line: what it is and when it pays.")
    scope: str = Field("general", description="`general` or `task_specific/<kind>`.")
    tags: tuple[str, ...] = Field((), description="Three to six words to find it by.")
    body: str = Field(description="Markdown: motivation, key idea, example, pitfalls.")
    recipe: str | None = Field(
        None, description="Name of the composer recipe that executes it, if there is one."
    )
    relations: dict[str, tuple[str, ...]] = Field(
        default_factory=dict, description="refines / conflicts / combines → skill names."
    )
    provenance: dict[str, Any] = Field(
        default_factory=dict, description="Where it came from: seed, import, run, user."
    )
    evidence: tuple[dict[str, Any], ...] = Field(
        (), description="Measured effects: task, machine, speedup with interval."
    )
