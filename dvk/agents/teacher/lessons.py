"""Lessons: a captured task as conversations of the policy with their right answers, many for one task.

    plain        the task → the composer's own text, or now and then another variant's
    with skills  the task and notes → the text that follows the notes that apply, or the composer's own if none does

The pipeline executes and times texts; a lesson names the plan of its answer.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from dvk import nanolang
from dvk.agents import notes
from dvk.agents.task_context import TaskContext
from dvk.agents.teacher.advice import Advice, advice_for, follow, format_note, parse_note
from dvk.composer import Plan
from dvk.nanolang import PlanVariant
from dvk.nanolang.text.variants import described
from dvk.records import Skill
from dvk.skills import seeds

OWN_SHARE = 0.6
"""Share of plain answers that are the composer's own plan, so that the likeliest answer is the usual one."""
IDLE_SHARE = 0.25
"""Share of lessons with skills whose notes do not apply to the task: the usual answer is right."""
SEED_SHARE = 0.4
"""Share of notes that were not made for the task: from the seeds, of which a third say what no plan of the composer's does."""
MAX_NOTES = 3


@dataclass(frozen=True)
class Lesson:
    """One conversation of one turn."""

    skills: tuple[Skill, ...]
    variant: PlanVariant
    follows: bool = False
    """Whether a note changed the answer."""
    advices: tuple[Advice, ...] = ()

    @property
    def family(self) -> str:
        """Template and variant: the strata of an execution sample."""
        return (
            " + ".join(sorted({algorithm[0] for algorithm in self.variant.kernels.values()}))
            or "left to torch"
        )


def lessons(
    subject: TaskContext, rng: random.Random, count: int, *, with_skills: float = 0.5
) -> list[Lesson]:
    """Up to `count` lessons of one task.

    Args:
        subject: with a captured graph.
        rng: all choices are drawn from it.
        count: how many; fewer for a task with few variants.
        with_skills: share of lessons with notes.
    """
    assert subject.captured is not None
    graph, backend = subject.captured, subject.backend
    own = described(graph, Plan(nanolang.structures(graph, backend)[0]), backend)

    @cache
    def others() -> list[PlanVariant]:
        return nanolang.variants(graph, backend, rng, max(3, count))

    result = []
    for _ in range(count):
        if rng.random() >= with_skills:
            result.append(Lesson((), own if rng.random() < OWN_SHARE else rng.choice(others())))
        else:
            result.append(_with_skills(subject, rng, own, others))
    return result


def _with_skills(
    subject: TaskContext,
    rng: random.Random,
    own: PlanVariant,
    others: Callable[[], list[PlanVariant]],
) -> Lesson:
    captured, backend = subject.captured, subject.backend
    assert captured is not None
    told: list[tuple[Skill, Advice | None]] = []
    if rng.random() >= IDLE_SHARE:
        advice = advise(subject, rng.choice(others()), rng)
        if advice is not None and not advice.unseen:
            told.append((skill(format_note(advice, rng)), advice))
    while len(told) < MAX_NOTES and (not told or rng.random() < 0.4):
        stray, means = (
            rng.choice(_seeds()) if rng.random() < SEED_SHARE else _said(elsewhere(rng), rng)
        )
        if (means is None or not means.unseen) and stray not in (known for known, _ in told):
            told.insert(rng.randrange(len(told) + 1), (stray, means))
    advices = tuple(means for _, means in told if means is not None)
    plan = follow(captured, advices, backend)
    # Notes that say nothing about the task change nothing: the mixture is that of a lesson without notes.
    usual = own if rng.random() < OWN_SHARE else rng.choice(others())
    answer = usual if plan is None else described(captured, plan, backend)
    return Lesson(tuple(known for known, _ in told), answer, plan is not None, advices)


def _said(advice: Advice, rng: random.Random) -> tuple[Skill, Advice]:
    return skill(format_note(advice, rng)), advice


@cache
def _seeds() -> list[tuple[Skill, Advice | None]]:
    """The seeds with their meaning; None: nothing that changes a plan."""
    return [(known, parse_note(notes.note(known))) for known in seeds.load()]


def advise(subject: TaskContext, variant: PlanVariant, rng: random.Random) -> Advice | None:
    """Advice that leads to one of a variant's choices; None if no choice has a name."""
    from dvk.agents.teacher import phrases

    assert subject.captured is not None
    structures = [tag for tag in variant.tags if tag in phrases.PLANS]
    facts = nanolang.facts(subject.captured, variant.plan, subject.backend)
    if structures and (not facts or rng.random() < 0.5):
        whole = next(iter(facts.values()), None)
        condition = (
            {"elements": str(whole["elements"])} if whole is not None and rng.random() < 0.5 else {}
        )
        return Advice(condition, structure=rng.choice(structures))
    if not facts:
        return None
    kernel = rng.choice(list(facts))
    algorithm, *numbers = variant.kernels[kernel]
    return advice_for(facts[kernel], algorithm, numbers, rng)


def elsewhere(rng: random.Random) -> Advice:
    """Random advice: it may or may not apply to the current task."""
    from dvk.agents.teacher import phrases

    kinds = {
        "pointwise": ("flat", "tiled", "grid stride", "serial", "lines", "pieces"),
        "softmax": (
            "registers",
            "looped",
            "looped online",
            "split",
            "split online",
            "online",
            "recomputed",
        ),
        "logsumexp": ("registers", "looped", "looped online", "split", "online"),
        "product": ("tiled", "tiled threefold", "tiled split", "tiled threefold split", "skinny"),
        "norm": (
            "registers",
            "looped",
            "looped welford",
            "looped moments",
            "registers moments",
            "moments",
            "split",
            "blocks",
        ),
        "reduction": (
            "registers",
            "looped",
            "split",
            "blocked",
            "strided looped",
            "blocks",
            "serial",
        ),
    }
    does = rng.choice(list(kinds))
    condition = {"does": does}
    if does != "pointwise" and rng.random() < 0.6:
        condition["row length"] = rng.choice(("short", "medium", "long"))
    elif rng.random() < 0.4:
        condition["elements"] = rng.choice(
            [value for key, value in phrases.CONDITIONS if key == "elements"]
        )
    return Advice(condition, rng.choice(kinds[does]))


def skill(note: notes.Note) -> Skill:
    """A library entry that says no more than the note."""
    body = notes.body(note, evidence="Taught by the composer.", example="")
    return Skill(
        name=note.name.lower().replace("-", "_"),
        description=notes.line(f"{note.do}; {note.when}"),
        body=body,
    )
