"""Grooming of a growing library: near-duplicates are merged, skills that stopped helping retired, room is made.

`plan` decides, from facts and without changing anything; `apply` applies, in one transaction, each change an event with its
reason; `groom` is both, for one library, round after round until nothing is left to do. A round merges, retires at most
one skill, the worst, because others may only have suffered from its company, else makes room, and relates. A skill that
another was merged into is not retired in the same round: the evidence of both has yet to be counted together.
Seeds and pinned skills are never dropped for room or merged away; a seed is retired when its own gain says so, a pinned skill never.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from dvk.skills.events import CHANGES, HARM, ROOM, Event
from dvk.skills.likeness import near_duplicates
from dvk.skills.relations import Relations, learned, related
from dvk.skills.usage import HALF_LIFE, LEVEL, Known, SkillUsage, remembered, tally

GRACE = 20
"""Training steps after its admission during which a skill is evicted only if no older one can be."""

if TYPE_CHECKING:
    from dvk.config.library import LibraryConfig
    from dvk.records import Skill
    from dvk.skills.library import Library

LEAST_TRIALS = 12
"""Trials (a task in a step) before measured gains can retire a skill."""
FORGOTTEN = 10
"""Half-lives after which a trial counts less than a thousandth and is ignored."""


@dataclass(frozen=True)
class LibraryChange:
    """One change of a library.

    Attributes:
        kind: retired, merged or changed.
        skill: the skill that goes, or changes.
        why: the reason, as text.
        into: the target of a merge.
        after: the merge's result, or the changed skill.
        cause: of a retirement, one of `events.CAUSES`.
    """

    kind: str
    skill: str
    why: str
    into: str | None = None
    after: Skill | None = None
    cause: str | None = None

    def event(self, step: int) -> Event:
        """A change that the library records."""
        data: dict[str, Any] = {"why": self.why}
        if self.cause is not None:
            data["cause"] = self.cause
        if self.after is not None:
            data["skill" if self.into is None else "kept"] = self.after.model_dump(mode="json")
        if self.into is not None:
            data["into"] = self.into
        return Event(self.kind, self.skill, step, data)


def plan(
    skills: Sequence[Skill],
    usage: Known,
    settings: LibraryConfig,
    step: int,
    relations: Relations | None = None,
) -> list[LibraryChange]:
    """The actions of one grooming round now.

    Args:
        skills: all of the library.
        usage: from `usage.tally`.
        settings: thresholds.
        step: now.
        relations: learned relations of the skills (`relations.learned`).
    """
    state = {skill.name: skill for skill in skills}
    known = {name: usage.get((name, "policy"), SkillUsage(name)) for name in state}
    changes = _merges(state, known, settings)
    changes += _retirement(state, known, settings, {change.into for change in changes}) or _room(
        state, known, settings, step
    )
    return changes + _relations(state, relations or {})


def apply(library: Library, changes: Sequence[LibraryChange], step: int) -> None:
    """Apply `changes`, all or none; LibraryError if another process has changed their skills."""
    library.record_all(change.event(step) for change in changes)


def groom(
    library: Library, settings: LibraryConfig, step: int | None = None, *, dry: bool = False
) -> list[LibraryChange]:
    """Plan until nothing is left to do and, unless `dry`, apply; `step` is by default that of the last event."""
    if dry:
        return _groomed(library, settings, step)[0]
    with (
        library.writing()
    ):  # a plan must not overwrite changes that another process makes meanwhile
        done, now = _groomed(library, settings, step)
        apply(library, done, now)
    return done


def is_seed(skill: Skill) -> bool:
    """Whether it came with dvk."""
    return bool(skill.provenance.get("source") == "seed")


def _groomed(
    library: Library, settings: LibraryConfig, step: int | None
) -> tuple[list[LibraryChange], int]:
    """Actions until nothing is left, and the step at which they apply."""
    skills, changed = library.list(), library.events(kinds=CHANGES)
    since = None if step is None else int(max(0.0, step - FORGOTTEN * HALF_LIFE))
    events = sorted(
        [*changed, *library.events(kinds=("given",), since_step=since)],
        key=lambda event: event.number,
    )
    now = max((event.step for event in events), default=0) if step is None else step
    done: list[LibraryChange] = []
    while changes := plan(skills, remembered(tally(events, now), skills), settings, now):
        done += changes
        events += [change.event(now) for change in changes]
        skills = _after(skills, changes)
    done += _relations({skill.name: skill for skill in skills}, learned(skills, events))
    return done, now


def _after(skills: Sequence[Skill], changes: Sequence[LibraryChange]) -> list[Skill]:
    """The skills after `changes`."""
    state = {skill.name: skill for skill in skills}
    for change in changes:
        if change.kind != "changed":
            del state[change.skill]
        if change.after is not None:
            state[change.after.name] = change.after
    return [state[name] for name in sorted(state)]


def _merges(
    state: dict[str, Skill], known: Mapping[str, SkillUsage], settings: LibraryConfig
) -> list[LibraryChange]:
    changes = []
    for share, one, other in near_duplicates(state, settings.merge_similarity):
        if (
            one not in state
            or other not in state
            or "restored" in (known[one].came, known[other].came)
        ):  # a user restored it: both stay
            continue
        stays, goes = sorted(
            (one, other),
            key=lambda name: (_kept(state[name], settings), *_proved(known[name])),
            reverse=True,
        )
        if _kept(state[goes], settings):
            continue
        after = _joined(state[stays], state[goes])
        changes.append(
            LibraryChange(
                "merged", goes, f"{share:.0%} of its words are those of {stays}", stays, after
            )
        )
        state[stays] = after
        del state[goes]
        for name, skill in list(state.items()):
            if any(goes in names for names in skill.relations.values()):
                state[name] = _renamed(skill, goes, stays)
                changes.append(
                    LibraryChange("changed", name, f"{goes} is now {stays}", after=state[name])
                )
    return changes


def _retirement(
    state: dict[str, Skill],
    known: Mapping[str, SkillUsage],
    settings: LibraryConfig,
    spared: set[str | None],
) -> list[LibraryChange]:
    """The skill with the most harm, if one is clearly harmful."""
    judged = (
        known[name] for name in sorted(state) if name not in spared and name not in settings.pinned
    )
    harmful = [
        use for use in judged if use.trials >= LEAST_TRIALS and use.hi is not None and use.hi < 0
    ]
    if not harmful:
        return []
    use = min(harmful, key=lambda use: use.hi or 0.0)
    del state[use.skill]
    ends = f"{LEVEL:.0%} interval {use.lo:+.3f} to {use.hi:+.3f}"
    return [
        LibraryChange(
            "retired",
            use.skill,
            f"stopped helping: gain {use.gain:+.3f} ({ends}) over {use.trials} trials",
            cause=HARM,
        )
    ]


def _room(
    state: dict[str, Skill], known: Mapping[str, SkillUsage], settings: LibraryConfig, step: int
) -> list[LibraryChange]:
    """Skills that may leave, the least useful first; among equals the longest unused. Newcomers last."""
    free = [name for name in state if not _kept(state[name], settings)]

    def order(name: str) -> tuple[bool, float, int, str]:
        use = known[name]
        return (
            step - use.born < GRACE,
            use.total,
            -1 if use.last_used is None else use.last_used,
            name,
        )

    changes = []
    for name in sorted(free, key=order)[: max(0, len(state) - settings.max_skills)]:
        use = known[name]
        used = "never used" if use.last_used is None else f"last used in step {use.last_used}"
        brought = f"{use.total:+.3f} over {use.trials} trials, {used}"
        changes.append(
            LibraryChange(
                "retired",
                name,
                f"made room: the library is full and it brought least ({brought})",
                cause=ROOM,
            )
        )
        del state[name]
    return changes


def _relations(state: Mapping[str, Skill], relations: Relations) -> list[LibraryChange]:
    changes = []
    for name, skill in state.items():
        new = {
            kind: [other for other in names if other in state]
            for kind, names in relations.get(name, {}).items()
        }
        after = related(skill, new)
        if after != skill:
            added = [
                f"{kind} {other}"
                for kind, names in new.items()
                for other in names
                if other not in skill.relations.get(kind, ())
            ]
            changes.append(
                LibraryChange("changed", name, f"learned: {', '.join(added)}", after=after)
            )
    return changes


def _kept(skill: Skill, settings: LibraryConfig) -> bool:
    return is_seed(skill) or skill.name in settings.pinned


def _proved(use: SkillUsage) -> tuple[bool, float, int]:
    """Sort key, larger for better evidence: the lower end of the gain's interval, then trials."""
    return use.lo is not None, use.lo if use.lo is not None else 0.0, use.trials


def _joined(stays: Skill, goes: Skill) -> Skill:
    """The skill with the other's evidence and relations added."""
    evidence = stays.evidence + tuple(
        entry for entry in goes.evidence if entry not in stays.evidence
    )
    joined = related(stays.model_copy(update={"evidence": evidence}), goes.relations)
    return _renamed(joined, goes.name, None)


def _renamed(skill: Skill, old: str, new: str | None) -> Skill:
    """Its relations with `old` redirected to `new`; dropped if that is itself or None."""

    def others(kinds: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
        result = {}
        for kind, names in kinds.items():
            renamed = (new if name == old else name for name in names)
            result[kind] = tuple(
                dict.fromkeys(name for name in renamed if name is not None and name != skill.name)
            )
        return {kind: names for kind, names in result.items() if names}

    from dvk.skills.rows import LEARNED

    update: dict[str, Any] = {"relations": others(skill.relations)}
    if LEARNED in skill.provenance:
        noted = {kind: list(names) for kind, names in others(skill.provenance[LEARNED]).items()}
        update["provenance"] = {**skill.provenance, LEARNED: noted}
    return skill.model_copy(update=update)


def usage_table(library: Library) -> list[dict[str, Any]]:
    """A row for each skill and role that was offered, given or tried, the most useful first; empty without records."""
    counts = library.stats()
    if not counts["events"].get("given") and not counts["num_measured"]:
        return []  # one query, also for many skills
    known = remembered(tally(library.events()), library.skills())
    used = (use for use in known.values() if use.offered or use.given or use.trials)
    return [asdict(use) for use in sorted(used, key=lambda use: (use.role, -use.total, use.skill))]
