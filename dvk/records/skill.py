"""What the library remembers: a `Skill`."""

from __future__ import annotations

from typing import Any

from pydantic import Field, ValidationInfo, field_validator

from dvk.records.record import Record
from dvk.records.skill_block import SkillBlock, parse_block, parse_change, parse_condition


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
    when: str | None = Field(
        None, description="Checkable condition of `do`: see `records.skill_block`."
    )
    do: str | None = Field(
        None,
        description="Change of the composer's plan that it advises, where `when` holds.",
        validate_default=True,
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

    @field_validator("when")
    @classmethod
    def _condition(cls, text: str | None) -> str | None:
        return None if text is None else str(parse_condition(text))

    @field_validator("do")
    @classmethod
    def _change(cls, text: str | None, info: ValidationInfo) -> str | None:
        if "when" in info.data and (text is None) != (info.data["when"] is None):
            raise ValueError("`when` and `do` belong together; give both or neither")
        return None if text is None else str(parse_change(text))

    @property
    def block(self) -> SkillBlock | None:
        """The condition and the change, parsed; None if it has only prose."""
        if self.when is None or self.do is None:
            return None
        return parse_block(self.when, self.do)
