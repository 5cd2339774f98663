"""Two libraries: their differences, and how the skills of one are brought into another.

Events stay in their library: steps of different runs cannot be compared. The results of a skill's use go along as
evidence. So a run's library starts as a copy of another and, if its user wants it, is brought back at the end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dvk.skills.events import Event
from dvk.skills.relations import related
from dvk.skills.usage import LIBRARY, USE, SkillUsage, as_evidence, tally

if TYPE_CHECKING:
    from dvk.records import Skill
    from dvk.skills.library import Library


@dataclass(frozen=True)
class LibraryDiff:
    """From one library to another, by name."""

    added: list[str]
    removed: list[str]
    changed: dict[str, list[str]]
    """Name → fields that differ."""


@dataclass
class MergeResult:
    """Results of `bring`, by name."""

    added: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    updated: list[str] = field(default_factory=list)
    """Same text, more evidence or relations."""
    kept: list[str] = field(default_factory=list)
    """Another text under the same name, left unchanged."""


def diff(one: Library, other: Library) -> LibraryDiff:
    """The changes that make `one` into `other`."""
    before, after = ({skill.name: skill for skill in library.skills()} for library in (one, other))
    changed = {}
    for name in sorted(before.keys() & after.keys()):
        fields = [
            key
            for key in type(before[name]).model_fields
            if getattr(before[name], key) != getattr(after[name], key)
        ]
        if fields:
            changed[name] = fields
    return LibraryDiff(
        sorted(after.keys() - before.keys()), sorted(before.keys() - after.keys()), changed
    )


def bring(into: Library, source: Library, *, replace: bool = False, step: int = 0) -> MergeResult:
    """Bring the skills of `source` into `into`, in one transaction.

    Args:
        into: the target.
        source: only read.
        replace: if both have a skill of one name with different texts, take the source's. Evidence is about a text: it
            joins that of the same text, and comes with a new one.
        step: for the events.
    """
    label = f"{source.path.resolve().parent.name}/{source.path.name}"
    known = tally(source.events())
    identity = source.identity()
    theirs = [
        _told(skill, known.get((skill.name, "policy")), label, identity)
        for skill in source.skills()
    ]
    with into.writing():  # changes that another process makes meanwhile must not be lost
        return _bring(into, theirs, label, replace, step)


def _bring(into: Library, theirs: list[Skill], label: str, replace: bool, step: int) -> MergeResult:
    from dvk.skills.rows import digest

    done, news = MergeResult(), []
    there = {skill.name: skill for skill in into.skills()}
    for skill in theirs:
        mine = there.get(skill.name)
        if mine is None:
            news.append(_event("added", skill, label, step))
            done.added.append(skill.name)
        elif digest(mine) == digest(skill):
            both = _joined(mine, skill)
            if both != mine:
                news.append(_event("changed", both, label, step))
                done.updated.append(skill.name)
        elif replace:
            news.append(_event("changed", skill, label, step))
            done.replaced.append(skill.name)
        else:
            done.kept.append(skill.name)
    into.record_all(news)
    return done


def _event(kind: str, skill: Skill, origin: str, step: int) -> Event:
    return Event(
        kind, skill.name, step, {"skill": skill.model_dump(mode="json"), "why": f"from {origin}"}
    )


def _told(skill: Skill, use: SkillUsage | None, label: str, identity: str) -> Skill:
    """The skill with its use in the source among its evidence, replacing earlier evidence from there."""
    if use is None or not use.given:
        return skill
    rest = [entry for entry in skill.evidence if _reporter(entry) != identity]
    return skill.model_copy(update={"evidence": (*rest, as_evidence(use, label, identity))})


def _reporter(entry: dict[str, Any]) -> str | None:
    """The library whose use it sums up: its identity, in entries of earlier versions its label; None for other entries."""
    return entry.get(LIBRARY, entry[USE]) if USE in entry else None


def _joined(mine: Skill, theirs: Skill) -> Skill:
    """Both skills' evidence and learned relations merged; of a library's reports the newer one."""
    from dvk.skills.rows import LEARNED

    newer = {_reporter(entry) for entry in theirs.evidence} - {None}
    rest = [entry for entry in mine.evidence if _reporter(entry) not in newer]
    new = [entry for entry in theirs.evidence if entry not in rest]
    joined = (
        mine
        if _same(mine.evidence, (*rest, *new))
        else mine.model_copy(update={"evidence": (*rest, *new)})
    )
    return related(joined, theirs.provenance.get(LEARNED, {}))


def _same(one: tuple[dict[str, Any], ...], other: tuple[dict[str, Any], ...]) -> bool:
    """Whether the entries are equal in any order."""
    return len(one) == len(other) and all(entry in other for entry in one)
