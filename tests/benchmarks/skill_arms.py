"""What a library of skills is worth on a table of measured plans: four arms on the same tasks, no GPU.

    python -m tests.benchmarks.skill_arms TABLE [--grown-on TABLE] [--least 5] [--seeds 3]

A library is grown on a part of the tasks and used on the others, in two ways: a random half (`tasks`), and half of the families, so that
it is used on families that it never saw (`families`; a family is what the kernel with most elements does). A player takes the skills that
evidence selects and plays the measured plan that follows the first of them that the table can answer, else the composer's default.

    right          the seeds with evidence from the tasks that the library is grown on, and the grown skills
    none           no skill: the default
    placebo        as many skills, whose conditions hold for other tasks: irrelevant notes
    shuffled       the same skills, each condition with another one's change; empty if there is but one
    contradicting  a library grown from what loses

Prints one JSON object: for each way and arm the speed over none (geometric mean over tasks, paired, with a 95 % interval over tasks,
seeds averaged), the share of tasks on which a skill was played, and what the selection's precision and recall are. `following` says how
often two contradicting skills are each followed when the composer applies them.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from dvk.agents.evidence import growth
from dvk.agents.evidence.gains import gain_of, pooled, treatments
from dvk.agents.evidence.labels import label, score
from dvk.agents.evidence.standing import chosen, standing
from dvk.composer.capture.batch import trace_quickly
from dvk.composer.codegen.base import codegen
from dvk.composer.ir.errors import CannotCompose
from dvk.composer.plan_change import applied, follows, graph_facts
from dvk.composer.plan_space import PlanSpace
from dvk.pipelines.grow import tables
from dvk.records import Skill
from dvk.records.measured import MeasuredTask
from dvk.records.skill_block import Change, Condition, SkillBlock, Term
from dvk.skills import seeds
from dvk.stats.student_t import student_quantile

MOST = 3
"""Skills chosen for a task."""
ARMS = ("right", "placebo", "shuffled", "contradicting")


def family(row: MeasuredTask) -> str:
    """What the kernel with most elements does; `calls` without kernels."""
    assert row.facts is not None
    kernels = row.facts.kernels.values()
    largest = max(kernels, key=lambda kernel: int(kernel["elements"]), default=None)
    return "calls" if largest is None else str(largest["does"])


def by_tasks(rows: Sequence[MeasuredTask], seed: int) -> tuple[list[MeasuredTask], ...]:
    order = list(rows)
    random.Random(seed).shuffle(order)
    return order[::2], order[1::2]


def by_families(rows: Sequence[MeasuredTask], seed: int) -> tuple[list[MeasuredTask], ...]:
    """Families dealt to two halves of about equal size, the largest first, in an order that the seed changes."""
    counts = Counter(map(family, rows))
    order = sorted(counts, key=lambda name: -counts[name])
    halves: list[list[str]] = [[], []]
    for name in order:
        sizes = [sum(counts[n] for n in half) for half in halves]
        halves[sizes.index(min(sizes))].append(name)
    first = halves[seed % 2]
    return [r for r in rows if family(r) in first], [r for r in rows if family(r) not in first]


def grown(rows: Sequence[MeasuredTask], least: int, sign: int = 1) -> list[Skill]:
    return [one.skill for one in growth.grow(rows, least, sign) if one.skill is not None]


def right_library(rows: Sequence[MeasuredTask], least: int) -> list[Skill]:
    """Seeds whose evidence selects them somewhere, and grown skills."""
    measured, _ = growth.revised(seeds.load(), rows, least)
    machine, backend = rows[0].plans[0].verdict.machine, rows[0].backend
    paying = [
        skill
        for skill in measured
        if (found := standing(skill, machine, backend)) is not None
        and found.num_tasks >= least
        and found.lo > 1.0
    ]
    known = [skill.block for skill in paying if skill.block is not None]
    every = growth.grow(rows, least, known=known)
    return [*paying, *(one.skill for one in every if one.skill is not None)]


def shuffled(skills: Sequence[Skill]) -> list[Skill]:
    """Each condition with the next one's change; nothing of a single skill."""
    if len(skills) < 2:
        return []
    return [
        skill.model_copy(update={"do": other.do})
        for skill, other in zip(skills, [*skills[1:], *skills[:1]], strict=True)
    ]


def play(
    row: MeasuredTask, skills: Sequence[Skill], rng: random.Random
) -> tuple[float, str | None]:
    """Log-speed over the default plan, and the skill that was followed."""
    default = row.default
    assert default is not None and default.verdict.timing is not None
    base = default.verdict.timing
    for skill in skills:
        assert skill.block is not None
        options = [
            plan
            for plan in treatments(skill.block, row)
            if plan.verdict.timing is None or plan.verdict.timing.regime == base.regime
        ]
        if options:
            timing = rng.choice(options).verdict.timing
            value = timing.speedup.value / base.speedup.value if timing is not None else 0.5
            return math.log(value), skill.name
    return 0.0, None


def chosen_for(arm: str, library: Sequence[Skill], row: MeasuredTask) -> list[Skill]:
    assert row.facts is not None and row.default is not None
    facts, machine = row.facts, row.default.verdict.machine
    if arm == "placebo":
        return [s for s in library if s.block is not None and not s.block.when.holds(facts)][:MOST]
    if arm == "contradicting":
        return [s for s in library if s.block is not None and s.block.when.holds(facts)][:MOST]
    return chosen(library, facts, machine, MOST)


def experiment(rows: Sequence[MeasuredTask], split: Any, least: int, count: int) -> dict[str, Any]:
    logs: dict[str, dict[str, list[float]]] = {arm: {} for arm in ARMS}
    played: Counter[str] = Counter()
    scores, libraries, best = [], [], {}
    for seed in range(count):
        train, test = split(rows, seed)
        right, against = right_library(train, least), grown(train, least, -1)
        libraries.append(len(right))
        arms = {
            "right": right,
            "placebo": right,
            "shuffled": shuffled(right),
            "contradicting": against,
        }
        labels, picks = [], []
        for row in test:
            speeds = [
                p.speedup
                for p in row.plans
                if p.verdict.timing is not None
                and p.verdict.timing.regime == row.default.verdict.timing.regime  # type: ignore[union-attr]
            ]
            best[row.task.id] = math.log(max(filter(None, speeds)) / (row.default.speedup or 1.0))  # type: ignore[union-attr]
            for arm, library in arms.items():
                some = chosen_for(arm, library, row)
                log, name = play(row, some, random.Random(f"{seed} {row.task.id}"))
                logs[arm].setdefault(row.task.id, []).append(log)
                played[arm] += name is not None
                if arm == "right":
                    labels.append(label(right, row, MOST))
                    picks.append([s.name for s in some])
        scores.append(asdict(score(labels, picks)))
    number = sum(len(found) for found in logs["right"].values())
    return {
        "skills": libraries,
        "tasks": len(logs["right"]),
        "arms": {
            arm: {**interval([fmean(x) for x in of.values()]), "played": played[arm] / number}
            for arm, of in logs.items()
        },
        "best plan of the table": interval(list(best.values())),
        "selection": scores,
    }


def interval(logs: Sequence[float]) -> dict[str, float]:
    """Geometric mean with a 95 % t-interval."""
    mean = fmean(logs)
    half = student_quantile(0.975, len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
    return {
        name: round(math.exp(value), 4)
        for name, value in (("over none", mean), ("lo", mean - half), ("hi", mean + half))
    }


def following(rows: Sequence[MeasuredTask]) -> dict[str, Any]:
    """Two skills on one kernel that contradict each other, given in turn; the composer applies each."""
    followed = given = 0
    for row in rows:
        device = row.task.device
        try:
            captured = trace_quickly(row.task.model_copy(update={"device": "cpu"}), device)
        except CannotCompose:
            continue
        space = PlanSpace(row.task, captured, row.backend)
        facts, rng = graph_facts(space), random.Random(row.task.id)
        writer, plan = codegen(row.backend), space.default
        tag = writer.schedule_types[0].tag
        for kernel in space.fused(plan.recipes).ordered[:2]:
            options = [one.printed() for one in writer.schedules(kernel, space.target)]
            if len(options) < 2:
                continue
            does = Term("does", "=", (str(facts.kernels[kernel.name]["does"]),))
            length = Term("row_length", "=", (int(kernel.row_length),))
            for printed in rng.sample(options, 2):
                values = tuple(sorted((k, v) for k, v in printed.items() if k != tag))
                change = Change(tag=str(printed.get(tag) or ""), values=values)
                block = SkillBlock(Condition((does, length)), change)
                made = applied(space, plan, block, facts) or plan
                followed += follows(space, made, block, facts)
                given += 1
    return {"given": given, "followed": followed / given if given else None}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", type=Path)
    parser.add_argument(
        "--grown-on", type=Path, help="another table: a library grown on all of it, used on TABLE"
    )
    parser.add_argument("--least", type=int, default=growth.LEAST)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--follow", type=int, default=40, help="tasks for `following`")
    asked = parser.parse_args()
    for rows in tables(asked.table):
        told: dict[str, Any] = {
            "backend": rows[0].backend,
            "machine": rows[0].plans[0].verdict.machine,
            "tasks": len(rows),
            "families": dict(Counter(map(family, rows))),
        }
        if asked.grown_on is not None:
            others = [x for x in tables(asked.grown_on) if x[0].backend == rows[0].backend]
            told["grown on another table"] = [
                experiment(rows, lambda rows, seed, x=x: (x, rows), asked.least, asked.seeds)
                for x in others
            ]
        for name, split in (("split by tasks", by_tasks), ("split by families", by_families)):
            told[name] = experiment(rows, split, asked.least, asked.seeds)
        everything = growth.grow(rows, asked.least)
        told["growth"] = growth.counts(everything)
        told["skills"] = [
            f"{one.block.when}: {one.block.do}: {g.gain:.3f} [{g.lo:.3f}, {g.hi:.3f}] over {g.num_tasks}"
            for one in everything
            if one.skill is not None and (g := one.gain) is not None
        ]
        told["own products"] = _gain(rows, "+own_matmul")
        told["following"] = following(rows[: asked.follow])
        print(json.dumps(told, indent=1))


def _gain(rows: Sequence[MeasuredTask], do: str) -> dict[str, Any] | None:
    from dvk.records.skill_block import parse_block

    block = parse_block("always", do)
    found = pooled([gain for row in rows if (gain := gain_of(block, row)) is not None])
    return asdict(found) if found is not None else None


if __name__ == "__main__":
    main()
