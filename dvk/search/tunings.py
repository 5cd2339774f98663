"""Schedule measurements of searches on this machine: one SQLite file, `$DVK_HOME/tunings.db`.

A row records a module's time with one of its kernels under a schedule, next to the composer's default schedule.
Kernels are identified by class (`classes`), so that measurements of one task serve the next. Of a task that is
searched again the last measurement counts. The file is a convenience: if it cannot be read or written, searches start from
what the composer knows by itself.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dvk import resources
from dvk.composer.ir.schedules.base import PrintedSchedule

PROTOCOL = 3
"""Raised when schedules, classes or defaults change their meaning; rows of another number are left alone."""
BUSY_S = 5.0
"""Longest wait for another process that writes."""
_TABLE = """
    CREATE TABLE IF NOT EXISTS tunings (
        protocol INTEGER, machine TEXT, backend TEXT, kernel TEXT, schedule TEXT, task TEXT, gain REAL, width REAL,
        PRIMARY KEY (protocol, machine, backend, kernel, schedule, task)
    ) WITHOUT ROWID
"""
_COLUMN = "ALTER TABLE tunings ADD COLUMN width REAL"
"""For files of before rows had it: theirs say nothing of how exact they are, and are taken at their word."""


@dataclass(frozen=True)
class ObservedGain:
    """One schedule of one kernel, measured in one task."""

    kernel: str
    """Its class."""
    schedule: PrintedSchedule
    gain: float
    """Module's speed under the schedule / under the composer's default."""
    width: float = 0.0
    """Half of the gain's 95 % interval, in logarithms."""


@dataclass(frozen=True)
class TunedSchedule:
    """Measurements of a schedule for a class of kernels."""

    schedule: PrintedSchedule
    gain: float
    """Geometric mean over tasks of speed / speed under the default."""
    num_tasks: int
    width: float = 0.0
    """Half of the gain's 95 % interval, in logarithms."""

    @property
    def most(self) -> float:
        """The upper end of the gain."""
        return self.gain * math.exp(self.width)


Known = dict[str, tuple[TunedSchedule, ...]]
"""Class → measurements of its schedules, best first."""


class Tunings:
    """The file.

    Args:
        machine: measurements of other machines do not apply here.
        backend: of the kernels.
        path: by default `$DVK_HOME/tunings.db`.
    """

    def __init__(self, machine: str, backend: str, path: Path | None = None):
        self.scope = (PROTOCOL, machine, backend)
        self.path = path or resources.home() / "tunings.db"

    def known(self, kernels: Iterable[str]) -> Known:
        """Measurements of these classes."""
        wanted = sorted(set(kernels))
        query = (
            "SELECT kernel, schedule, gain, width FROM tunings WHERE protocol = ? AND machine = ? AND backend = ? AND kernel IN "
            f"({', '.join('?' * len(wanted))})"
        )
        gains: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
        for kernel, schedule, gain, width in self._run(query, [(*self.scope, *wanted)]):
            gains[kernel, schedule].append((math.log(gain), width or 0.0))
        result: dict[str, list[TunedSchedule]] = defaultdict(list)
        for (kernel, schedule), logs in gains.items():
            gain, width = (
                math.exp(sum(log for log, _ in logs) / len(logs)),
                math.hypot(*(width for _, width in logs)) / len(logs),
            )
            result[kernel].append(TunedSchedule(json.loads(schedule), gain, len(logs), width))
        return {
            kernel: tuple(sorted(rows, key=lambda one: -one.gain))
            for kernel, rows in result.items()
        }

    def learn(self, task: str, observed: Sequence[ObservedGain]) -> None:
        """Record a task's measurements, under its id."""
        rows = [
            (
                *self.scope,
                one.kernel,
                json.dumps(one.schedule, sort_keys=True),
                task,
                one.gain,
                one.width,
            )
            for one in observed
        ]
        self._run("INSERT OR REPLACE INTO tunings VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def _run(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self.path, timeout=BUSY_S)) as connection, connection:
                connection.execute(_TABLE)
                with suppress(sqlite3.OperationalError):  # it is there
                    connection.execute(_COLUMN)
                return [
                    found for row in rows for found in connection.execute(statement, row).fetchall()
                ]
        except (OSError, sqlite3.Error):
            return []


def dumped(known: Known) -> dict[str, Any]:
    """The knowledge as JSON: a resumed search must know what it knew when it began."""
    return {kernel: [asdict(one) for one in rows] for kernel, rows in known.items()}


def loaded(found: dict[str, Any]) -> Known:
    """The opposite of `dumped`."""
    return {kernel: tuple(TunedSchedule(**one) for one in rows) for kernel, rows in found.items()}
