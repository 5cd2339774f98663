"""Families of the composer's texts, and a sample that covers every family.

A family is a template and a variant: back end, the algorithms of the text's kernels, and the kind of task. If
one text of a family is right, all count as right; a family without an executed text does not.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

from dvk.records import BackendName, content_hash


@dataclass(frozen=True)
class FamilyText:
    """One text; those of tasks can be executed, those of mutants belong to families that are."""

    id: str
    """Hash of task and text: equal for several conversations that end with the same text."""
    family: str
    backend: BackendName
    task: str
    level: str
    seed: int | None
    """`generate.make(seed, level, profile)` gives its task; None: it is a mutant's."""
    code: str
    """Empty for a mutant's, of which there are many."""
    offsets: tuple[tuple[str, int], ...] = ()
    """Offsets of its listing's indices (`offsets`)."""
    layouts: str = ""
    """`layouts` of its listing; empty for a mutant's."""


def family_of(row: dict[str, Any]) -> str | None:
    """The family of an example on disk; None for one that is no rendering."""
    quality, task = row.get("quality", {}), row["task"]
    if row.get("origin") != "composer" or row.get("verified") or "family" not in quality:
        return None
    return f"{row['backend']} {quality['family']} in {task.get('level')}/{task.get('category')}"


def layouts(listing: str) -> str:
    """Hash of a listing's values: names, types, shapes and layouts, not the operators; more may follow it."""
    lines = takewhile(lambda line: not line.startswith("return "), listing.splitlines())
    return content_hash(*(line.partition(" = ")[0] for line in lines))


def texts(paths: Iterable[Path]) -> Iterator[FamilyText]:
    """The distinct texts of rendered examples, in their order."""
    seen: set[str] = set()
    for path in paths:
        for line in path.open("rb"):
            row = json.loads(line)
            family = family_of(row)
            if family is None:
                continue
            id_ = content_hash(row["task"]["id"], row["backend"], row["code"])
            if id_ not in seen:
                seen.add(id_)
                moved = tuple(sorted(row["quality"].get("offsets", {}).items()))
                seed = row["quality"].get("seed")
                code, laid = (
                    (row["code"], layouts(row["messages"][0]["content"]))
                    if seed is not None
                    else ("", "")
                )
                yield FamilyText(
                    id_,
                    family,
                    row["backend"],
                    row["task"]["id"],
                    row["task"]["level"],
                    seed,
                    code,
                    moved,
                    laid,
                )


def sample(found: Sequence[FamilyText], count: int, seed: int) -> list[FamilyText]:
    """`count` texts, one or more of each of the largest families that tasks have; all of them if there are fewer.

    Rare families are filled first: the allowance of each is doubled until there are enough. If there are more families
    than `count`, the smallest are left out with their texts: thousands of families have a text or two each. Texts of
    one task are taken together, because they share its reference, its inputs and its expected outputs.
    """
    by_task: dict[tuple[str, BackendName], list[FamilyText]] = {}
    sizes = Counter(text.family for text in found)
    found = [text for text in found if text.seed is not None]
    largest = {
        family
        for family, _ in Counter({text.family: sizes[text.family] for text in found}).most_common(
            count
        )
    }
    found = [text for text in found if text.family in largest]
    for text in found:
        by_task.setdefault((text.task, text.backend), []).append(text)
    order = sorted(by_task, key=lambda key: content_hash(str(seed), *key))
    taken: dict[str, FamilyText] = {}
    numbers: Counter[str] = Counter()
    allowance = 1
    while len(taken) < min(count, len(found)):
        for key in order:
            if len(taken) >= count:
                break
            for text in by_task[key]:
                if text.id not in taken and numbers[text.family] < allowance:
                    taken[text.id] = text
                    numbers[text.family] += 1
        allowance *= 2
    return list(taken.values())
