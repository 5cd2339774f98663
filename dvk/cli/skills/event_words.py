"""`dvk skills stats|diff|merge|prune|verify|history|restore`: what was learned about a library's skills, and its tending by hand.

Nothing is changed but by `merge`, `prune` and `restore`, each in one transaction that leaves its events.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dvk.config import Config
from dvk.errors import UsageError
from dvk.skills import Library
from dvk.skills.events import CHANGES, Event
from dvk.skills.grooming import Change, groom
from dvk.skills.usage import remembered, tally

if TYPE_CHECKING:
    from dvk.skills.merging import Brought, Difference


def stats(path: Path | None, config: Config) -> dict[str, Any]:
    """Counts, as `Library.stats`, with `usage`: a row a skill and role that was used, those that brought most first."""
    with Library.open(path) as library:
        counts = library.stats()
        if not counts["events"].get("given") and not counts["num_measured"]:
            return {**counts, "usage": []}  # at once, also where there are many skills
        known = remembered(tally(library.events(), config.library), library.skills())
    used = (use for use in known.values() if use.offered or use.given or use.trials)
    rows = sorted(used, key=lambda use: (use.role, -use.total, use.skill))
    return {**counts, "usage": [asdict(use) for use in rows]}


def diff(one: Path, other: Path) -> Difference:
    """What would make the library at `one` into the one at `other`."""
    from dvk.skills.merging import diff as compare

    with Library.open(one) as first, Library.open(other) as second:
        return compare(first, second)


def merge(into: Path, source: Path, replace: bool, config: Config) -> Brought:
    """Bring the skills of `source` into `into`, which is made where there is none; UsageError when they are one file."""
    from dvk.skills.merging import bring

    if into.exists() and source.exists() and into.samefile(source):
        raise UsageError(f"`{into}` and `{source}` are the same library", "name two: INTO is written, FROM is read")
    with Library.open(source) as theirs, Library.open(into, create=True) as mine:
        return bring(mine, theirs, replace=replace, settings=config.library)


def prune(path: Path | None, config: Config, dry: bool) -> tuple[int, Sequence[Change]]:
    """Groom the library; how many skills it had, and what was done, or unless `dry` would be."""
    with Library.open(path) as library:
        return len(library), groom(library, config.library, dry=dry)


def history(path: Path | None, name: str, changes_only: bool) -> Sequence[Event]:
    """All that happened to the skill called `name`; LibraryError when there is none and never was."""
    with Library.open(path) as library:
        events = library.events(name, CHANGES if changes_only else None)
        if not events:
            library.get(name)
        return events


def verify(path: Path | None) -> tuple[int, Sequence[str]]:
    """How many skills there are, and all that is wrong with the library."""
    from dvk.composer import RECIPES
    from dvk.skills.soundness import faults

    with Library.open(path) as library:
        return len(library), faults(library, RECIPES)


def restore(path: Path | None, name: str) -> None:
    """Put a skill back as it was when it was last taken away."""
    with Library.open(path) as library:
        library.restore(name)


def told(event: Event) -> str:
    """An event's data in a line of words."""
    data, parts = event.data, []
    if event.kind == "merged":
        parts.append(f"into {data.get('into', '?')}")
    if event.kind == "given":
        parts += _played(data)
    if event.kind == "changed" and "was" in data and "skill" in data:
        fields = [key for key in data["skill"] if data["skill"][key] != data["was"].get(key)]
        parts.append(", ".join(fields))
    if data.get("why"):
        parts.append(str(data["why"]))
    return "; ".join(parts)


def _played(data: Any) -> list[str]:
    role = data.get("role", "policy")
    parts = [f"{role}, task {data.get('task', '?')}"]
    if role == "selection":
        parts.append(f"chosen {data.get('chosen', 0)} of {data.get('offered', 0)} times")
    if data.get("gain") is not None:
        parts.append(f"gain {data['gain']:+.3f}")
    if data.get("won"):
        parts.append("won")
    if data.get("together"):
        parts.append(f"with {', '.join(data['together'])}")
    return parts
