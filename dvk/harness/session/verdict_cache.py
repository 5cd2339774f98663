"""Cache of verdicts: a machine judges the same candidate once per protocol.

One SQLite file, `$DVK_HOME/verdicts.db`, shared by all processes and threads of a user. The key contains everything that a verdict depends
on, so no entry is ever stale: see `key`. Any problem with the file (unwritable, locked for long, torn) costs a cache entry and raises
nothing.

Not stored: verdicts that may differ on another day (`is_cacheable`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from pydantic import ValidationError

from dvk import machine, resources
from dvk.config import Config
from dvk.harness.session.judge_spec import Judge, JudgeSpec
from dvk.harness.session.verdicts import short_of_memory
from dvk.records import PROTOCOL, Candidate, Status, Task, Tier, Verdict, content_hash

MAX_BYTES = 256 << 20
"""About 100,000 verdicts; the oldest go first."""
BUSY_S = 5.0
"""Longest wait for another writing process."""
TRIM_EVERY = 64
"""Insertions between two checks of the file's size."""

_inherited: list[sqlite3.Connection] = []
"""Connections of a parent that forked: SQLite forbids a child to use them, even to close them."""

_NEVER = (Status.BROKEN_TASK, Status.TIMEOUT)


def key(
    task: Task,
    candidate: Candidate,
    tier: Tier,
    baselines: Sequence[str],
    config: Config,
    flags: Mapping[str, object] | None = None,
) -> str:
    """Return sixteen hex digits: equal exactly for equal requests to the judge.

    Args:
        task: its id is a content hash of reference, inputs, mode, dtype and device; its shape variants count, too.
        candidate: source and back end.
        tier: the tier.
        baselines: in any order.
        config: the judge's settings and the limits.
        flags: further settings, e.g. contract, require_kernels, backward; values are compared by their repr.
    """
    asked = ",".join(f"{name}={value!r}" for name, value in sorted((flags or {}).items()))
    return content_hash(
        f"protocol {PROTOCOL}",
        candidate.source,
        candidate.backend,
        candidate.line,
        task.id,
        repr(task.shape_variants),
        task.precision,
        tier,
        ",".join(sorted(baselines)),
        config.judge.model_dump_json(),
        config.limits.model_dump_json(),
        asked,
        machine.fingerprint(task.device),
        machine.isa(),
        _packages(),
    )


def judged(
    judge: Judge, candidate: Candidate, spec: JudgeSpec, known: Remembered | None, key: str
) -> Verdict:
    """The verdict that is kept under `key`, else the judge's, which is kept."""
    if known is not None and (verdict := known.recall(key)) is not None:
        return verdict
    verdict = judge.judge(candidate, spec.tier, spec.baselines)
    assert verdict is not None, "there is no deadline"
    if known is not None:
        known.remember(key, verdict)
    return verdict


@cache
def _packages() -> str:
    return ",".join(f"{name}={machine.version(name)}" for name in machine.PACKAGES)


def is_cacheable(verdict: Verdict) -> bool:
    """Whether another day would give the same: no claim (it measures the present), and no effect of the machine's load."""
    judged = bool(verdict.machine)  # else it did not finish
    return (
        judged
        and verdict.status not in _NEVER
        and verdict.tier != "claim"
        and not verdict.cached
        and short_of_memory(verdict) is None
    )


class Remembered:
    """The verdict cache. Open one per process; threads may share it.

    Args:
        path: the file, by default `$DVK_HOME/verdicts.db`.
        max_bytes: beyond this size the oldest verdicts are dropped.
    """

    def __init__(self, path: Path | None = None, max_bytes: int = MAX_BYTES):
        self.path = path or resources.home() / "verdicts.db"
        self.max_bytes = max_bytes
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._owner = (0, 0)
        """Process and inode of the connection."""
        self._insertions = 0

    def recall(self, key: str) -> Verdict | None:
        """Return the verdict stored under `key`, marked `cached`; None if there is none."""
        row = self._run("SELECT verdict FROM verdicts WHERE key = ?", (key,))
        if not row:
            return None
        try:
            return Verdict.model_validate_json(row[0][0]).model_copy(update={"cached": True})
        except ValidationError:  # written by another version of dvk under the same protocol number
            return None

    def remember(self, key: str, verdict: Verdict) -> None:
        """Store a verdict, if it is repeatable."""
        if not is_cacheable(verdict):
            return
        text = verdict.model_dump_json(exclude_defaults=True)
        self._run(
            "INSERT OR REPLACE INTO verdicts (key, verdict) VALUES (?, ?)", (key, text), writes=True
        )

    def __len__(self) -> int:
        rows = self._run("SELECT count(*) FROM verdicts", ())
        return int(rows[0][0]) if rows else 0

    def close(self) -> None:
        """Close the file; it is opened again when needed."""
        with self._lock:
            self._drop()

    # ------------------------------------------------------------ the file

    def _run(
        self, statement: str, values: tuple[str, ...], writes: bool = False
    ) -> list[tuple[str]]:
        with self._lock:
            for attempt in range(2):
                try:
                    connection = self._open()
                    rows: list[tuple[str]] = connection.execute(statement, values).fetchall()
                    self._insertions += writes
                    if writes and self._insertions % TRIM_EVERY == 1:
                        self._trim(connection)
                    return rows
                except (
                    OSError,
                    sqlite3.OperationalError,
                ):  # unwritable, full, or locked for too long
                    self._drop()
                    break
                except sqlite3.DatabaseError:  # not a database, or a damaged one
                    self._drop()
                    if attempt == 0:
                        self._set_aside()
            return []

    def _open(self) -> sqlite3.Connection:
        if self._connection is not None and self._owner == (os.getpid(), _inode(self.path)):
            return self._connection
        self._drop()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._opening():
            connection = sqlite3.connect(
                self.path, timeout=BUSY_S, isolation_level=None, check_same_thread=False
            )
            try:
                connection.execute(
                    "PRAGMA auto_vacuum = INCREMENTAL"
                )  # takes effect on a new file only
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute(
                    "PRAGMA synchronous = NORMAL"
                )  # a crash of the machine may lose the last verdicts, nothing else
                connection.execute(
                    "CREATE TABLE IF NOT EXISTS verdicts (number INTEGER PRIMARY KEY, key TEXT UNIQUE, verdict TEXT)"
                )
            except BaseException:  # even an interrupt must not leave it open
                connection.close()
                raise
        self._connection, self._owner = connection, (os.getpid(), _inode(self.path))
        return connection

    def _drop(self) -> None:
        if self._connection is not None:
            if self._owner[0] != os.getpid():
                _inherited.append(self._connection)
            else:
                with contextlib.suppress(sqlite3.Error):
                    self._connection.close()
        self._connection = None

    def _trim(self, connection: sqlite3.Connection) -> None:
        """Drop the oldest tenth while the file exceeds its limit."""
        while self._used(connection) > self.max_bytes:
            (count,) = connection.execute("SELECT count(*) FROM verdicts").fetchone()
            oldest = max(1, count // 10)
            connection.execute(
                "DELETE FROM verdicts WHERE number IN (SELECT number FROM verdicts ORDER BY number LIMIT ?)",
                (oldest,),
            )
            connection.execute("PRAGMA incremental_vacuum")
            if count <= 1:
                break

    def _used(self, connection: sqlite3.Connection) -> int:
        pages, free, size = (
            int(connection.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("page_count", "freelist_count", "page_size")
        )
        return (pages - free) * size

    def _set_aside(self) -> None:
        """Rename a damaged file, unless another process already did; the last damaged one is kept for inspection."""
        with contextlib.suppress(OSError), self._opening():
            if _sound(self.path):
                return
            for ending in ("-wal", "-shm"):
                Path(f"{self.path}{ending}").unlink(missing_ok=True)
            os.replace(self.path, self.path.with_name(self.path.name + ".damaged"))

    @contextlib.contextmanager
    def _opening(self) -> Iterator[None]:
        """Hold a lock: one process at a time creates, opens or sets aside the file."""
        handle = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def _inode(path: Path) -> int:
    try:
        return os.stat(path).st_ino
    except OSError:
        return 0


def _sound(path: Path) -> bool:
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=BUSY_S)) as connection:
            return bool(connection.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok")
    except sqlite3.OperationalError:  # locked
        return True
    except sqlite3.DatabaseError:
        return False
