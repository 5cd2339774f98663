"""Balance: which rows to take first so that kinds, levels, operators, skills and clusters are all seen, and when to stop.

Rows are taken greedily by what they add to Σ over facets of (1 / values) Σ over values of log(1 + count): a concave
coverage function, of which greedy choice reaches at least 1 − 1/e of the best (Nemhauser 1978); here in rounds, so that the
time does not grow with the square of the rows.
Two facets also have a largest share: no skill may be in more than a share of the rows that have skills (otherwise training
collapses on a few skills), no operator in more than a share of those that have operators. The limits hold
at every moment, so they hold at the end.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dvk.config import Diversity
from dvk.learn.diversity.rows import Row

_ROUND = 0.05
"""Rows taken between two computations of all gains, as a share of those taken so far; the first twenty are taken one by one."""
_STALE = 0.5
"""Within a round, a row whose gain has fallen below this share of what it was waits for the next."""


@dataclass(frozen=True)
class Choice:
    """What was taken and what not."""

    taken: list[int]
    """Positions, in the order taken."""
    refused: dict[int, tuple[str, str]]
    """Position → (reason, detail)."""
    shares: dict[str, float]
    """The largest share that held, by facet; above the setting where fewer values make that impossible."""


def effective_number(counts: Iterable[float]) -> float:
    """exp(entropy): how many equally frequent values would be as diverse; 0 of nothing."""
    known = [count for count in counts if count > 0]
    total = sum(known)
    return math.exp(-sum(count / total * math.log(count / total) for count in known)) if total else 0.0


def feasible_share(share: float, lists: Sequence[Sequence[str]]) -> float:
    """The largest share a value may have: `share`, or what fewer values allow.

    Args:
        lists: the values of every row that has some. With V values, n a row on average, each has a share of n / V where all
            are equal; half as much again leaves room to choose.
    """
    values = {value for row in lists for value in row}
    if not values:
        return share
    return min(1.0, max(share, 1.5 * sum(map(len, lists)) / len(lists) / len(values)))


def choose(rows: Sequence[Row], clusters: Sequence[int], settings: Diversity) -> Choice:
    """Take rows until the target is reached or no row may be taken.

    Args:
        rows: best first: between rows that add equally much the earlier one is taken.
        clusters: the cluster of each.
    """
    limited = {"skill": [row.skills for row in rows], "operator": [row.operators for row in rows]}
    shares = {
        "skill": feasible_share(settings.skill_share, [values for values in limited["skill"] if values]),
        "operator": feasible_share(settings.operator_share, [values for values in limited["operator"] if values]),
    }
    numbers: dict[tuple[str, str], int] = {}
    facets = [
        [numbers.setdefault(value, len(numbers)) for value in (
            ("kind", row.kind), ("level", row.level), ("cluster", str(cluster)), *(("skill", name) for name in row.skills),
            *(("operator", name) for name in row.operators))]
        for row, cluster in zip(rows, clusters)
    ]  # fmt: skip
    num_values = Counter(facet for facet, _ in numbers)
    # A facet of which a row has several values counts once, and each facet as much as any other when all is even.
    weights = [[1.0 / num_values["kind"], 1.0 / num_values["level"], 1.0 / num_values["cluster"],
                *[1.0 / num_values["skill"] / len(row.skills) for _ in row.skills],
                *[1.0 / num_values["operator"] / len(row.operators) for _ in row.operators]] for row in rows]  # fmt: skip
    flat = np.array([value for values in facets for value in values], dtype=np.int64)
    weight = np.array([one for ones in weights for one in ones])
    owner = np.repeat(np.arange(len(rows)), [len(values) for values in facets])
    facet_of = {facet: np.array([key[0] == facet for key in numbers], dtype=bool) for facet in shares}
    counts = [0] * len(numbers)
    totals = {facet: 0 for facet in shares}
    goal = settings.target or len(rows)
    # Where one task makes a dozen rows, a share of a few dozen says nothing of what dominates: it would leave out all but a few.
    least = max(1, settings.share_from)

    def blocked(position: int) -> tuple[str, str] | None:
        """(facet, value) if a limit forbids the row now."""
        for facet, share in shares.items():
            for name in limited[facet][position]:
                if counts[numbers[facet, name]] + 1 > max(least, math.floor(share * (totals[facet] + 1) + 1e-9)):
                    return facet, name
        return None

    taken: list[int] = []
    rest = np.ones(len(rows), dtype=bool)
    while len(taken) < goal:
        room = min(goal, len(taken) + max(1, int(_ROUND * len(taken))))
        known = np.array(counts, dtype=np.int64)
        gains = np.bincount(owner, weights=weight / (1 + known[flat]), minlength=len(rows))
        # What no row of this round can make admissible is not looked at one by one.
        most = {facet: max(float(least), share * (totals[facet] + room - len(taken)) + 1e-9) for facet, share in shares.items()}
        over = np.zeros(len(numbers), dtype=bool)
        for facet, found in facet_of.items():
            over |= found & (known + 1 > most[facet])
        order = np.flatnonzero(rest & (np.bincount(owner, weights=over[flat], minlength=len(rows)) == 0))
        order = order[np.argsort(-gains[order], kind="stable")].tolist()
        before = len(taken)
        for position in order:
            if len(taken) == room:
                break
            now = sum([one / (1 + counts[value]) for one, value in zip(weights[position], facets[position])])
            if now < _STALE * gains[position] or blocked(position):
                continue
            taken.append(position)
            rest[position] = False
            for value in facets[position]:
                counts[value] += 1
            for facet in shares:
                totals[facet] += bool(limited[facet][position])
        if len(taken) == before:
            break
    refused: dict[int, tuple[str, str]] = {}
    for position in np.flatnonzero(rest).tolist():
        stop = blocked(position) if len(taken) < goal else None
        if stop:
            facet, name = stop
            refused[position] = (f"{facet}_share", f"{name} is in {counts[numbers[facet, name]]} of {totals[facet]} rows already")
        else:
            refused[position] = ("over_target", f"{goal} rows are kept")
    return Choice(taken, refused, shares)
