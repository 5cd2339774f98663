"""A library grown from a table: candidates mined on half of the tasks, admitted or refused on the other half; both halves in turn.

    each recipe that may lose, where it applies ───────────────▶ all tasks: gain, as below
    table ─▶ one half ─▶ candidates (condition, change) ─▶ other half: gain over all tasks that the condition covers, both arms on
    the same tasks ─▶ lower bound above BAR, false discoveries controlled over all candidates, not what another one says ─▶ skills

Skills that are there get the table's evidence, and leave if it shows that they lose.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dvk.agents import notes
from dvk.agents.evidence.gains import SkillGain, gain_of, is_covered, pooled
from dvk.agents.evidence.mining import candidates
from dvk.composer.plan_space import MEASURED
from dvk.records import Skill
from dvk.records.measured import MeasuredTask
from dvk.records.skill_block import Change, Condition, SkillBlock, Term
from dvk.skills.events import HARM, Event
from dvk.stats.false_discovery import benjamini_hochberg

BAR = 1.02
"""Gain that the lower bound must exceed."""
LEAST = 6
"""Tasks that a gain must come from: Student's bound says how little so few tell."""
RATE = 0.05
"""Share of admitted skills that may be expected to gain less."""
ALIKE = 0.7
"""Share of common tasks from which a candidate with a change of the same kind is another one's double."""
MOST_TESTED = 200
"""Candidates that are tested, the surest of the mined half: each makes the bar higher for all."""
TYPES: tuple[tuple[str, ...], ...] = ((), ("float32",), ("float16", "bfloat16"))
"""Types by which a recipe is tested, besides all together: libraries' products of 16 bits are as fast as products get, others are not."""
TABLE = "table"


@dataclass(frozen=True)
class Grown:
    """One candidate's way.

    Attributes:
        block: what it says.
        gain: on the other half; None if it covers no measured task there.
        why: the reason for the refusal; empty if admitted.
        skill: the library's entry, if admitted.
    """

    block: SkillBlock
    gain: SkillGain | None
    why: str
    skill: Skill | None = None


def halves(rows: Iterable[MeasuredTask]) -> tuple[list[MeasuredTask], list[MeasuredTask]]:
    """Two halves, by a hash of the task: the same for every library and run."""
    parts: tuple[list[MeasuredTask], list[MeasuredTask]] = ([], [])
    for row in rows:
        parts[hashlib.sha256(row.task.id.encode()).digest()[0] % 2].append(row)
    return parts


def grow(
    rows: Sequence[MeasuredTask],
    least: int = LEAST,
    sign: int = 1,
    known: Sequence[SkillBlock] = (),
) -> list[Grown]:
    """Mine and test; admitted candidates first, then by their bounds.

    Args:
        rows: with facts, of one back end and one machine.
        least: see LEAST.
        sign: -1 grows a library of what loses, for experiments.
        known: what the library says already; `revised` gives it the evidence. What does not pay as it says it can be said better.
    """
    bar = BAR if sign > 0 else 1 / BAR
    gains = {block: _pooled(block, rows, bar) for block in each_recipe(rows)}
    for mined, other in (parts := halves(rows), parts[::-1]):
        for block in candidates(mined, max(least // 2, 3), sign)[:MOST_TESTED]:
            gain, before = _pooled(block, other, bar), gains.get(block)
            if not block.when.terms[1:] and len(block.do.recipes) == 1:
                continue  # one of the above, on all tasks
            # Found twice, it is judged by the half that shows less.
            if block not in gains or (before is not None and _p(gain, sign) > _p(before, sign)):
                gains[block] = gain
    # How many tasks there are says nothing of the gain: those with too few are no tests.
    enough = {b: g for b, g in gains.items() if g is not None and g.num_tasks >= least}
    surest = benjamini_hochberg([_p(gain, sign) for gain in enough.values()], RATE)
    kept = dict(zip(enough, surest, strict=True))
    tested = [
        Grown(block, gain, _refused(gain, kept.get(block, False), least, sign))
        for block, gain in gains.items()
    ]
    results: list[Grown] = []
    paying = [block for block in known if _pays(_pooled(block, rows, bar), sign)]
    for one in sorted(tested, key=lambda one: (bool(one.why), -_worth(one, sign))):
        results.append(one if one.why else _unless_double(one, results, rows, paying))
    return results


def each_recipe(rows: Sequence[MeasuredTask]) -> list[SkillBlock]:
    """Each recipe that may lose, wherever it applies and by type: known before anything is measured, so every task is a test of it."""
    applies = {r for row in rows if row.facts for r in row.facts.words.get("applies", ())}
    here = Term("backend", "=", (rows[0].backend,)) if rows else None
    return [
        SkillBlock(Condition((here, *(Term("dtype", "=", types) for _ in types[:1]))), Change((r,)))
        for r in MEASURED
        for types in TYPES
        if r in applies and here is not None
    ]


def _p(gain: SkillGain | None, sign: int) -> float:
    if gain is None:
        return 1.0
    return gain.p_value if sign > 0 else 1 - gain.p_value


def _pooled(block: SkillBlock, rows: Sequence[MeasuredTask], bar: float) -> SkillGain | None:
    return pooled([gain for row in rows if (gain := gain_of(block, row)) is not None], bar)


def _worth(one: Grown, sign: int) -> float:
    """The bound nearest to no gain."""
    if one.gain is None or one.gain.lo is None or one.gain.hi is None:
        return 0.0
    return one.gain.lo if sign > 0 else -one.gain.hi


def _refused(gain: SkillGain | None, kept: bool, least: int, sign: int) -> str:
    if gain is None or gain.num_tasks < least:
        return f"fewer than {least} tasks"
    assert gain.lo is not None and gain.hi is not None, "several tasks have bounds"
    if not _pays(gain, sign):
        return "lower bound too low"
    return "" if kept else "may be a false discovery"


def _pays(gain: SkillGain | None, sign: int) -> bool:
    if gain is None or gain.lo is None or gain.hi is None:
        return False
    return gain.lo > BAR if sign > 0 else gain.hi < 1 / BAR


def _unless_double(
    one: Grown, admitted: Sequence[Grown], rows: Sequence[MeasuredTask], known: Sequence[SkillBlock]
) -> Grown:
    """It, as admitted, unless a better one, or the library, says the same for mostly the same tasks."""
    where = _where(one.block, rows)
    better = {other.block: "another one says so" for other in admitted if other.skill is not None}
    same = {block: "the library says so" for block in known if block.do == one.block.do}
    for other, why in {**better, **same}.items():
        if not _same_kind(one.block, other):
            continue
        there = _where(other, rows)
        if len(where & there) >= ALIKE * len(where):
            return replace(one, why=why)
    assert one.gain is not None, "it was tested"
    return replace(one, skill=skill_of(one.block, one.gain, rows))


def _same_kind(one: SkillBlock, other: SkillBlock) -> bool:
    if one.do.recipes or other.do.recipes:
        return bool(set(one.do.recipes) & set(other.do.recipes))
    return one.do.tag == other.do.tag


def _where(block: SkillBlock, rows: Sequence[MeasuredTask]) -> set[str]:
    return {row.task.id for row in rows if is_covered(block, row)}


def evidence(gain: SkillGain, rows: Sequence[MeasuredTask]) -> dict[str, Any]:
    """A skill's record of a table."""
    default = next((row.default for row in rows if row.default is not None), None)
    return {
        "source": TABLE,
        "machine": default.verdict.machine if default is not None else "",
        "backend": rows[0].backend,
        "tasks": gain.num_tasks,
        "gain": round(gain.gain, 4),
        "lo": None if gain.lo is None else round(gain.lo, 4),
        "hi": None if gain.hi is None else round(gain.hi, 4),
    }


def with_evidence(skill: Skill, entry: dict[str, Any]) -> Skill:
    """The skill with a table's entry in place of an earlier one of the same machine and back end."""
    same = ("source", "machine", "backend")
    kept = [one for one in skill.evidence if any(one.get(key) != entry[key] for key in same)]
    return skill.model_copy(update={"evidence": (*kept, entry)})


def skill_of(block: SkillBlock, gain: SkillGain, rows: Sequence[MeasuredTask]) -> Skill:
    """The library's entry of an admitted candidate."""
    entry = evidence(gain, rows)
    when = Condition(tuple(t for t in block.when.terms if t.fact != "backend"))
    made = notes.Note(name_of(block), notes.line(str(when)), notes.line(str(block.do)))
    seen = (
        f"On {gain.num_tasks} tasks that it was not found on, plans with it took 1 / {gain.gain:.3f} of the default plan's time "
        f"(lower bound {gain.lo:.3f}), on {entry['machine']}."
    )
    text = notes.body(made, evidence=seen, example=f"plan with {block.do}")
    operators = [str(v) for t in block.when.terms if t.fact in ("has", "does") for v in t.values]
    skill = Skill(
        name=made.name,
        description=notes.line(f"{block.do}, when {when}"),
        tags=tuple(dict.fromkeys([*operators, *re.findall(r"[a-z_]{4,}", str(block.do))]))[:6],
        body=text,
        when=str(block.when),
        do=str(block.do),
        provenance={"source": TABLE},
    )
    return with_evidence(skill, entry)


def name_of(block: SkillBlock) -> str:
    """Unique among blocks: the change in words, and a few characters of the block's hash."""
    words = re.sub(r"[^a-z0-9]+", "_", str(block.do).lower().replace("kernels =", "")).strip("_")
    mark = hashlib.sha256(f"{block.when}|{block.do}".encode()).hexdigest()[:6]
    return f"{words[:48].strip('_')}_{mark}"


def revised(
    skills: Iterable[Skill], rows: Sequence[MeasuredTask], least: int = LEAST
) -> tuple[list[Skill], list[Event]]:
    """Skills with the table's evidence, and the retirements: those grown from tables whose upper bound is below 1."""
    changed, retired = [], []
    for skill in skills:
        gain = _pooled(skill.block, rows, 1.0) if skill.block is not None else None
        if gain is None:
            continue
        own = skill.provenance.get("source") == TABLE
        if own and gain.num_tasks >= least and gain.hi is not None and gain.hi < 1.0:
            why = f"loses: {gain.gain:.3f} [{gain.lo:.3f}, {gain.hi:.3f}] over {gain.num_tasks} tasks of a table"
            retired.append(Event("retired", skill.name, data={"why": why, "cause": HARM}))
        else:
            after = with_evidence(skill, evidence(gain, rows))
            changed += [after] if after != skill else []
    return changed, retired


def counts(results: Sequence[Grown]) -> dict[str, int]:
    """Proposed, admitted, and refused by reason."""
    refused = Counter(one.why for one in results if one.why)
    return {
        "proposed": len(results),
        "admitted": sum(one.skill is not None for one in results),
        **{f"refused: {why}": number for why, number in sorted(refused.items())},
    }
