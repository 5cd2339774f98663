"""A process limit that the kernel enforces, where this process may make control groups (root, mostly).

Version 1 (`pids` hierarchy) or version 2 (a delegated subtree). Where neither works, the warden's
polling and, for ordinary users, RLIMIT_NPROC remain.
"""

from __future__ import annotations

import os
from pathlib import Path


def create(num_tasks: int) -> Path | None:
    """A group that holds at most `num_tasks` processes and threads; None where we may not make one."""
    for parent in _own_groups():
        group = parent / f"dvk-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / "pids.max").write_text(str(num_tasks))
            return group
        except OSError:  # version 2 without the pids controller in this subtree
            remove(group)
    return None


def join(group: Path) -> None:
    """Move this process into the group; what it forks from now on is in it too."""
    try:
        (group / "cgroup.procs").write_text(str(os.getpid()))
    except OSError:
        pass  # a version 2 rule (no processes in inner groups) or a race with its removal: the polling remains


def remove(group: Path) -> None:
    """Delete the group, once it is empty."""
    try:
        group.rmdir()
    except OSError:
        pass


def _own_groups() -> list[Path]:
    groups = []
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if "pids" in controllers.split(","):
            groups.append(Path("/sys/fs/cgroup/pids") / path.lstrip("/"))
        elif not controllers:
            groups.append(Path("/sys/fs/cgroup") / path.lstrip("/"))
    return groups
