"""The decision about every row, stage after stage; rows refused by one stage skip the next."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dvk.config import Config
from dvk.learn.diversity import balance, capping, clusters, duplicates, filter, report
from dvk.learn.diversity.contamination import CONTAMINATED, Suites, source_of
from dvk.learn.diversity.rows import (
    SHAPE_PLACES,
    TEXT_PLACES,
    ExampleRow,
    ExampleRows,
    facts,
    sketched,
    words,
)
from dvk.learn.examples import Example
from dvk.learn.sources import Source, parsed
from dvk.learn.spread import spread
from dvk.records import content_hash

DUPLICATE = 0.9
"""Similarity of answers from which two are duplicates: a renamed copy, another block size."""
CLUSTER_KEEP = 0.9
"""Share of rows that an automatic cap keeps; with a target, it keeps 1.5 times the target. A model trained from scratch needs most:
with 0.5 it learned clearly less from as many tokens."""
CLUSTER_MIN = 32
"""Least automatic cap: smaller clusters do not dominate."""

VERSION = 1
"""Raise this number when the filter decides otherwise on equal input."""
BATCH = 1024
"""Examples read and sketched at a time."""
_ALONE = 64
"""Clusters below which cutting is faster than starting processes."""
Progress = Callable[[str, int, int], None]
"""(stage, done, of how many); 0 of 0 if the number is unknown."""
Fate = tuple[str, str] | None
"""(reason, detail) of a refused row; None for a kept one."""


def decide(
    source: Source,
    config: Config,
    known_skills: Collection[str] | None = None,
    progress: Progress | None = None,
    *,
    sifted: bool = False,
    workers: int = 1,
) -> tuple[list[Fate], dict[str, Any]]:
    """The fate of every example of a source, in its order, and the report.

    Args:
        sifted: rows have passed the tests of single rows (`sift`).
        workers: processes that read.
    """
    settings, seed, tell = config.diversity, config.seed, progress or _silent
    clock = _Clock()
    everything, fates, rows, places = _read(source, config, known_skills, tell, sifted, workers)
    clock.lap("read")

    def refuse(found: dict[int, tuple[str, str]]) -> None:
        for row, fate in found.items():
            fates[places[row]] = fate

    refuse(filter.slower_than_best(rows.facts))
    left = [row for row in range(len(rows)) if fates[places[row]] is None]

    tell("duplicates", 0, len(left))
    left, again = _without_duplicates(rows, left)
    refuse(again)
    clock.lap("duplicates")

    tell("clusters", 0, len(left))
    labels = dict(zip(left, clusters.assign(rows, left, settings, seed, workers).tolist()))
    clock.lap("clusters")

    cap = settings.cluster_cap or _water_level(Counter(labels.values()).values(), settings.target)
    rank, full = _capped(source, rows, places, labels, cap, tell, workers)
    refuse(full)
    clock.lap("caps")

    tell("balance", 0, len(rank))
    order = sorted(
        rank, key=lambda row: (rank[row], content_hash(str(seed), str(rows.facts[row].digest)), row)
    )
    choice = balance.choose(
        [rows.facts[row] for row in order], [labels[row] for row in order], settings
    )
    refuse({order[position]: fate for position, fate in choice.refused.items()})
    clock.lap("balance")

    kept = [labels[order[position]] for position in choice.taken]
    sizes = {"cap": cap, "before": report.sizes(list(labels.values())), "after": report.sizes(kept)}
    return fates, _report(config, everything, fates, sizes, choice.shares, clock.laps)


def _without_duplicates(
    rows: ExampleRows, left: list[int]
) -> tuple[list[int], dict[int, tuple[str, str]]]:
    """The rows of `left` that are no duplicate of a better one, best first, and the fates of the others."""
    left = sorted(left, key=lambda row: _best_first(rows.facts[row]))
    part = np.array(left, dtype=np.int64)
    alike = np.array([rows.facts[row].alike for row in left], dtype=np.uint64)
    instead = duplicates.find(rows.text[part], alike, range(len(left)), DUPLICATE).tolist()
    refused = {
        row: ("duplicate", f"of {rows.facts[left[other]].id}")
        for row, other in zip(left, instead)
        if other >= 0
    }
    return [row for row, other in zip(left, instead) if other < 0], refused


def _water_level(sizes: Collection[int], target: int) -> int:
    """The automatic cap for clusters of these sizes."""
    room = int(target * 1.5 if target else CLUSTER_KEEP * sum(sizes))
    return max(CLUSTER_MIN, capping.water_level(list(sizes), room))


def _capped(
    source: Source,
    rows: ExampleRows,
    places: Sequence[int],
    labels: dict[int, int],
    cap: int,
    tell: Progress,
    workers: int,
) -> tuple[dict[int, int], dict[int, tuple[str, str]]]:
    """At most `cap` rows of each cluster, each with its rank there, and the fates of the others."""
    best = _best(rows.facts[row] for row in labels)
    members: dict[int, list[int]] = {}
    for row in sorted(labels, key=lambda row: _merit(rows.facts[row], best)):
        members.setdefault(labels[row], []).append(row)
    pools = [
        [places[row] for row in pool]
        for cluster in members.values()
        if (pool := capping.pool(cluster, cap))
    ]
    cuts: list[list[int]] = []
    for found in spread(_Spreading(source, cap), pools, workers if len(pools) > _ALONE else 1):
        tell("caps", len(cuts), len(pools))
        cuts.append(found)
    cut = iter(cuts)
    rank: dict[int, int] = {}
    refused: dict[int, tuple[str, str]] = {}
    for cluster in members.values():
        chosen = capping.keep(cluster, cap, next(cut) if len(cluster) > cap else ())
        rank.update({row: place for place, row in enumerate(chosen)})
        detail = f"{cap} of its cluster's {len(cluster)} rows are kept"
        refused.update({row: ("cluster_full", detail) for row in cluster if row not in rank})
    return rank, refused


def _report(
    config: Config,
    everything: Sequence[ExampleRow],
    fates: Sequence[Fate],
    clusters: dict[str, Any],
    shares: dict[str, float],
    seconds: dict[str, float],
) -> dict[str, Any]:
    kept = [row for row, fate in zip(everything, fates) if fate is None]
    reasons = Counter(fate[0] for fate in fates if fate is not None)
    return {
        "version": VERSION,
        "seed": config.seed,
        "settings": config.diversity.model_dump(mode="json"),
        "num_rows": len(fates),
        "num_kept": len(kept),
        "reasons": dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))),
        "clusters": clusters,
        "shares": shares,
        "before": report.coverage(everything),
        "after": report.coverage(kept),
        "seconds": seconds,
    }


@dataclass(frozen=True)
class _Reading:
    """Work on a batch of rows before they are compared; sent to worker processes."""

    config: Config
    known_skills: frozenset[str] | None
    suites: Suites
    sifted: bool

    def __call__(
        self, batch: Sequence[Any]
    ) -> tuple[list[ExampleRow], list[Fate], np.ndarray, np.ndarray]:
        """Facts and fates of all its rows; sketches of the remaining ones."""
        everything: list[ExampleRow] = []
        fates: list[Fate] = []
        left: list[Example] = []
        for example in parsed(batch):
            fate = None if self.sifted else filter.reason(example, self.known_skills)
            if (
                fate is None
                and self.suites.names
                and (module := source_of(example))
                and (found := self.suites.match(module))
            ):
                fate = ("contaminated", found)
            everything.append(facts(example))
            fates.append(fate)
            if fate is None:
                left.append(example)
        return everything, fates, *sketched(left)


@dataclass(frozen=True)
class _Spreading:
    """Work on the rows of a cluster that is too large; sent to worker processes."""

    source: Source
    cap: int

    def __call__(self, pool: Sequence[int]) -> list[int]:
        return capping.spread_out([words(self.source.at(place)) for place in pool], self.cap)


def _read(
    source: Source,
    config: Config,
    known_skills: Collection[str] | None,
    tell: Progress,
    sifted: bool,
    workers: int,
) -> tuple[list[ExampleRow], list[Fate], ExampleRows, list[int]]:
    """One pass: facts of all rows, fates so far, rows not refused with their sketches, and where those are."""
    settings = config.diversity
    suites = Suites(() if sifted else settings.suites, CONTAMINATED)
    reading = _Reading(
        config, frozenset(known_skills) if known_skills is not None else None, suites, sifted
    )
    everything: list[ExampleRow] = []
    fates: list[Fate] = []
    text, shape = (
        [np.zeros((0, TEXT_PLACES), dtype=np.uint32)],
        [np.zeros((0, SHAPE_PLACES), dtype=np.uint8)],
    )
    for found, decided, one, other in spread(reading, source.batches(BATCH), workers):
        everything += found
        fates += decided
        text.append(one)
        shape.append(other)
        tell("read", len(everything), 0)
    places = [place for place, fate in enumerate(fates) if fate is None]
    return (
        everything,
        fates,
        ExampleRows(
            [everything[place] for place in places], np.concatenate(text), np.concatenate(shape)
        ),
        places,
    )


# ---------------------------------------------------------------- orders


def _best_first(row: ExampleRow) -> tuple[float, int, int]:
    """The better of two duplicates: the faster one, then the shorter one."""
    return -(row.speedup or 0.0), row.length, row.digest


def _best(rows: Iterable[ExampleRow]) -> dict[str, float]:
    best: dict[str, float] = {}
    for row in rows:
        best[row.task] = max(best.get(row.task, 0.0), row.speedup or 0.0)
    return best


def _merit(row: ExampleRow, best: dict[str, float]) -> tuple[float, int, int]:
    """The better of two rows about different tasks: the one nearer to its task's best known speedup, in steps above the noise."""
    top = best[row.task]
    return -round((row.speedup or 0.0) / top, 1) if top else 0.0, row.length, row.digest


def _silent(stage: str, done: int, total: int) -> None:
    """Ignores progress."""


class _Clock:
    """Seconds by stage."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.monotonic()

    def lap(self, stage: str) -> None:
        now = time.monotonic()
        self.laps[stage] = round(now - self._last, 3)
        self._last = now
