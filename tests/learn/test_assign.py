"""An episode of three roles, credited by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from dvk.config import Config
from dvk.learn.assign import assign, has_signal, rows, scaled_together
from dvk.records import Episode, Interval, Role, Status, Task, Timing, Tokens, Trace, Turn, Verdict

TASK = Task(id="t", name="t", source="", entry="Model", kind="module")
TOKENS = Tokens(prompt=(1, 2), completion=(3, 4, 5), logprobs=(-0.1, -0.2, -0.3))


def ok(speed: float, coverage: float | None = None) -> Turn:
    interval = Interval(value=speed, lo=speed, hi=speed)
    timing = Timing(
        candidate_ms=1.0, reference_ms=speed, speedup=interval, num_pairs=9, seconds=0.1
    )
    return Turn(
        verdict=Verdict(
            status=Status.OK, tier="search", stage="done", timing=timing, coverage=coverage
        ),
        tokens=TOKENS,
    )


def wrong() -> Turn:
    return Turn(
        verdict=Verdict(status=Status.MISMATCH, tier="search", stage="check", error="wrong"),
        tokens=TOKENS,
    )


def broken_task() -> Turn:
    return Turn(
        verdict=Verdict(
            status=Status.BROKEN_TASK, tier="search", stage="check", error="out of memory"
        ),
        tokens=TOKENS,
    )


def trace(role: Role, scheme: int | None, rollout: int, *turns: Turn) -> Trace:
    return Trace(role=role, scheme=scheme, rollout=rollout, turns=turns)


def chose(*names: str) -> Turn:
    return Turn(chosen=names, tokens=TOKENS)


UNREAD = Turn(malformed="nothing to read", tokens=TOKENS)


def config(**credit: Any) -> Config:
    rewards = {"weights": {"speedup": 1.0, "format": 0.2}}
    return Config.model_validate(
        {"rewards": rewards, "credit": {"normalize_advantages": False, **credit}}
    )


def advantages(episode: Episode, role: str) -> list[list[float | None]]:
    return [[turn.advantage for turn in t.turns] for t in episode.traces if t.role == role]


def test_a_turn_is_compared_with_the_same_turn_of_all_schemes() -> None:
    played = Episode(
        task=TASK,
        traces=(
            trace("policy", None, 0, ok(1.0), ok(2.0)),
            trace("policy", 0, 0, ok(3.0), ok(1.0)),
            trace("policy", 1, 0, wrong(), wrong()),
        ),
    )
    found = assign(played, config()).episode
    # Returns: 3, 2 | 4, 1 | 0, 0; turn 0 against (3, 4, 0), turn 1 against (2, 1, 0).
    assert advantages(found, "policy") == [[1.0, 1.5], [2.5, 0.0], [-3.5, -1.5]]
    assert [t.reward for t in found.traces[0].turns] == [1.0, 2.0]
    kept = rows(found)
    assert [r.key for r in kept] == [
        ("t", None, 0, 0),
        ("t", None, 0, 1),
        ("t", 0, 0, 0),
        ("t", 1, 0, 0),
        ("t", 1, 0, 1),
    ]
    assert (
        kept[0].ids == [1, 2, 3, 4, 5]
        and kept[0].logprobs == (-0.1, -0.2, -0.3)
        and kept[0].advantage == 1.0
    )


def test_given_tokens_are_not_learned() -> None:
    given = TOKENS.model_copy(update={"given": (1,)})
    turns = [ok(1.0), ok(3.0)]
    turns = [turn.model_copy(update={"tokens": given}) for turn in turns]
    played = Episode(
        task=TASK, step=0, traces=tuple(trace("policy", None, n, t) for n, t in enumerate(turns))
    )
    row, other = rows(assign(played, config()).episode)
    assert row.targets == [False, False, True, False, True]
    assert row.logprobs == other.logprobs == (-0.1, -0.3)


def test_even_scales_a_task() -> None:
    played = Episode(
        task=TASK, traces=(trace("policy", None, 0, ok(5.0)), trace("policy", None, 1, ok(1.0)))
    )
    assert advantages(assign(played, config(normalize_advantages=True)).episode, "policy") == [
        [1.0],
        [-1.0],
    ]


def test_what_teaches_nothing_is_counted() -> None:
    played = Episode(
        task=TASK,
        traces=(
            trace("policy", None, 0, ok(2.0), wrong()),
            trace("policy", None, 1, ok(2.0), ok(3.0)),
            trace("policy", None, 2, Turn(malformed="down", finish="error")),
        ),
    )
    found = assign(played, config(gamma=0.0))
    assert found.left_out == {"void": 1, "broken": 1, "alike": 3} and not rows(found.episode)
    covered = Episode(
        task=TASK,
        traces=(
            trace("policy", None, 0, ok(2.0, coverage=0.05)),
            trace("policy", None, 1, ok(3.0, coverage=0.9)),
        ),
    )
    some = assign(covered, config())
    assert some.left_out == {"coverage": 1} and advantages(some.episode, "policy") == [
        [None],
        [1.0],
    ]
    assert advantages(assign(covered, config(profiling_rejection=False)).episode, "policy") == [
        [-1.0],
        [1.0],
    ]


@pytest.mark.parametrize(
    "fault",
    [Turn(malformed="down", finish="error", tokens=TOKENS), broken_task()],
    ids=["backbone", "judge"],
)
def test_a_machine_fault_is_not_blamed_on_a_candidate(fault: Turn) -> None:
    fine = [trace("policy", None, n, ok(2.0), ok(2.0)) for n in range(3)]
    assert not rows(
        assign(
            Episode(task=TASK, traces=(*fine, trace("policy", None, 3, ok(2.0), fault))), config()
        ).episode
    )
    played = Episode(
        task=TASK,
        traces=(
            trace("selection", 0, 0, chose("a")),
            trace("policy", None, 0, ok(2.0)),
            trace("policy", 0, 0, ok(3.0)),
            trace("policy", 0, 1, fault),
        ),
    )
    found = assign(played, config())
    assert advantages(found.episode, "policy") == [[-1.0], [1.0], [None]] and found.left_out == {
        "broken": 1
    }
    assert advantages(found.episode, "selection") == [[pytest.approx(0.3)]], (
        "3 with it, 2 without, times 0.3"
    )


def test_without_a_baseline_no_peers_are_needed() -> None:
    alone = Episode(
        task=TASK,
        traces=(trace("policy", None, 0, ok(2.0)), trace("summary", None, 0, Turn(tokens=TOKENS))),
    )
    found = assign(alone, config(advantage="reinforce"), {0: 1.4})
    assert advantages(found.episode, "policy") == [[2.0]] and advantages(
        found.episode, "summary"
    ) == [[pytest.approx(0.7)]]
    assert not rows(assign(alone, config(), {0: 1.4}).episode)


def test_selections_against_the_null_scheme() -> None:
    played = Episode(
        task=TASK,
        traces=(
            trace("selection", 0, 0, chose("a")),
            trace("selection", 1, 0, chose("b")),
            trace("selection", 2, 0, UNREAD),
            trace("policy", None, 0, ok(2.0)),
            trace("policy", 0, 0, ok(3.0), ok(1.0)),
            trace("policy", 1, 0, ok(1.0)),
        ),
    )
    found = assign(played, config())
    # a: 3 - (1 + 2)/2 = 1.5; b: 1 - (3 + 2)/2 = -1.5; unread: 2 - 0.2 - (3 + 1 + 2)/3 = -0.2; times 0.3.
    assert [a[0] for a in advantages(found.episode, "selection")] == pytest.approx(
        [0.45, -0.45, -0.06]
    )
    assert advantages(assign(played, config(selection=0.0)).episode, "selection") == [
        [None],
        [None],
        [None],
    ]


def timed(speed: float, noise: float) -> Turn:
    """A right answer whose speedup has this standard deviation, as a share of it."""
    turn = ok(speed)
    assert turn.verdict is not None and turn.verdict.timing is not None
    ends = {"lo": speed * math.exp(-1.96 * noise), "hi": speed * math.exp(1.96 * noise)}
    timing = turn.verdict.timing.model_copy(update={"speedup": Interval(value=speed, **ends)})
    return turn.model_copy(update={"verdict": turn.verdict.model_copy(update={"timing": timing})})


def test_an_explored_selection_teaches_and_a_choice_of_nothing_is_the_null_scheme() -> None:
    played = Episode(
        task=TASK,
        traces=(
            trace("selection", 0, 0, chose()),
            trace("selection", 1, 0, chose("a").model_copy(update={"forced": True})),
            *(trace("policy", None, n, ok(speed)) for n, speed in enumerate((1.80, 1.79))),
            *(trace("policy", 0, n, ok(speed)) for n, speed in enumerate((1.86, 1.84))),
            *(trace("policy", 1, n, ok(speed)) for n, speed in enumerate((3.0, 3.1))),
        ),
    )
    none, explored = (a[0] for a in advantages(assign(played, config()).episode, "selection"))
    assert none is not None and none < -0.3 and explored is not None and explored > 0.3
    worse = played.model_copy(
        update={
            "traces": tuple(t for t in played.traces if t.scheme != 1)
            + (played.traces[1], trace("policy", 1, 0, ok(1.0)))
        }
    )
    assert advantages(assign(worse, config()).episode, "selection")[1] == [0.0], "not pushed away"
    alone = played.model_copy(update={"traces": tuple(t for t in played.traces if t.scheme != 1)})
    assert advantages(assign(alone, config()).episode, "selection") == [[0.0]]


def test_differences_within_the_clock_s_noise_teach_nothing() -> None:
    speeds = (1.80, 1.803, 1.797, 1.801)
    noisy = Episode(
        task=TASK,
        traces=tuple(trace("policy", None, n, timed(s, 0.028)) for n, s in enumerate(speeds)),
    )
    found = assign(noisy, config(normalize_advantages=True))
    assert found.left_out == {"alike": 4} and not rows(found.episode)
    full = assign(noisy, config(normalize_advantages=True, shrink_noise=False))
    assert max(abs(r.advantage) for r in rows(full.episode)) > 1
    clear = Episode(
        task=TASK,
        traces=tuple(trace("policy", None, n, timed(s, 0.028)) for n, s in enumerate((1.5, 2.5))),
    )
    (up, down) = (
        r.advantage for r in rows(assign(clear, config(normalize_advantages=True)).episode)
    )
    assert down == -up and 0.95 < abs(up) < 1


def test_all_three_roles_are_on_one_scale() -> None:
    played = Episode(
        task=TASK,
        traces=(
            trace("selection", 0, 0, chose("a")),
            trace("policy", None, 0, ok(2.00)),
            trace("policy", 0, 0, ok(2.02)),
            *(trace("summary", 0, n, Turn(tokens=TOKENS)) for n in range(2)),
        ),
    )
    even = {"normalize_advantages": True, "selection": 1.0, "summary": 1.0}
    found = assign(played, config(**even), {0: 0.1, 1: 0.3}).episode
    assert advantages(found, "policy") == [[pytest.approx(-1)], [pytest.approx(1)]]
    assert advantages(found, "selection") == [[pytest.approx(1)]]
    assert advantages(found, "summary") == [[pytest.approx(-1)], [pytest.approx(1)]]
    apart = assign(played, config(shared_scale=False, **even), {0: 0.1, 1: 0.3}).episode
    assert advantages(apart, "selection") == [[pytest.approx(0.02)]]


def test_summaries_are_compared_with_each_other() -> None:
    said = [Turn(tokens=TOKENS), Turn(tokens=TOKENS), UNREAD]
    played = Episode(
        task=TASK, traces=tuple(trace("summary", 0, n, turn) for n, turn in enumerate(said))
    )
    found = assign(played, config(), {1: 1.4})
    # 0, 1.4 and -0.2: each less the mean of the others, times 0.5.
    assert [a[0] for a in advantages(found.episode, "summary")] == pytest.approx(
        [-0.3, 0.75, -0.45]
    )
    assert [r.role for r in rows(found.episode)] == ["summary"] * 3
    untried = assign(played, config(), {0: None, 1: 1.4})
    assert [a[0] for a in advantages(untried.episode, "summary")] == [
        None,
        pytest.approx(0.8),
        pytest.approx(-0.8),
    ]


def test_what_was_played_on_a_degenerate_task_teaches_nothing() -> None:
    fooled = ok(9.0)
    assert fooled.verdict is not None
    fooled = fooled.model_copy(
        update={
            "verdict": fooled.verdict.model_copy(
                update={"health": ("accepts zeros: …", "degenerate: …")}
            )
        }
    )
    traces = (
        trace("policy", None, 0, fooled),
        trace("policy", None, 1, wrong()),
        trace("selection", 0, 0, UNREAD),
    )
    played = Episode(task=TASK, traces=traces)
    found = assign(played, config())
    assert not rows(found.episode) and found.left_out == {"degenerate": 3}
    assert found.episode.traces[0].turns[0].reward == 6.0, "it is still told, capped as any"


def test_a_repaired_answer_is_imitated_where_it_was_better_and_left_otherwise() -> None:
    better, worse = (ok(speed).model_copy(update={"redrawn": 3}) for speed in (3.0, 1.0))
    traces = tuple(
        trace("policy", None, number, turn)
        for number, turn in enumerate((better, ok(2.0), worse, ok(2.0)))
    )
    found = assign(Episode(task=TASK, traces=traces), config())
    values = [of[0] for of in advantages(found.episode, "policy")]
    assert values[0] is not None and values[0] > 0 and values[2] is None
    assert found.left_out["repaired"] == 1


def test_advantages_of_a_step_share_one_scale() -> None:
    """Tasks keep their weight: one whose answers differ ten times as much counts ten times as much."""

    def played(*speeds: float) -> Episode:
        traces = tuple(trace("policy", None, n, ok(speed)) for n, speed in enumerate(speeds))
        return assign(Episode(task=TASK, traces=traces), config()).episode

    wide, narrow = scaled_together([played(1.0, 3.0), played(1.0, 1.2)])
    sizes = [abs(a) for one in (wide, narrow) for of in advantages(one, "policy") for a in of if a]
    assert sum(sizes) / len(sizes) == pytest.approx(1.0)
    assert sizes[0] == pytest.approx(10 * sizes[2])


def test_answers_of_one_worth_are_no_signal() -> None:
    def played(*speeds: float) -> Episode:
        traces = tuple(trace("policy", None, n, ok(speed)) for n, speed in enumerate(speeds))
        return Episode(task=TASK, traces=traces)

    assert has_signal(played(1.0, 2.0), config()) and not has_signal(played(2.0, 2.0), config())
