"""Events of a library: each kind's effect on the set of skills, and how it is replayed and undone.

Events are append-only facts. One that changes the set carries the whole skill as JSON, after (`skill`) and before
(`was`), so that a library is its own history replayed from nothing: `replay(library.events())` is `library.list()`.

    added     skill                     by a person, an import, the seeds; why
    admitted  skill                     by training, after a trial; gain, lo, …
    changed   skill, was                replaced, related or measured; why
    removed   was                       by a person, or the seeds; why
    retired   was, cause                by grooming; why
    merged    was, into, kept, kept_was by grooming; why
    restored  skill                     after being taken away
    refused                             proposed and not admitted; why, and the proposal
    given                               used in play; see `plays`

No SQL and, until a `Skill` is requested, no pydantic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dvk.records import Skill

PUTS = ("added", "admitted", "changed", "restored")
"""Kinds after which the skill is in the library as `skill` says, if they carry one."""
TAKES = ("removed", "retired", "merged")
"""Kinds after which it is not."""
NOTES = ("refused", "given")
"""Kinds that change nothing."""
CHANGES = (*PUTS, *TAKES)
KINDS = (*CHANGES, *NOTES)
CAUSES = HARM, ROOM = ("harm", "room")
"""Reason for a retirement: harm, or lack of room; events of earlier versions have none."""


@dataclass(frozen=True)
class Event:
    """One event of one skill.

    Attributes:
        kind: one of KINDS.
        skill: its name.
        step: training step, 0 outside training.
        data: further facts, JSON; by kind as above.
        time: UTC, to the second, ISO 8601; the library fills it in.
        number: the library's count from 1, which is the order of events; 0 before it is recorded.
    """

    kind: str
    skill: str
    step: int = 0
    data: Mapping[str, Any] = field(default_factory=dict)
    time: str = ""
    number: int = 0


def effect(event: Event) -> dict[str, Mapping[str, Any] | None]:
    """Effects of the event: name → the whole skill as JSON, None if it is gone."""
    data = event.data
    if event.kind in PUTS:
        return {event.skill: data["skill"]} if "skill" in data else {}
    if event.kind in TAKES:
        result: dict[str, Mapping[str, Any] | None] = {event.skill: None}
        if "kept" in data:
            result[data["into"]] = data["kept"]
        return result
    return {}


def before(event: Event) -> dict[str, Mapping[str, Any] | None]:
    """The skills that `effect` names before it: undoing the event restores them."""
    data = event.data
    result = {name: data.get("was") for name in effect(event)}
    if "kept" in data:
        result[data["into"]] = data.get("kept_was")
    return result


def replay(events: Iterable[Event], start: Iterable[Skill] = ()) -> dict[str, Skill]:
    """The skills, by name in order of name, that `events` leave of `start`."""
    from dvk.records import Skill

    state: dict[str, Mapping[str, Any]] = {
        skill.name: skill.model_dump(mode="json") for skill in start
    }
    for event in events:
        for name, skill in effect(event).items():
            if skill is None:
                state.pop(name, None)
            else:
                state[name] = skill
    return {name: Skill.model_validate(state[name]) for name in sorted(state)}
