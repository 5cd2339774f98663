"""A skill's effect, counted by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from dvk.records import (
    Candidate,
    Episode,
    Interval,
    Skill,
    Status,
    Task,
    Timing,
    Trace,
    Turn,
    Verdict,
)
from dvk.skills import Library
from dvk.skills.events import Event
from dvk.skills.plays import plays
from dvk.skills.usage import SkillUsage, aliases, as_evidence, estimate, remembered, tally

Make = Callable[..., Skill]
EVEN = 1e9


def added(*names: str, step: int = 0) -> list[Event]:
    return [Event("added", name, step) for name in names]


def given(name: str, step: int, gain: float | None = None, task: str = "t", **data: Any) -> Event:
    return Event("given", name, step, {"role": "policy", "task": task, "gain": gain, **data})


def test_mean_and_interval_are_students() -> None:
    gains = [
        0.1,
        0.2,
        0.3,
        0.4,
        0.5,
    ]  # deviation 0.158114, standard error 0.0707107, t(0.975; 4) 2.776445
    events = added("a") + [given("a", step, gain, won=step < 2) for step, gain in enumerate(gains)]
    (use,) = tally(events, half_life=EVEN).values()
    assert (use.skill, use.role, use.given, use.won, use.trials, use.last_used) == (
        "a",
        "policy",
        5,
        2,
        5,
        4,
    )
    assert use.gain == pytest.approx(0.3) and use.total == pytest.approx(1.5, rel=1e-6)
    assert (use.lo, use.hi) == (
        pytest.approx(0.3 - 0.196324, abs=1e-6),
        pytest.approx(0.3 + 0.196324, abs=1e-6),
    )


def test_old_trials_count_less() -> None:
    # Weights 1/2, 1, 1: mean 0.25/2.5; worth 2.5²/2.25 = 2.7778 trials; variance 0.03/1.6; error √(0.01875/2.7778) = 0.0821584.
    events = added("a") + [given("a", 0, 0.3), given("a", 10, 0.0, "t"), given("a", 10, 0.1, "u")]
    use = tally(events, half_life=10)["a", "policy"]
    assert use.gain == pytest.approx(0.1) and use.total == pytest.approx(0.25)
    assert use.lo == pytest.approx(0.1 - 4.8615 * 0.0821584, abs=2e-4)  # t(0.975; 1.7778)
    later = tally(events, step=20, half_life=10)["a", "policy"]
    assert later.gain == pytest.approx(0.1) and later.total == pytest.approx(0.125), (
        "all have aged alike"
    )
    assert tally(events, step=0, half_life=10)["a", "policy"].total == pytest.approx(0.4), (
        "nothing is worth more than now"
    )


@pytest.mark.parametrize("half_life", [1.0, 1e-300])
def test_what_is_long_past_is_no_division_by_zero(half_life: float) -> None:
    events = (
        added("a")
        + [given("a", 5, gain, task) for gain, task in ((0.3, "t"), (0.1, "u"))]
        + [given("b", 5000)]
    )
    use = tally(events, half_life=half_life)["a", "policy"]
    assert use.gain == pytest.approx(0.2) and use.lo is not None and use.total == 0.0
    older = tally(events + [given("a", 0, 9.0)], half_life=1e-3)["a", "policy"]
    assert older.gain == pytest.approx(0.2), "compared with newer trials it counts nothing"


def test_few_trials_have_no_interval() -> None:
    assert estimate([0.2], [1.0], 0.95) == (0.2, None, None)
    mean, lo, _ = estimate([0.3, 0.0], [0.5, 1.0], 0.95)  # 1.5² / 1.25 = 1.8 trials
    assert mean == pytest.approx(0.1) and lo is None
    assert estimate([0.2, 0.2], [1.0, 1.0], 0.95) == (0.2, 0.2, 0.2)


def test_schemes_of_a_task_in_a_step_are_one_trial() -> None:
    events = added("a") + [
        given("a", 1, 0.1, scheme=0),
        given("a", 1, 0.3, scheme=1),
        given("a", 2, 0.4),
        given("a", 2, None, "u"),
    ]
    use = tally(events, half_life=EVEN)["a", "policy"]
    assert (use.given, use.trials) == (4, 2) and use.gain == pytest.approx(0.3)


def test_roles_are_counted_apart() -> None:
    events = added("a", "never") + [
        given("a", 1, 0.1),
        Event("given", "a", 1, {"role": "selection", "offered": 3, "chosen": 1}),
        Event("given", "a", 2, {"role": "selection", "offered": 3, "chosen": 0}),
        Event("given", "a", 3, {"role": "summary"}),
    ]
    found = tally(events, half_life=EVEN)
    assert found["a", "policy"].given == 1 and found["a", "summary"].given == 1
    assert (
        found["a", "selection"].offered,
        found["a", "selection"].given,
        found["a", "selection"].gain,
    ) == (6, 1, None)
    assert found["never", "policy"] == SkillUsage("never", came="added")


def test_a_merged_skill_counts_for_the_one_it_became() -> None:
    events = [
        *added("a", "b", "c"),
        given("a", 1, 0.2),
        given("b", 2, 0.4),
        Event("merged", "a", 3, {"into": "b"}),
    ]
    assert tally(events, half_life=EVEN)["b", "policy"].trials == 2 and (
        "a",
        "policy",
    ) not in tally(events, half_life=EVEN)
    events.append(Event("merged", "b", 4, {"into": "c"}))
    assert aliases(events) == {"a": "c", "b": "c", "c": "c"}
    assert tally(events, half_life=EVEN)["c", "policy"].gain == pytest.approx(0.3)
    events += [Event("restored", "a", 5), given("a", 6, 1.0), Event("retired", "c", 7)]
    found = tally(events, half_life=EVEN)
    assert list(found) == [("a", "policy")] and found["a", "policy"].gain == 1.0, (
        "what it did before it came back is past"
    )
    assert aliases(events)["b"] is None


def test_use_elsewhere_is_remembered_until_there_is_use_here(make: Make) -> None:
    use = SkillUsage("a", given=30, won=4, trials=20, gain=-0.1, lo=-0.2, hi=-0.05, total=-2.0)
    skill = make("a", evidence=({"speedup": 2.0}, as_evidence(use, "run/skills.db", "id")))
    known = remembered(tally(added("a"), half_life=EVEN), [skill])
    assert (known["a", "policy"].trials, known["a", "policy"].hi) == (20, -0.05)
    fresh = tally([*added("a"), given("a", 1, 0.3)], half_life=EVEN)
    assert remembered(fresh, [skill]) == fresh
    back = tally([*added("a"), Event("retired", "a"), Event("restored", "a")], half_life=EVEN)
    assert remembered(back, [skill]) == back, "a user restored it"


# ---------------------------------------------------------------- from episodes


def turn(speedup: float | None, *, reward: float | None = None, timed: bool = True) -> Turn:
    """A judged turn; None: a wrong kernel."""
    if speedup is None:
        verdict = Verdict(status=Status.MISMATCH, stage="check", tier="search", error="wrong")
    elif not timed:
        verdict = Verdict(status=Status.OK, stage="done", tier="smoke")
    else:
        interval = Interval(value=speedup, lo=speedup, hi=speedup)
        timing = Timing(
            candidate_ms=1.0, reference_ms=speedup, speedup=interval, num_pairs=1, seconds=0.0
        )
        verdict = Verdict(status=Status.OK, stage="done", tier="search", timing=timing)
    return Turn(
        candidate=Candidate(source="x", backend="cpp", proposer="p"), verdict=verdict, reward=reward
    )


def episode(*traces: Trace) -> Episode:
    return Episode(
        task=Task(id="t", name="t", source="", entry="f", kind="function"), step=7, traces=traces
    )


def policy(scheme: int | None, skills: tuple[str, ...], *turns: Turn, rollout: int = 0) -> Trace:
    return Trace(role="policy", scheme=scheme, rollout=rollout, skills=skills, turns=turns)


BROKEN = Verdict(status=Status.BROKEN_TASK, stage="check", tier="search", error="out of memory")


def test_an_episode_tells_what_each_skill_came_to() -> None:
    found = plays(
        episode(
            Trace(
                role="selection", scheme=0, skills=("c", "a", "b"), turns=(Turn(chosen=("a", "b")),)
            ),
            Trace(
                role="selection",
                scheme=1,
                skills=("c", "a", "b"),
                turns=(Turn(malformed="no list"),),
            ),
            Trace(
                role="selection",
                scheme=2,
                skills=("c", "a", "b"),
                turns=(Turn(finish="error", malformed="server"),),
            ),
            policy(None, (), turn(2.0, reward=1.5), turn(None, reward=0.0)),
            policy(None, (), turn(0.5, reward=0.75), rollout=1),
            policy(0, ("a", "b"), turn(None, reward=0.0), turn(4.0, reward=2.5)),
            policy(0, ("a", "b"), turn(None, reward=0.0), rollout=1),
            policy(0, ("a", "b"), turn(9.0), Turn(verdict=BROKEN), rollout=2),
            policy(1, ("b",), turn(1.5, timed=False)),
            Trace(role="summary", scheme=0, skills=("a", "b"), turns=(Turn(),)),
        )
    )
    assert {event.step for event in found} == {7} and {event.kind for event in found} == {"given"}
    chosen = {
        e.skill: (e.data["offered"], e.data["chosen"])
        for e in found
        if e.data["role"] == "selection"
    }
    assert chosen == {"c": (2, 0), "a": (2, 1), "b": (2, 1)}, "a server's failure is no choice"
    a, b, other = (e for e in found if e.data["role"] == "policy")
    # With: (ln 4 + 0) / 2. Without: (ln 2 + 0) / 2, the slow one is worth no less than the original.
    assert (a.skill, a.data["together"], a.data["won"]) == ("a", ["b"], True)
    assert a.data["gain"] == b.data["gain"] == pytest.approx(math.log(2) / 2)
    assert (a.data["reward"], a.data["reward_without"]) == (
        pytest.approx(1.25),
        pytest.approx(1.125),
    )
    assert (other.skill, other.data["scheme"], other.data["gain"], other.data["won"]) == (
        "b",
        1,
        None,
        False,
    ), "right, but not timed"
    assert [e.skill for e in found if e.data["role"] == "summary"] == ["a", "b"]


def test_without_a_null_scheme_gains_are_unknown() -> None:
    (event,) = plays(episode(policy(0, ("a",), turn(2.0))))
    assert event.data["gain"] is None and event.data["reward_without"] is None and event.data["won"]
    assert plays(episode()) == []


def test_what_an_episode_tells_can_be_recorded_and_counted(library: Library, make: Make) -> None:
    library.add(make("a"))
    library.record_all(plays(episode(policy(None, (), turn(1.0)), policy(0, ("a",), turn(math.e)))))
    use = tally(library.events(), half_life=EVEN)["a", "policy"]
    assert use.gain == pytest.approx(1.0) and (use.won, use.last_used) == (1, 7)
