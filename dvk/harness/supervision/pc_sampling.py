"""Program counter sampling: attribute the code that a stopped process was running to the mapped file that contains it.

The kernel reports each stopped thread's position (/proc/PID/task/TID/syscall), so this needs no cooperation, no perf and no trust. Code
under the runner's private folder, or in memory without a file, is the candidate's, unless an installed library contains the same bytes
(`installed`); shared objects of installed packages are a library's; Python with its glue, libc and OpenMP's runtime count for neither.
"""

from __future__ import annotations

import ctypes
import os
import sys
from bisect import bisect_right
from collections import Counter

from dvk.harness.supervision import installed
from dvk.harness.transport import process_memory
from dvk.sandbox import syscalls

MOST_PAGES = 2
"""Most pages searched for in the installed libraries, a second each; the others are assumed to be alike."""
LEAST_VARIED = 12
"""Least number of different byte values in code worth searching for, since padding is everywhere."""
WAITING = ("futex", "sched_yield", "nanosleep", "clock_nanosleep")
NEUTRAL = (
    "libc.",
    "libc-",
    "libm.",
    "libm-",
    "libmvec",
    "libgomp",
    "libomp",
    "libiomp",
    "libpthread",
    "ld-",
    "libstdc++",
    "libgcc",
    "libffi",
)


class SampledOwners:
    """Positions of a process's threads, over many samples.

    Args:
        pid: the process.
        home: its private folder.
    """

    def __init__(self, pid: int, home: str):
        self._pid, self._home = pid, home
        self._tally: Counter[str] = Counter()
        self._copied: dict[int, bool] = {}
        """Whether a page of own code is a copy from a library."""
        self.looks = 0
        """Samples that found it working, neutral code included."""

    def look(self) -> None:
        """Sample the stopped process: count the called thread if it runs attributable code, else, if that waits for them, the others. Other
        spinning threads are no part of the work, nor are those of a thread that is still at the judge's line: a starved one stays there for
        long."""
        sample = standing(self._pid)
        if self._pid not in sample and not _waits(self._pid):
            return
        called = {thread: counter for thread, counter in sample.items() if thread == self._pid}
        if owners(self._pid, list(called.values()), self._home) == ["python"]:
            return
        self.looks += 1
        if not self._count(called):
            self._count(
                {thread: counter for thread, counter in sample.items() if thread != self._pid}
            )

    @property
    def count(self) -> int:
        """Return the number of samples in attributable code."""
        return self._tally["own"] + self._tally["library"]

    @property
    def share(self) -> float:
        """Return the share of own code among them."""
        return self._tally["own"] / max(1, self.count)

    def add(self, other: SampledOwners) -> None:
        """Return the libraries seen."""
        self._tally += other._tally

    def _count(self, found: dict[int, int]) -> int:
        before, counters = self.count, list(found.values())
        for counter, owner in zip(counters, owners(self._pid, counters, self._home), strict=True):
            self._tally["library" if owner == "own" and self._is_copied(counter) else owner] += 1
        return self.count - before

    def _is_copied(self, counter: int) -> bool:
        page = counter // process_memory.PAGE
        if page not in self._copied:
            code = ctypes.create_string_buffer(installed.CODE_BYTES)
            try:
                process_memory.read_into(self._pid, counter, ctypes.addressof(code), len(code))
            except process_memory.UnreadableMemory:
                return False
            if len(self._copied) >= MOST_PAGES:
                return any(self._copied.values())
            self._copied[page] = len(set(code.raw)) > LEAST_VARIED and installed.contains(code.raw)
        return self._copied[page]


def standing(pid: int) -> dict[int, int]:
    """Return program counters of the threads of a stopped process that are in no system call, by thread."""
    result = {}
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{thread}/syscall") as file:
                words = file.read().split()
        except OSError:
            continue
        if len(words) == 3 and words[0] == "-1":
            result[int(thread)] = int(words[2], 16)
    return result


def _waits(thread: int) -> bool:
    """Whether it is in a system call by which one thread waits for others."""
    try:
        with open(f"/proc/{thread}/syscall") as file:
            return file.read().split()[0] in {str(syscalls.number(name)) for name in WAITING}
    except (OSError, IndexError):
        return False


def owners(pid: int, counters: list[int], home: str) -> list[str]:
    """Classify each counter: `own`, `library`, `python` (which works, and waits for no thread) or `other`.

    Args:
        pid: the process.
        counters: from `standing`.
        home: the process's private folder.
    """
    starts: list[int] = []
    ranges: list[tuple[int, str]] = []
    with open(f"/proc/{pid}/maps") as file:
        for line in file:
            where, _, _, _, _, *path = line.rstrip("\n").split(maxsplit=5)
            start, end = (int(part, 16) for part in where.split("-"))
            starts.append(start)
            ranges.append((end, path[0] if path else ""))
    result = []
    for counter in counters:
        place = bisect_right(starts, counter) - 1
        inside = place >= 0 and counter < ranges[place][0]
        result.append(_owner(ranges[place][1], home) if inside else "other")
    return result


def _owner(path: str, home: str) -> str:
    if (
        not path
        or path.startswith((home + "/", "/memfd:", "[anon"))
        or path.startswith("/dev/zero")
    ):
        return "own"
    name = os.path.basename(path)
    if (
        name.startswith(
            ("libpython", "libtorch_python", os.path.basename(sys.executable).split(".")[0])
        )
        or "/lib-dynload/" in path
    ):
        return "python"
    if path.startswith("[") or name.startswith(NEUTRAL):
        return "other"
    return "library"
