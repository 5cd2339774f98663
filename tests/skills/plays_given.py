"""Plays of skills with given gains."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dvk.records import Skill
from dvk.skills.events import Event

Make = Callable[..., Skill]


def play(skills: Sequence[str], gain: float, step: int) -> list[Event]:
    others = {name: [other for other in skills if other != name] for name in skills}
    return [
        Event(
            "given",
            name,
            step,
            {"role": "policy", "task": "t", "gain": gain, "together": others[name]},
        )
        for name in skills
    ]
