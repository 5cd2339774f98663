"""`dvk skills grow` and `dvk skills worth`: a library and a table of measured plans.

grow    table → facts → skills mined on half of the tasks, tested on the other → admitted ones into the library, losing ones out of it
worth   table → each skill's gain; how well evidence, and the order of the library's search, choose
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dvk.agents.evidence import growth
from dvk.agents.evidence.facts import with_facts
from dvk.agents.evidence.gains import gain_of, pooled
from dvk.agents.evidence.labels import label, score
from dvk.agents.evidence.standing import chosen, ranked, relevant
from dvk.config import Config
from dvk.errors import UsageError
from dvk.records import Skill
from dvk.records.measured import MeasuredTask, read_table
from dvk.skills import Library
from dvk.skills.events import Event


def tables(path: Path) -> list[list[MeasuredTask]]:
    """A table's tasks with facts, by back end and machine, those with a timed default plan.

    Raises:
        UsageError: it is no table, or holds nothing that was timed.
    """
    groups: dict[tuple[str, str], list[MeasuredTask]] = defaultdict(list)
    for row in with_facts(list(read_table(path))):
        if row.default is not None and row.default.verdict.timing is not None:
            groups[row.backend, row.default.verdict.machine].append(row)
    if not groups:
        raise UsageError(f"`{path}` holds no timed default plan", "make one with `dvk measure`")
    return list(groups.values())


def grow(path: Path, library: Path | None, least: int, *, dry: bool = False) -> dict[str, Any]:
    """Grow a library from a table; returns the report.

    Args:
        library: None takes the default one.
        least: tasks that a gain must come from.
        dry: only report.

    Raises:
        UsageError: the table cannot be used.
        LibraryError: the library cannot be read or written.
    """
    reports = []
    groups = tables(path)
    with Library.open(library, create=library is not None) as skills, skills.writing():
        for rows in groups:
            there = skills.list()
            known = [s.block for s in there if s.block is not None and not _is_grown(s)]
            results = growth.grow(rows, least, known=known)
            changed, retired = growth.revised(there, rows, least)
            new = [one.skill for one in results if one.skill is not None]
            if not dry:
                skills.record_all([*_events(there, new, changed), *retired])
            reports.append(
                {
                    "backend": rows[0].backend,
                    "machine": rows[0].plans[0].verdict.machine,
                    "tasks": len(rows),
                    **growth.counts(results),
                    "measured": len(changed),
                    "retired": {event.skill: event.data["why"] for event in retired},
                    "skills": [_said(skill) for skill in new],
                    "evidence": [
                        {"name": skill.name, **entry}
                        for skill in {s.name: s for s in (*there, *changed, *new)}.values()
                        for entry in skill.evidence
                        if _is_of(entry, rows)
                    ],
                }
            )
    return {"table": str(path), "applied": not dry, "growth": reports}


def _events(there: Sequence[Skill], new: Sequence[Skill], changed: Sequence[Skill]) -> list[Event]:
    known = {skill.name for skill in there}
    admitted = [skill for skill in new if skill.name not in known]
    again = [skill for skill in new if skill.name in known]
    why = {"why": "measured in a table of plans"}
    return [
        *(
            Event("admitted", s.name, data={**why, "skill": s.model_dump(mode="json")})
            for s in admitted
        ),
        *(
            Event("changed", s.name, data={**why, "skill": s.model_dump(mode="json")})
            for s in {**{s.name: s for s in changed}, **{s.name: s for s in again}}.values()
        ),
    ]


def _is_grown(skill: Skill) -> bool:
    return skill.provenance.get("source") == growth.TABLE


def _is_of(entry: Mapping[str, Any], rows: Sequence[MeasuredTask]) -> bool:
    """Whether an entry of evidence is a table's of this machine and back end."""
    here = (growth.TABLE, rows[0].plans[0].verdict.machine, rows[0].backend)
    return tuple(entry.get(key) for key in ("source", "machine", "backend")) == here


def _said(skill: Skill) -> dict[str, Any]:
    return {
        "name": skill.name,
        "when": skill.when,
        "do": skill.do,
        **{key: skill.evidence[-1][key] for key in ("tasks", "gain", "lo", "hi")},
    }


def worth(path: Path, library: Path | None, config: Config) -> dict[str, Any]:
    """What a table says of a library's skills, and of ways to choose among them.

    Raises:
        UsageError, LibraryError: see `grow`.
    """
    with Library.open(library) as opened:
        skills = [skill for skill in opened.skills() if skill.block is not None]
    return {"table": str(path), "groups": [_worth(rows, skills, config) for rows in tables(path)]}


def _worth(rows: Sequence[MeasuredTask], skills: Sequence[Skill], config: Config) -> dict[str, Any]:
    most = config.agents.num_chosen
    machine, backend = rows[0].plans[0].verdict.machine, rows[0].backend
    gains = []
    for skill in skills:
        assert skill.block is not None, "they have blocks"
        gain = pooled([g for row in rows if (g := gain_of(skill.block, row)) is not None])
        if gain is not None:
            gains.append({"name": skill.name, "do": skill.do, **asdict(gain)})
    labels, by_evidence, by_order = [], [], []
    for row in rows:
        assert row.facts is not None, "rows have facts"
        offered = ranked(relevant(skills, row.facts), machine, backend)
        labels.append(label(offered, row, most))
        by_evidence.append([s.name for s in chosen(offered, row.facts, machine, most)])
        by_order.append([s.name for s in relevant(skills, row.facts)[:most]])
    return {
        "backend": backend,
        "machine": machine,
        "tasks": len(rows),
        "skills": sorted(gains, key=lambda one: -one["gain"]),
        "selection": {
            "evidence": asdict(score(labels, by_evidence)),
            "condition alone": asdict(score(labels, by_order)),
        },
    }
