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
        self.texts: list[Sequence[str]] = []
        for texts, speeds in tasks:
            self.texts.append(texts)
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
        self.measured = gains
        self.of_word: dict[str, float] = dict(zip(names, found.tolist(), strict=True))

    def gain(self, text: str) -> float:
        """Log-speed over a task's first answer; words that were not measured gain nothing."""
        return sum(count * self.of_word.get(name, 0.0) for name, count in words(text).items())

    def shrunk(self, noise: Sequence[Sequence[float]]) -> list[list[float]]:
        """The gains of each task's plans, measured ones moved to the pooled ones as far as they are noise (empirical Bayes).

        What a measurement m adds to the pooled gain p is taken for p + s (m - p), s = v / (v + noise), where v, the variance of real
        differences, is that of m - p less the mean noise.

        Args:
            noise: variance of each plan's log-speedup, tasks and plans in the order that they were given in.
        """
        pooled = np.array([self.gain(text) for texts in self.texts for text in texts])
        apart = np.array(self.measured) - pooled
        variance = np.array([one for of_task in noise for one in of_task])
        finite = np.isfinite(variance)
        real = max(
            0.0, float(np.mean(apart[finite] ** 2 - variance[finite])) if finite.any() else 0.0
        )
        share = np.where(variance > 0, real / np.maximum(real + variance, 1e-12), 1.0)
        found = iter((pooled + share * apart).tolist())
        return [[next(found) for _ in texts] for texts in self.texts]
