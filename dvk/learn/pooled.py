"""What a plan gains on average: the measured gains of all tasks, pooled by the words of the plans.

    plan +own_matmul            gain over the task's first answer ≈ sum of its words' gains:
    k0 = looped xblock 8        a change of recipes each, and the kind of each kernel's schedule

One task's measurements say little: the fastest of a dozen schedules is so by the clock's noise and by what no question says. A word that
many tasks share is known well, and carries over to tasks that were never measured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

PENALTY = 0.25
"""Of ridge regression, in tasks that show no gain of a word."""
MOST, LEAST = 1.5, -0.7
"""Gains beyond these, in log-speed, count as these: one task must not decide what a word gains."""


def words(text: str) -> Counter[str]:
    """Of a plan: its changes of recipes, and how many kernels have a schedule of each kind."""
    first, *kernels = text.split("\n")
    found = Counter(first.split()[1:])
    for line in kernels:
        kernel_names, _, schedule = line.partition(" = ")
        found.update(["kernel", f"kernel {schedule.split(' ')[0]}"] * len(kernel_names.split()))
    return found


class PooledGains:
    """Gains of words, fitted by ridge regression; each task weighs the same.

    Args:
        tasks: of each its plans' texts, and their log-speedups; the first is what others gain over.
    """

    def __init__(self, tasks: Iterable[tuple[Sequence[str], Sequence[float]]]):
        rows, gains, weights = list[Counter[str]](), list[float](), list[float]()
        for texts, speeds in tasks:
            rows += map(words, texts)
            gains += [min(max(speed - speeds[0], LEAST), MOST) for speed in speeds]
            weights += [1 / len(texts)] * len(texts)
        names = sorted({name for row in rows for name in row})
        table = np.array([[row[name] for name in names] for row in rows], dtype=np.float64)
        table = table.reshape(len(rows), len(names))
        weighted = table * np.array(weights)[:, None]
        found = np.linalg.solve(
            table.T @ weighted + PENALTY * np.eye(len(names)), weighted.T @ np.array(gains)
        )
        self.of_word: dict[str, float] = dict(zip(names, found.tolist(), strict=True))

    def gain(self, text: str) -> float:
        """Log-speed over a task's first answer; words that were not measured gain nothing."""
        return sum(count * self.of_word.get(name, 0.0) for name, count in words(text).items())
