"""Training conversations for the three roles from a task's executed attempts; every figure was measured.

policy       the fastest right text; after one attempt or two, with the judge's real feedback in between, the fastest untried one
with skills  each right text that a note leads to, and what to try after it
selection    among notes on the task and others: those that made it faster, or if none did mostly the best one that was as fast
summary      a conversation that became faster → the note behind its fastest text; none if it was given that note
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

from dvk import nanolang
from dvk.agents import policy
from dvk.agents.dialects import Dialect
from dvk.agents.task_context import TaskContext
from dvk.agents.teacher.advice import follow, format_note
from dvk.agents.teacher.lessons import advise, elsewhere, skill
from dvk.agents.turns import speedup
from dvk.composer import Plan
from dvk.config import AgentsConfig
from dvk.nanolang.text.variants import described
from dvk.records import Candidate, Skill, Status, Trace, Turn, Verdict

WORTH = 1.03
"""A note is chosen when its text is so many times faster than the usual one: what a search's interval resolves."""
CLEARLY = 1.2
"""…and so many times faster than an unusual one for its note to be learned from that: the same bound as `rollout` uses for summaries."""
NUM_OFFERED = 12
"""Notes that a selection chooses from."""
MOST_STRAYS = 200
"""Notes drawn for a list at most: those that apply to its task and were not measured are left out."""
NUM_SELECTIONS = 2
"""Selections a task, each among other notes."""
NONE_SHARE = 0.3
"""Share of selections of nothing if no note made the task faster but one was as fast. With a share of 1 (the usual text is seldom
beaten) a nano selected nothing for any of 200 held-out tasks: skills were neither given nor learned from."""
NUM_LONGER = 6
"""Conversations of three attempts a task: as many as of two, of which each attempt begins one."""
NUM_LEARNT = 6
"""Summaries a task…"""
IDLE_SHARE = 0.15
"""…share of those that were given the note to be learned, and so learn nothing: with a larger share a model proposes nothing at all…"""
GIVEN_SHARE = 0.5
"""…and of the others that were given another note."""
SLIPS: Sequence[tuple[str, str]] = (
    (" + ", " - "),
    (" * ", " + "),
    ("tl.maximum", "tl.minimum"),
    ("tl.sum", "tl.max"),
    ("tl.exp", "tl.log"),
    (" < ", " <= "),
    ("std::max", "std::min"),
    ("0.5", "0.25"),
    ("1.0", "2.0"),
    ("e1", "e0"),
    ("a0", "a9"),
    ("s0", "s1"),
    ("x0", "x9"),
)
"""Mistakes that small models make, one of which a broken attempt has: operators, names and sizes taken for others."""


@dataclass(frozen=True)
class TeacherAttempt:
    """A text to execute."""

    text: str
    title: str
    family: str = ""
    skill: Skill | None = None
    """The note that leads to it."""
    broken: bool = False


@dataclass(frozen=True)
class Taught:
    """One conversation with its right answer at the end, in a dialect."""

    kind: str
    messages: tuple[dict[str, Any], ...]
    tools: tuple[dict[str, Any], ...] = ()
    skills: tuple[str, ...] = ()
    chosen: tuple[str, ...] = ()
    code: str = ""
    turn: Turn | None = None
    """The verdict that gives the example its speedup."""
    rounds: tuple[float | None, ...] = ()
    improves: str = ""
    """The text of the turn before, which the answer is faster than."""


Tried = tuple[TeacherAttempt, Turn]
"""An attempt, and its verdict."""


def attempts(subject: TaskContext, rng: random.Random, count: int) -> list[TeacherAttempt]:
    """The composer's own text, up to `count` that notes lead to, and two with a mistake: a word replaced by another, a line missing."""
    captured, backend = subject.captured, subject.backend
    assert captured is not None
    own = described(captured, Plan(nanolang.structures(captured, backend)[0]), backend)
    by_text = {own.text: TeacherAttempt(own.text, "as usual", _family(own.kernels))}
    for variant in nanolang.variants(captured, backend, rng, 2 * count):
        advice = advise(subject, variant, rng)
        plan = (
            follow(captured, [advice], backend)
            if advice is not None and not advice.unseen
            else None
        )
        if plan is None or advice is None or len(by_text) > count:
            continue
        made = described(captured, plan, backend)
        note = format_note(advice, rng)
        by_text.setdefault(
            made.text, TeacherAttempt(made.text, note.do, _family(made.kernels), skill(note))
        )
    slips = dict.fromkeys(
        (with_mistake(own.text, rng), without_line(rng.choice(list(by_text)), rng))
    )
    return [
        *by_text.values(),
        *(TeacherAttempt(slip, "with a slip", broken=True) for slip in slips if slip),
    ]


def with_mistake(text: str, rng: random.Random) -> str | None:
    """The text with one mistake; None if none of them applies."""
    places = [
        (m.start(), old, new)
        for old, new in SLIPS
        for m in re.finditer(rf"(?<!\w){re.escape(old)}(?!\w)", text)
    ]
    if not places:
        return None
    at, old, new = rng.choice(places)
    return text[:at] + new + text[at + len(old) :]


def without_line(text: str, rng: random.Random) -> str | None:
    """The text without one of its lines; None if every line is needed."""
    lines = text.splitlines(keepends=True)
    if len(lines) < 4:
        return None
    del lines[rng.randrange(1, len(lines) - 1)]
    return "".join(lines)


def turn_of(
    attempt: TeacherAttempt,
    candidate: Candidate | None,
    verdict: Verdict | None,
    malformed: str | None = None,
) -> Turn:
    """An attempt's record."""
    return Turn(completion=attempt.text, candidate=candidate, verdict=verdict, malformed=malformed)


def teach(
    subject: TaskContext,
    played: Sequence[Tried],
    rng: random.Random,
    dialect: Dialect,
    settings: AgentsConfig,
) -> list[Taught]:
    """All examples from one task's attempts.

    Args:
        played: the attempts, the usual text first, each with its verdict.
    """
    right = [
        (a, t)
        for a, t in played
        if t.verdict is not None and t.verdict.status is Status.OK and speedup(t)
    ]
    if not right or played[0][1].verdict is None:
        return []
    usual = speedup(played[0][1])
    best, fastest = max(right, key=lambda pair: speedup(pair[1]))
    result = [
        Taught(
            "policy",
            _asked(dialect, subject, (), (), settings, best),
            code=best.text,
            turn=fastest,
            rounds=(speedup(fastest),),
        )
    ]
    for attempt, turn in right:
        if attempt.skill is not None:
            given = [
                attempt.skill,
                *(
                    skill(format_note(stray, rng))
                    for stray in (elsewhere(rng),)
                    if rng.random() < 0.3 and not stray.unseen
                ),
            ]
            names = tuple(s.name for s in given)
            if len(set(names)) == len(names):
                result.append(
                    Taught(
                        "policy_with_skills",
                        _asked(dialect, subject, given, (), settings, attempt),
                        skills=names,
                        code=attempt.text,
                        turn=turn,
                        rounds=(speedup(turn),),
                    )
                )
    result += _again(subject, played, right, rng, dialect, settings)
    result += [
        _selection(subject, right, usual, rng, dialect, settings, fastest)
        for _ in range(NUM_SELECTIONS)
    ]
    result += _summaries(subject, played, right, usual, rng, dialect, settings) if usual else ()
    return result


def _again(
    subject: TaskContext,
    played: Sequence[Tried],
    right: Sequence[Tried],
    rng: random.Random,
    dialect: Dialect,
    settings: AgentsConfig,
) -> Iterator[Taught]:
    """After every attempt, after some pairs of them, and after one that a note led to: the fastest right text that was not tried."""
    pairs = list(permutations(played, 2))
    openings: list[tuple[Sequence[Tried], tuple[Skill, ...]]] = [((one,), ()) for one in played]
    openings += [(pair, ()) for pair in rng.sample(pairs, min(NUM_LONGER, len(pairs)))]
    led = [one for one in right if one[0].skill is not None]
    openings += [
        ((one,), (one[0].skill,))
        for one in rng.sample(led, min(1, len(led)))
        if one[0].skill is not None
    ]
    for opening, given in openings:
        left = [one for one in right if one not in opening]
        if not left:
            continue
        answer, turn = max(left, key=lambda one: speedup(one[1]))
        before = [speedup(earlier) for _, earlier in opening]
        yield Taught(
            "policy_with_skills" if given else "policy",
            _asked(dialect, subject, given, [earlier for _, earlier in opening], settings, answer),
            skills=tuple(s.name for s in given),
            code=answer.text,
            turn=turn,
            rounds=(*(s or None for s in before), speedup(turn)),
            improves=opening[-1][0].text if speedup(turn) > WORTH * max(before) else "",
        )


def _asked(
    dialect: Dialect,
    subject: TaskContext,
    skills: Sequence[Skill],
    turns: Sequence[Turn],
    settings: AgentsConfig,
    answer: TeacherAttempt,
) -> tuple[dict[str, Any], ...]:
    opening = (
        policy.build_prompt(dialect, subject, skills, turns, settings)
        if turns
        else dialect.policy(subject, skills, settings)
    )
    return (*opening.messages, {"role": "assistant", "content": dialect.write_policy(answer.text)})


def _selection(
    subject: TaskContext,
    right: Sequence[Tried],
    usual: float,
    rng: random.Random,
    dialect: Dialect,
    settings: AgentsConfig,
    fastest: Turn,
) -> Taught:
    ours = {a.skill.name: (a.skill, speedup(t)) for a, t in right if a.skill is not None}
    offered = {name: held for name, (held, _) in ours.items()}
    assert subject.captured is not None
    for _ in range(MOST_STRAYS):
        if len(offered) >= NUM_OFFERED:
            break
        advice = elsewhere(rng)
        # One that applies to the task was not executed: whether it is worth choosing is unknown.
        if follow(subject.captured, [advice], subject.backend) is None:
            stray = skill(format_note(advice, rng))
            offered.setdefault(stray.name, stray)
    names = list(offered)
    rng.shuffle(names)
    good = sorted(
        (n for n, (_, s) in ours.items() if usual and s > WORTH * usual), key=lambda n: -ours[n][1]
    )[: settings.num_chosen]
    reason = "it made this task faster"
    if not good and rng.random() >= NONE_SHARE:
        good = sorted(
            (n for n, (_, s) in ours.items() if usual and s * WORTH > usual),
            key=lambda n: -ours[n][1],
        )[:1]
        reason = "this task was as fast with it"
    asked = dialect.selection(subject, [offered[n] for n in names], settings)
    answer = dialect.write_selection(names, dict.fromkeys(good, reason), "")
    return Taught(
        "selection",
        (*asked.messages, {"role": "assistant", "content": answer}),
        asked.tools,
        tuple(names),
        tuple(good),
        turn=fastest,
    )


def _summaries(
    subject: TaskContext,
    played: Sequence[Tried],
    right: Sequence[Tried],
    usual: float,
    rng: random.Random,
    dialect: Dialect,
    settings: AgentsConfig,
) -> Iterator[Taught]:
    """Conversations that a note made faster, most from the usual text or, if that is as fast, from another.

    The target is no slower than the usual text: the better of two other notes may still be bad advice. A conversation
    that was given the very note that made it faster teaches nothing; one that was given another teaches as much as one without.
    """
    first = played[0]
    notes = [
        (attempt.skill, one)
        for one in right
        if (attempt := one[0]).skill is not None and speedup(one[1]) * WORTH > usual
    ]
    told = [attempt.skill for attempt, _ in played if attempt.skill is not None]
    count = 0
    for note, best in sorted(notes, key=lambda one: -speedup(one[1][1])):
        slower = [one for one in right if speedup(best[1]) > CLEARLY * speedup(one[1])]
        opening = (
            first if speedup(best[1]) > WORTH * usual else rng.choice(slower) if slower else None
        )
        if opening is None or count == NUM_LEARNT:
            continue
        count += 1
        others = [skill for skill in told if skill.name != note.name]
        given = (rng.choice(others),) if others and rng.random() < GIVEN_SHARE else ()
        idle = rng.random() < IDLE_SHARE
        turns = _beside(opening, best, played, rng)
        yield _summary(
            subject, turns, (note,) if idle else given, () if idle else (note,), dialect, settings
        )


def _beside(
    first: Tried, other: Tried, played: Sequence[Tried], rng: random.Random
) -> tuple[Turn, ...]:
    """A conversation of both, and now and then a third attempt, slower than the faster of them."""
    top = max(speedup(first[1]), speedup(other[1]))
    third = [one for one in played if one not in (first, other) and speedup(one[1]) < top]
    more = [other, *([rng.choice(third)] if third and rng.random() < 0.6 else [])]
    rng.shuffle(more)
    return first[1], *(turn for _, turn in more)


def _summary(
    subject: TaskContext,
    turns: tuple[Turn, ...],
    given: tuple[Skill, ...],
    learned: tuple[Skill, ...],
    dialect: Dialect,
    settings: AgentsConfig,
) -> Taught:
    asked = dialect.summary(subject, Trace(role="policy", turns=turns), given, settings)
    answer = dialect.write_summary(learned, "")
    messages = (*asked.messages, {"role": "assistant", "content": answer})
    rounds = tuple(speedup(t) or None for t in turns)
    return Taught(
        "summary",
        messages,
        asked.tools,
        tuple(s.name for s in given),
        tuple(s.name for s in learned),
        turn=max(turns, key=speedup),
        rounds=rounds,
    )


def _family(kernels: Any) -> str:
    return " + ".join(sorted({words[0] for words in kernels.values()})) or "left to torch"
