"""Whose code a stopped process was running: program counters from outside, mapped to the files they lie in.

The kernel tells where each thread of a stopped process stands (/proc/PID/task/TID/syscall), so this
needs no cooperation, no perf and no trust. Code under the runner's private folder, or in memory
without a file, is the candidate's own; shared objects of installed packages are a library's;
Python, libc and OpenMP's runtime are nobody's.
"""

from __future__ import annotations

import os
import sys
from bisect import bisect_right
from collections import Counter

NEUTRAL = (
    "libc.", "libc-", "libm.", "libm-", "libgomp", "libomp", "libiomp", "libpthread", "ld-", "libpython", "libstdc++", "libgcc",
    "libffi",
)


def standing(pid: int) -> list[int]:
    """Program counters of the threads of a stopped process that are in no system call."""
    found = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{thread}/syscall") as file:
                words = file.read().split()
        except OSError:
            continue
        if len(words) == 3 and words[0] == "-1":
            found.append(int(words[2], 16))
    return found


def owners(pid: int, counters: list[int], home: str) -> Counter[str]:
    """How many of the counters are in `own`, `library` and `other` code.

    Args:
        pid: the process they come from.
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
    tally: Counter[str] = Counter()
    for counter in counters:
        place = bisect_right(starts, counter) - 1
        inside = place >= 0 and counter < ranges[place][0]
        tally[_owner(ranges[place][1], home) if inside else "other"] += 1
    return tally


def _owner(path: str, home: str) -> str:
    if not path or path.startswith((home + "/", "/memfd:", "[anon")) or path.startswith("/dev/zero"):
        return "own"
    name = os.path.basename(path)
    if path.startswith("[") or name.startswith((*NEUTRAL, os.path.basename(sys.executable).split(".")[0])):
        return "other"
    return "library"
