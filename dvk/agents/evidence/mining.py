"""Candidates for skills from a table: changes of plan that were measured, each with conditions under which it gains.

A change is what one measured plan has and the default has not: recipes, or the kind of a schedule with none, one or two of its values. For
each change the condition grows by the term that raises the lower bound of the gain most, over the tasks where it holds.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from dvk.agents.evidence.gains import structure
from dvk.composer.codegen.base import codegen
from dvk.records.measured import MeasuredPlan, MeasuredTask
from dvk.records.skill_block import Change, Condition, GraphFacts, SkillBlock, Term

MOST_TERMS = 3
"""Terms of a condition besides the back end."""
STEP = 0.003
"""What a further term must add to the lower bound, in logarithms."""
SHARE = 0.8
"""A term that this share of the tasks or more fulfils says nothing."""
Z = 1.7
"""Standard errors below the mean: about a one-sided 95 % bound."""


@dataclass(frozen=True)
class Observed:
    """One measured plan with a change: where, what differs, and its gain.

    Attributes:
        task: number of the task.
        log: logarithm of the gain over the default.
        kernels: facts of the kernels that differ; those of all if recipes do.
    """

    task: int
    log: float
    kernels: tuple[Mapping[str, str | int], ...]


def candidates(rows: Sequence[MeasuredTask], least: int, sign: int = 1) -> list[SkillBlock]:
    """Conditions with changes that gain on these tasks, as far as their bounds tell; the surest first.

    Args:
        rows: with facts, of one back end.
        least: tasks that a candidate must hold for.
        sign: -1 for those that lose, for experiments.
    """
    if not rows:
        return []
    backend = Term("backend", "=", (rows[0].backend,))
    scores: dict[SkillBlock, float] = {}
    for change, seen in observed(rows).items():
        if len({one.task for one in seen}) < least:
            continue
        for terms, bound in _conditions(rows, seen, least, sign):
            if bound > math.log(1.01):
                block = SkillBlock(Condition((backend, *terms)), change)
                scores[block] = max(bound, scores.get(block, bound))
    return sorted(scores, key=lambda block: (-scores[block], str(block.do), str(block.when)))


def observed(rows: Sequence[MeasuredTask]) -> dict[Change, list[Observed]]:
    """Every change that was measured alone, with its observations."""
    result: dict[Change, list[Observed]] = defaultdict(list)
    for number, row in enumerate(rows):
        default, facts = row.default, row.facts
        if default is None or default.verdict.timing is None or facts is None:
            continue
        base = default.verdict.timing
        for plan in row.plans:
            timing = plan.verdict.timing
            if plan is default or timing is None or timing.regime != base.regime:
                continue
            log = math.log(timing.speedup.value / base.speedup.value)
            for change, kernels in _changes(plan, default, facts, row.backend):
                result[change].append(Observed(number, log, kernels))
    return result


def _changes(
    plan: MeasuredPlan, default: MeasuredPlan, facts: GraphFacts, backend: str
) -> Iterator[tuple[Change, tuple[Mapping[str, str | int], ...]]]:
    before, after = structure(default.recipes), structure(plan.recipes)
    if before != after:
        if plan.kind == "structure":
            change = Change(tuple(sorted(after - before)), tuple(sorted(before - after)))
            yield change, tuple(facts.kernels.values())
        return
    differ = [k for k in plan.schedule if plan.schedule[k] != default.schedule.get(k)]
    if not differ or any(k not in facts.kernels for k in differ):
        return
    if len({repr(plan.schedule[k]) for k in differ}) > 1:
        return
    tag = codegen(backend).schedule_types[0].tag
    kernels = tuple(facts.kernels[k] for k in differ)
    for change in _said(plan.schedule[differ[0]], default.schedule[differ[0]], tag):
        yield change, kernels


def _said(printed: Mapping[str, Any], before: Mapping[str, Any], tag: str) -> Iterator[Change]:
    """The schedule's kind alone if it differs, and with one or two values."""
    kind = str(printed.get(tag, "") or "")
    values = [(k, v) for k, v in sorted(printed.items()) if k != tag and v not in ("", None)]
    if kind and kind != before.get(tag):
        yield Change(tag=kind)
    for count in (1, 2):
        for some in combinations(values, count):
            if any(before.get(key) != value for key, value in some) or kind != before.get(tag):
                yield Change(tag=kind, values=some)


def _conditions(
    rows: Sequence[MeasuredTask], seen: Sequence[Observed], least: int, sign: int
) -> Iterator[tuple[tuple[Term, ...], float]]:
    """The condition after each added term, with the lower bound of its gain."""
    terms = list(_terms(rows, seen, least))
    holds = {term: _where(term, rows, seen) for term in terms}
    chosen: tuple[Term, ...] = ()
    inside = frozenset(range(len(seen)))
    bound = _bound(seen, inside, least, sign)
    yield (), bound
    for _ in range(MOST_TERMS):
        scored = [
            (_bound(seen, inside & holds[term], least, sign), str(term), term) for term in terms
        ]
        if not scored:
            return
        best, _, term = max(scored, key=lambda one: one[:2])
        if best < bound + STEP:
            return
        bound, inside, chosen = best, inside & holds[term], (*chosen, term)
        yield chosen, bound


def _bound(seen: Sequence[Observed], inside: Iterable[int], least: int, sign: int) -> float:
    """Lower bound of the mean over tasks."""
    sums: dict[int, list[float]] = {}
    for number in inside:
        one = seen[number]
        entry = sums.setdefault(one.task, [0.0, 0.0])
        entry[0] += one.log
        entry[1] += 1.0
    count = len(sums)
    if count < max(least, 2):
        return -math.inf
    means = [total / number for total, number in sums.values()]
    mean = sum(means) / count
    variance = sum((x - mean) ** 2 for x in means) / (count - 1)
    return sign * mean - Z * math.sqrt(variance / count)


def _where(term: Term, rows: Sequence[MeasuredTask], seen: Sequence[Observed]) -> frozenset[int]:
    condition, found = Condition((term,)), set()
    of_kernels = bool(condition.on_kernels)
    for number, one in enumerate(seen):
        facts = rows[one.task].facts
        assert facts is not None, "rows have facts"
        if of_kernels:
            fits = [condition.covers(kernel) for kernel in one.kernels]
            holds = bool(fits) and all(fits)
        else:
            holds = condition.of_task(facts)
        if holds:
            found.add(number)
    return frozenset(found)


def _terms(rows: Sequence[MeasuredTask], seen: Sequence[Observed], least: int) -> Iterator[Term]:
    """Terms that part the observations: words that occur often enough, powers of four between the numbers."""
    tasks = {one.task for one in seen}
    words: dict[tuple[str, str], set[int]] = defaultdict(set)
    numbers: dict[str, set[int]] = defaultdict(set)
    for one in seen:
        facts = rows[one.task].facts
        assert facts is not None, "rows have facts"
        for fact in ("has", "dtype", "applies"):
            for word in facts.words.get(fact, ()):
                words[fact, word].add(one.task)
        for kernel in one.kernels:
            for fact, value in kernel.items():
                if isinstance(value, int):
                    numbers[fact].add(value)
                else:
                    words[fact, value].add(one.task)
        numbers["kernels"].add(facts.numbers["kernels"])
    for (fact, word), where in words.items():
        if least <= len(where) <= SHARE * len(tasks) or fact in ("does", "family"):
            yield Term(fact, "=", (word,))
    for fact, values in numbers.items():
        low, high = min(values), max(values)
        edges = [4**k for k in range(1, 15)] if fact != "kernels" else [2, 3, 4, 6, 8, 12, 24]
        for edge in edges:
            if low < edge <= high:
                yield Term(fact, ">=", (edge,))
                yield Term(fact, "<", (edge,))
