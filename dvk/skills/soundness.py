"""Integrity checks of a library: the file and its index, the history against the skills, and each skill's form.

Nothing is executed: trials and use show whether a skill helps.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from dvk.errors import LibraryError
from dvk.skills.events import replay

if TYPE_CHECKING:
    from dvk.records import Skill
    from dvk.skills.library import Library


def faults(library: Library, recipes: Collection[str]) -> list[str]:
    """All errors of `library`, each in a sentence; `recipes` are the names a skill may execute."""
    result = list(library.damage())
    try:
        skills = {skill.name: skill for skill in library.skills()}
    except LibraryError as error:
        return [*result, error.message]
    try:
        past = replay(library.events())
    except LibraryError as error:
        result.append(error.message)
    else:
        result += [
            f"{name}: is there, but no event put it there as it is"
            for name in sorted(skills)
            if past.get(name) != skills[name]
        ]
        result += [
            f"{name}: should be there by the events" for name in sorted(past.keys() - skills.keys())
        ]
    return result + [
        f"{name}: {what}" for name in sorted(skills) for what in _wrong(skills[name], recipes)
    ]


def _wrong(skill: Skill, recipes: Collection[str]) -> list[str]:
    from dvk.skills import markdown

    result = unknown_recipes(skill, recipes)
    try:
        markdown.parse(markdown.render(skill))
    except LibraryError as error:
        result.append(error.message.partition(": ")[2] or error.message)
    return result


def unknown_recipes(skill: Skill, recipes: Collection[str]) -> list[str]:
    """A sentence for each recipe of a skill that is not among `recipes`."""
    result = []
    if skill.recipe is not None and skill.recipe not in recipes:
        result.append(f"no recipe called {skill.recipe}")
    if skill.block is not None:
        unknown = [name for name in skill.block.do.recipes if name not in recipes]
        result += [f"`do` names no recipe: {name}" for name in unknown]
    return result
