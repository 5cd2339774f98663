"""The simulation's small cases equal hand calculations; scaling.md shows the code's results."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import pytest

from tests.benchmarks.scaling import HEAD, SEEDS, Costs, Layout, line, mean, play, reduce_s, step

PENCIL = Costs(
    decode_most=100.0,
    decode_half=0.0,
    batch=8,
    answer_tokens=10.0,
    row_tokens=20.0,
    thread_s=1.0,
    seats=1,
    prepare_s=4.0,
    lane_s=2.0,
    reference_s=3.0,
    slow=0.0,
    again=0.0,
    each_s=0.5,
    turn_bytes=10.0,
    host_bytes_s=5.0,
    learn_tokens_s=40.0,
    gradient_bytes=80.0,
    nvlink_bytes_s=20.0,
    network_bytes_s=10.0,
    hop_s=0.25,
    fixed_s=7.0,
)
"""An answer takes 10 tokens / 100 tokens/s = 0.1 s by itself, however many are asked for, each; then 1 s of the thread."""


def seconds(tasks: list[int], turns: int = 1, gpus: float = 1, **changes: float | bool) -> float:
    return play(
        tasks, turns, dataclasses.replace(PENCIL, **changes), gpus, random.Random(0)
    ).seconds


def test_one_answer() -> None:
    assert seconds([0]) == pytest.approx(0.1 + 1 + 3 + 4 + 2)


def test_turns_follow_one_another_and_pay_the_reference_once() -> None:
    assert seconds([0], turns=3) == pytest.approx(3 * (0.1 + 1 + 4 + 2) + 3)


def test_one_seat_judges_one_after_another() -> None:
    # Two answers decoded in 0.2 s, the first handed in at 1.2 s and done at 10.2; the second then takes 6.
    assert seconds([0, 0]) == pytest.approx(1.2 + 3 + 4 + 2 + 4 + 2)
    assert seconds([0, 1]) == pytest.approx(1.2 + 2 * (3 + 4 + 2))


def test_two_seats_prepare_together_and_time_one_after_the_other() -> None:
    # Handed in at 1.2 and 2.2, prepared at 8.2 and 9.2, timed until 10.2 and, after it, 12.2.
    assert seconds([0, 0], seats=2) == pytest.approx(12.2)


def test_two_gpus_time_together() -> None:
    assert seconds([0, 0], gpus=2) == pytest.approx(2.2 + 3 + 4 + 2)


def test_a_shared_reference_is_built_once() -> None:
    assert (
        play([0, 0], 1, dataclasses.replace(PENCIL, seats=2), 1, random.Random(0)).references == 2
    )
    assert (
        play(
            [0, 0],
            1,
            dataclasses.replace(PENCIL, seats=2, shared_reference=True),
            1,
            random.Random(0),
        ).references
        == 1
    )


def test_seats_stay_with_their_task() -> None:
    found = play(
        [0, 1] * 10, 1, dataclasses.replace(PENCIL, seats=2, thread_s=0.0), 1, random.Random(0)
    )
    assert found.references == 2 and found.judged == 20


def test_what_is_known_is_not_judged() -> None:
    found = play([0] * 5, 2, dataclasses.replace(PENCIL, again=1.0), 1, random.Random(0))
    assert found.judged == 0 and found.seconds == pytest.approx(2 * (5 * 0.1 + 5 * 1.0))


def test_a_slow_one_holds_its_seat() -> None:
    assert seconds([0], slow=1.0, slow_s=50.0) == pytest.approx(1.1 + 3 + 50 + 2)


def test_the_thread_asks_for_less_than_a_batch_only_when_judges_are_hungry() -> None:
    # Batches of 2. The first hands in at 1.2 and 2.2; its verdicts come at 10.2 and 16.2. At 10.2 nothing waits that is not in
    # work, so the conversation that is ready is asked alone: 10.2 + 1.1 handed in, judged from 16.2 to 22.2; the other likewise.
    assert seconds([0, 0], turns=2, batch=2) == pytest.approx(1.2 + 3 + 4 * 6)


def test_a_ring() -> None:
    assert reduce_s(1, PENCIL) == 0.0
    assert reduce_s(4, PENCIL) == pytest.approx(6 * (80 / 4 / 20 + 0.25))
    assert reduce_s(16, PENCIL) == pytest.approx(30 * (80 / 16 / 10 + 0.25)), "between machines"
    sharded = dataclasses.replace(PENCIL, shards=2)
    assert reduce_s(4, sharded) == pytest.approx(2 * 1.5 * reduce_s(4, PENCIL)), (
        "a gather and a scatter are half a reduction each"
    )


def test_a_step_of_one_process() -> None:
    found = step(2, "one", PENCIL, tasks=1, conversations=2, turns=1)
    assert found.play_s == pytest.approx(2.2 + 3 + 4 + 2) and found.turns == 2
    assert found.seconds == pytest.approx(found.play_s + 2 * 0.5 + 2 * 20 / 40 + 7)
    assert found.exchange_s == found.reduce_s == 0.0


def test_writers_share_a_call_and_make_its_candidates() -> None:
    # Two answers a writer, 0.2 s and 2 × 0.75; then 0.25 s of the thread each, and four seats, a GPU each.
    costs = dataclasses.replace(PENCIL, candidate_s=0.75)
    assert play([0, 0, 1, 1], 1, costs, 4, random.Random(0), writers=2).seconds == pytest.approx(
        0.2 + 1.5 + 4 * 0.25 + 3 + 4 + 2
    )
    found = step(4, "spread", costs, tasks=2, conversations=2, turns=1)
    assert found.play_s == pytest.approx(11.7) and found.exchange_s == found.reduce_s == 0.0


def test_a_step_of_two_processes() -> None:
    found = step(2, "all", PENCIL, tasks=2, conversations=1, turns=1)
    assert found.play_s == pytest.approx(0.1 + 1 + 3 + 4 + 2)
    assert found.exchange_s == pytest.approx(2 * 10 / 5) and found.credit_s == pytest.approx(
        2 * 0.5
    )
    assert found.learn_s == pytest.approx(2 * 20 / 40 / 2) and found.reduce_s == pytest.approx(
        2 * (80 / 2 / 20 + 0.25)
    )


def test_a_grown_step_has_as_many_tasks_a_gpu() -> None:
    one, four = (step(gpus, "grown", PENCIL, tasks=1, conversations=2, turns=1) for gpus in (1, 4))
    assert (
        four.turns == 4 * one.turns
        and four.play_s == pytest.approx(one.play_s)
        and four.credit_s == pytest.approx(4 * one.credit_s)
    )


def test_processes_without_a_task_wait() -> None:
    assert step(4, "all", PENCIL, tasks=1, conversations=1, turns=1).play_s == pytest.approx(10.1)


@pytest.mark.parametrize("layout", ["one", "spread", "all", "grown"])
def test_what_is_written_down_is_what_comes_out(layout: Layout) -> None:
    text = (Path(__file__).parent / "scaling.md").read_text(encoding="utf-8")
    assert HEAD in text
    for gpus in (1, 8):
        assert line(mean([step(gpus, layout, Costs(), seed=seed) for seed in range(SEEDS)])) in text
