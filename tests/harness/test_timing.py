"""Measurement: intervals hold the truth, arms are interleaved, devices are held one at a time."""

from __future__ import annotations

import math
import random
import threading
import time

import pytest

from dvk.harness.intervals import ratio_interval, settled
from dvk.harness.lanes import Lane
from dvk.harness.timing import MIN_ROUNDS, Clock, measure


def test_interval_holds_a_known_ratio_as_often_as_it_says():
    draws = random.Random(0)
    hits = 0
    for _ in range(100):
        drift = [1 + 0.5 * draws.random() for _ in range(30)]  # the machine slows down for both arms alike
        reference = [2.0 * d * math.exp(draws.gauss(0, 0.05)) for d in drift]
        candidate = [1.0 * d * math.exp(draws.gauss(0, 0.05)) for d in drift]
        interval = ratio_interval(reference, candidate, 400)
        assert interval.lo <= interval.value <= interval.hi
        hits += interval.lo <= 2.0 <= interval.hi
    assert 85 <= hits <= 100


def test_identical_arms_are_not_told_apart():
    draws = random.Random(1)
    false_wins = 0
    for _ in range(100):
        a, b = ([math.exp(draws.gauss(0, 0.05)) for _ in range(30)] for _ in range(2))
        false_wins += ratio_interval(a, b, 400).lo > 1
    assert false_wins <= 8


def test_settled_means_a_small_error():
    assert settled([2.0] * 14, [1.0] * 14, 0.001)
    assert not settled([2.0, 1.0] * 7, [1.0] * 14, 0.001)


def test_rounds_call_every_arm_once_and_stop_at_the_limit():
    calls: list[str] = []
    arms = {name: (lambda n=name: calls.append(n)) for name in ("reference", "candidate", "compile")}
    samples = measure(arms, Clock("cpu", 1 << 40), warmup_s=0.0, limit_s=60.0, max_rounds=12)
    assert {name: len(ms) for name, ms in samples.ms.items()} == dict.fromkeys(arms, 12)
    timed = calls[6:]  # two warming calls each
    rounds = [timed[i : i + 3] for i in range(0, len(timed), 3)]
    assert all(sorted(r) == sorted(arms) for r in rounds) and len({tuple(r) for r in rounds}) > 1
    few = measure(
        {"reference": lambda: time.sleep(0.02), "candidate": lambda: None},
        Clock("cpu", 1 << 40),
        warmup_s=0.0,
        limit_s=0.01,
        max_rounds=500,
    )
    assert len(few.ms["reference"]) == MIN_ROUNDS
    assert min(few.ms["reference"]) > 19 and max(few.ms["candidate"]) < 19


def test_settled_ratios_end_a_search_early():
    arms = {"reference": lambda: time.sleep(0.004), "candidate": lambda: time.sleep(0.002)}
    samples = measure(
        arms, Clock("cpu", 1 << 40), warmup_s=0.0, limit_s=60.0, max_rounds=2000, early=("reference", "candidate")
    )
    assert len(samples.ms["reference"]) < 2000


def test_lane_is_shared_by_work_and_kept_by_a_measurement(tmp_path):
    events: list[str] = []
    inside = threading.Barrier(2, timeout=10)

    def work() -> None:
        with Lane("cpu", str(tmp_path)).shared():
            inside.wait()  # both are in at once, or this times out

    def measurement() -> None:
        with Lane("cpu", str(tmp_path)).alone():
            events.append("in")
            time.sleep(0.05)
            events.append("out")

    for target in (work, measurement):
        threads = [threading.Thread(target=target) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=20)
    assert events == ["in", "out", "in", "out"]


def test_no_newcomer_passes_a_waiting_measurement(tmp_path):
    order: list[str] = []
    holder = Lane("cpu", str(tmp_path)).shared()
    holder.__enter__()

    def enter(name: str, alone: bool) -> None:
        lane = Lane("cpu", str(tmp_path))
        with lane.alone() if alone else lane.shared():
            order.append(name)

    first = threading.Thread(target=enter, args=("measurement", True))
    first.start()
    time.sleep(0.1)
    second = threading.Thread(target=enter, args=("newcomer", False))
    second.start()
    time.sleep(0.1)
    assert order == []
    holder.__exit__(None, None, None)
    first.join(10)
    second.join(10)
    assert order == ["measurement", "newcomer"]


@pytest.mark.parametrize("bad", [[0.0, 1.0], [1.0]])
def test_intervals_of_nonsense_are_refused(bad):
    with pytest.raises(ValueError):
        ratio_interval(bad, [1.0, 1.0], 200)
