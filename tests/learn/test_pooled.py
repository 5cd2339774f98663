"""Gains pooled by words."""

from __future__ import annotations

import pytest

from dvk.learn.pooled import PooledGains, words


def test_words_are_changes_and_kinds_of_schedules() -> None:
    text = "plan +own_matmul -fold\nk0 = looped xblock 8\nk3 = looped xblock 1"
    assert words(text) == {"+own_matmul": 1, "-fold": 1, "kernel": 2, "kernel looped": 2}
    assert not words("plan")
    assert words("plan\nk0 k3 = flat block 256")["kernel flat"] == 2, "equal kernels share a line"


def test_what_many_tasks_show_counts_and_one_lucky_schedule_does_not() -> None:
    texts = ["plan", "plan +own_matmul", "plan\nk0 = looped xblock 8", "plan\nk0 = looped xblock 4"]
    tasks = [(texts, [0.5, 0.8, 0.3, 0.7 if number == 0 else 0.3]) for number in range(20)]
    pooled = PooledGains(tasks)
    assert pooled.gain("plan") == 0.0 and pooled.gain("plan +never_measured") == 0.0
    assert pooled.gain("plan +own_matmul") == pytest.approx(0.3, rel=0.1)
    assert pooled.gain(texts[3]) == pooled.gain(texts[2]) == pytest.approx(-0.2, rel=0.15)
    best = max(texts, key=pooled.gain)
    assert best == "plan +own_matmul", "also for the task where another one was faster"
