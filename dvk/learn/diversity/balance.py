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
    shares = {
        "skill": feasible_share(SKILL_SHARE, [row.skills for row in rows if row.skills]),
        "operator": feasible_share(
            OPERATOR_SHARE, [row.operators for row in rows if row.operators]
        ),
    }
    goal = settings.target or len(rows)
    taking = _Taking(_Facets.of(rows, clusters), shares)
    while len(taking.taken) < goal:
        before = len(taking.taken)
        taking.play_round(min(goal, before + max(1, int(_ROUND * before))))
        if len(taking.taken) == before:
            break
    return Choice(taking.taken, taking.refusals(goal), shares)


@dataclass(frozen=True)
class _Facets:
    """Every value of every facet has a number; each row has some of them."""

    names: list[tuple[str, str]]
    """(facet, value) by number."""
    of_row: list[list[int]]
    """The numbers of each row's values."""
    weights: list[list[float]]
    """What each of them adds to the coverage when it is new."""
    capped: dict[str, list[list[int]]]
    """For the facets with a largest share: those numbers of each row alone."""

    @classmethod
    def of(cls, rows: Sequence[ExampleRow], clusters: Sequence[int]) -> _Facets:
        """Number the values in the order in which they are first seen, facet after facet."""
        limited = {
            "skill": [row.skills for row in rows],
            "operator": [row.operators for row in rows],
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
        for facet, each in values.items():
            numbers[facet] = {
                value: number for number, value in enumerate(dict.fromkeys(each), start=len(names))
            }
            names += [(facet, value) for value in numbers[facet]]
        capped = {
            facet: [[numbers[facet][name] for name in own] for own in lists]
            for facet, lists in limited.items()
        }
        of_row = [
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
        one = {facet: 1.0 / len(each) if each else 0.0 for facet, each in numbers.items()}
        alone = [one["kind"], one["level"], one["cluster"]]
        weights = [
            alone
            + [one["skill"] / (len(skills) or 1)] * len(skills)
            + [one["operator"] / (len(operators) or 1)] * len(operators)
            for skills, operators in zip(capped["skill"], capped["operator"])
        ]
        return cls(names, of_row, weights, capped)


class _Taking:
    """Rows taken so far, with the counts that decide what the others would gain and whether they may be taken."""

    def __init__(self, facets: _Facets, shares: dict[str, float]) -> None:
        self.facets = facets
        self.shares = shares
        # If one task makes a dozen rows, a share of a few dozen says nothing about dominance: it would leave out all but a few.
        self.least = max(1, SHARE_FROM)
        self.taken: list[int] = []
        self.counts = [0] * len(facets.names)
        self.totals = dict.fromkeys(shares, 0)
        """Rows taken that have any value of a limited facet."""
        self.rest = np.ones(len(facets.of_row), dtype=bool)
        sizes = np.fromiter(map(len, facets.of_row), dtype=np.int64, count=len(facets.of_row))
        total = int(sizes.sum())
        self._flat = np.fromiter(chain.from_iterable(facets.of_row), dtype=np.int64, count=total)
        self._weight = np.fromiter(
            chain.from_iterable(facets.weights), dtype=np.float64, count=total
        )
        self._owner = np.repeat(np.arange(len(sizes)), sizes)
        self._begins = sizes.cumsum() - sizes
        self._is_of = {
            facet: np.array([name == facet for name, _ in facets.names], dtype=bool)
            for facet in shares
        }

    def play_round(self, room: int) -> None:
        """Take rows by their gain until `room` rows are taken or none of the candidates may be."""
        gains = self._gains()
        wanted = room - len(self.taken)
        for position in _highest_first(self._admissible(wanted), gains, 4 * wanted + 64):
            if len(self.taken) == room:
                break
            if self._gain(position) >= _STALE * gains[position] and not self.blocked(position):
                self._take(position)

    def blocked(self, position: int) -> tuple[str, str] | None:
        """(facet, value) if a limit forbids the row now."""
        for facet, share in self.shares.items():
            most = max(self.least, math.floor(share * (self.totals[facet] + 1) + 1e-9))
            for value in self.facets.capped[facet][position]:
                if self.counts[value] >= most:
                    return self.facets.names[value]
        return None

    def refusals(self, goal: int) -> dict[int, tuple[str, str]]:
        """Position → (reason, detail) of the rows that were not taken."""
        number_of = {name: number for number, name in enumerate(self.facets.names)}
        refused: dict[int, tuple[str, str]] = {}
        for position in np.flatnonzero(self.rest).tolist():
            stop = self.blocked(position) if len(self.taken) < goal else None
            if stop:
                facet, name = stop
                refused[position] = (
                    f"{facet}_share",
                    f"{name} is in {self.counts[number_of[stop]]} of {self.totals[facet]} rows already",
                )
            else:
                refused[position] = ("over_target", f"{goal} rows are kept")
        return refused

    def _gains(self) -> np.ndarray:
        """What each row would add to the coverage now."""
        counts = np.array(self.counts, dtype=np.int64)
        return np.bincount(
            self._owner,
            weights=self._weight / (1.0 + counts)[self._flat],
            minlength=len(self.facets.of_row),
        )

    def _gain(self, position: int) -> float:
        counts = self.counts
        return sum(
            [
                each / (1 + counts[value])
                for each, value in zip(self.facets.weights[position], self.facets.of_row[position])
            ]
        )

    def _admissible(self, wanted: int) -> np.ndarray:
        """Positions left, without those that no `wanted` rows can make admissible: they are skipped as a group."""
        counts = np.array(self.counts, dtype=np.int64)
        over = np.zeros(len(counts), dtype=bool)
        for facet, share in self.shares.items():
            most = max(float(self.least), share * (self.totals[facet] + wanted) + 1e-9)
            over |= self._is_of[facet] & (counts + 1 > most)
        if not over.any():
            return np.flatnonzero(self.rest)
        return np.flatnonzero(self.rest & ~np.logical_or.reduceat(over[self._flat], self._begins))

    def _take(self, position: int) -> None:
        self.taken.append(position)
        self.rest[position] = False
        for value in self.facets.of_row[position]:
            self.counts[value] += 1
        for facet in self.shares:
            self.totals[facet] += bool(self.facets.capped[facet][position])


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
