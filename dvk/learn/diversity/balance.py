"""Balance: the order of rows that covers kinds, levels, operators, skills and clusters, and the point to stop.

Rows are taken greedily by their gain in Σ over facets of (1 / values) Σ over values of log(1 + count): a concave
coverage function, for which greedy choice reaches at least 1 − 1/e of the best (Nemhauser 1978); here in rounds, so that the
time does not grow with the square of the rows.
Two facets also have a largest share: no skill may be in more than a share of the rows that have skills (otherwise training
collapses on a few skills), no operator in more than a share of those that have operators. The limits hold
at every moment, so they hold at the end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from dvk.config import DiversityConfig
from dvk.learn.diversity.rows import ExampleRow

SKILL_SHARE = 0.2
"""Largest share of one skill in the rows with skills; more if there are few skills."""
SHARE_FROM = 24
"""Rows that one skill or operator may always have: those of two or three tasks."""
OPERATOR_SHARE = 0.7
"""Largest share of one operator: mul is in 61 % of rows; half would cost a fifth of all for 8 % diversity."""

_ROUND = 0.05
"""Rows taken between two computations of all gains, as a share of those taken so far; the first twenty are taken one by one."""
_STALE = 0.5
"""Within a round, a row whose gain has fallen below this share of its initial gain waits for the next."""


@dataclass(frozen=True)
class Choice:
    """Rows taken and rows left out."""

    taken: list[int]
    """Positions, in the order taken."""
    refused: dict[int, tuple[str, str]]
    """Position → (reason, detail)."""
    shares: dict[str, float]
    """The largest share that held, by facet; above the setting if fewer values make that impossible."""


def effective_number(counts: Iterable[float]) -> float:
    """exp(entropy): the number of equally frequent values with the same diversity; 0 without values."""
    known = [count for count in counts if count > 0]
    total = sum(known)
    return (
        math.exp(-sum(count / total * math.log(count / total) for count in known)) if total else 0.0
    )


def feasible_share(share: float, lists: Sequence[Sequence[str]]) -> float:
    """The largest share a value may have: `share`, or more if there are few values.

    Args:
        lists: the values of every row that has some. With V values, n a row on average, each has a share of n / V if all
            are equal; half as much again leaves room to choose.
    """
    values = {value for row in lists for value in row}
    if not values:
        return share
    return min(1.0, max(share, 1.5 * sum(map(len, lists)) / len(lists) / len(values)))


def choose(
    rows: Sequence[ExampleRow], clusters: Sequence[int], settings: DiversityConfig
) -> Choice:
    """Take rows until the target is reached or no row may be taken.

    Args:
        rows: best first: of rows with equal gain the earlier one is taken.
        clusters: the cluster of each.
    """
    limited = {"skill": [row.skills for row in rows], "operator": [row.operators for row in rows]}
    shares = {
        "skill": feasible_share(SKILL_SHARE, [values for values in limited["skill"] if values]),
        "operator": feasible_share(
            OPERATOR_SHARE, [values for values in limited["operator"] if values]
        ),
    }
    values = {
        "kind": [row.kind for row in rows],
        "level": [row.level for row in rows],
        "cluster": list(map(str, clusters)),
        "skill": chain.from_iterable(limited["skill"]),
        "operator": chain.from_iterable(limited["operator"]),
    }
    numbers: dict[str, dict[str, int]] = {}
    names: list[tuple[str, str]] = []
    for facet, found in values.items():
        numbers[facet] = {
            value: number for number, value in enumerate(dict.fromkeys(found), start=len(names))
        }
        names += [(facet, value) for value in numbers[facet]]
    capped = {
        facet: [[numbers[facet][name] for name in own] for own in lists]
        for facet, lists in limited.items()
    }
    facets = [
        [
            numbers["kind"][row.kind],
            numbers["level"][row.level],
            numbers["cluster"][str(cluster)],
            *skills,
            *operators,
        ]
        for row, cluster, skills, operators in zip(
            rows, clusters, capped["skill"], capped["operator"]
        )
    ]
    # A facet with several values in a row counts once, and each facet as much as any other when all is even.
    one = {facet: 1.0 / len(found) if found else 0.0 for facet, found in numbers.items()}
    alone = [one["kind"], one["level"], one["cluster"]]
    weights = [
        alone
        + [one["skill"] / (len(skills) or 1)] * len(skills)
        + [one["operator"] / (len(operators) or 1)] * len(operators)
        for skills, operators in zip(capped["skill"], capped["operator"])
    ]
    sizes = np.fromiter(map(len, facets), dtype=np.int64, count=len(rows))
    flat = np.fromiter(chain.from_iterable(facets), dtype=np.int64, count=int(sizes.sum()))
    weight = np.fromiter(chain.from_iterable(weights), dtype=np.float64, count=len(flat))
    owner, begins = np.repeat(np.arange(len(rows)), sizes), sizes.cumsum() - sizes
    facet_of = {
        facet: np.array([name == facet for name, _ in names], dtype=bool) for facet in shares
    }
    counts = [0] * len(names)
    totals = {facet: 0 for facet in shares}
    goal = settings.target or len(rows)
    # If one task makes a dozen rows, a share of a few dozen says nothing about dominance: it would leave out all but a few.
    least = max(1, SHARE_FROM)

    def blocked(position: int) -> tuple[str, str] | None:
        """(facet, value) if a limit forbids the row now."""
        for facet, share in shares.items():
            most = max(least, math.floor(share * (totals[facet] + 1) + 1e-9))
            for value in capped[facet][position]:
                if counts[value] >= most:
                    return names[value]
        return None

    limiting = {facet: [bool(values) for values in lists] for facet, lists in limited.items()}
    taken: list[int] = []
    rest = np.ones(len(rows), dtype=bool)
    while len(taken) < goal:
        room = min(goal, len(taken) + max(1, int(_ROUND * len(taken))))
        known = np.array(counts, dtype=np.int64)
        gains = np.bincount(owner, weights=weight / (1.0 + known)[flat], minlength=len(rows))
        # Rows that no row of this round can make admissible are skipped as a group.
        most = {
            facet: max(float(least), share * (totals[facet] + room - len(taken)) + 1e-9)
            for facet, share in shares.items()
        }
        over = np.zeros(len(names), dtype=bool)
        for facet, found in facet_of.items():
            over |= found & (known + 1 > most[facet])
        candidates = np.flatnonzero(
            rest & ~np.logical_or.reduceat(over[flat], begins) if over.any() else rest
        )
        before = len(taken)
        for position in _highest_first(candidates, gains, 4 * (room - len(taken)) + 64):
            if len(taken) == room:
                break
            now = sum(
                [
                    each / (1 + counts[value])
                    for each, value in zip(weights[position], facets[position])
                ]
            )
            if now < _STALE * gains[position] or blocked(position):
                continue
            taken.append(position)
            rest[position] = False
            for value in facets[position]:
                counts[value] += 1
            for facet in shares:
                totals[facet] += limiting[facet][position]
        if len(taken) == before:
            break
    refused: dict[int, tuple[str, str]] = {}
    for position in np.flatnonzero(rest).tolist():
        stop = blocked(position) if len(taken) < goal else None
        if stop:
            facet, name = stop
            refused[position] = (
                f"{facet}_share",
                f"{name} is in {counts[numbers[facet][name]]} of {totals[facet]} rows already",
            )
        else:
            refused[position] = ("over_target", f"{goal} rows are kept")
    return Choice(taken, refused, shares)


def _highest_first(candidates: np.ndarray, gains: np.ndarray, about: int) -> Iterator[int]:
    """The candidates by falling gain, of equal ones the earlier first; sorted in batches of about `about`."""
    while candidates.size:
        held = gains[candidates]
        near = held >= (
            np.partition(held, held.size - about)[held.size - about]
            if held.size > about
            else -np.inf
        )
        highest, candidates, about = candidates[near], candidates[~near], 4 * about
        yield from highest[np.argsort(-gains[highest], kind="stable")].tolist()
