"""A process limit that the kernel enforces, where this process may make control groups (root, mostly).

Version 1 (`pids` hierarchy) or version 2 (a delegated subtree). Where neither works, the warden's
polling and, for ordinary users, RLIMIT_NPROC remain.
"""

from __future__ import annotations

import os


def create(num_tasks: int) -> str | None:
    """Path of a group that holds at most `num_tasks` processes and threads; None where we may not make one."""
    for parent in _own_groups():
        _sweep(parent)
        group = f"{parent}/dvk-{os.getpid()}"
        try:
            os.mkdir(group)
        except OSError:
            continue
        if _write(f"{group}/pids.max", num_tasks):
            return group
        remove(group)  # version 2 without the pids controller in this subtree
    return None


def move(group: str, pid: int) -> None:
    """Move a process into the group; what it forks from then on is in it too. The kernel takes its time: 12 ms."""
    _write(f"{group}/cgroup.procs", pid)  # may be refused (version 2's inner groups): the polling remains


def refused(group: str) -> bool:
    """The kernel has refused a fork in this group for its limit."""
    try:
        with open(f"{group}/pids.events", "rb") as file:
            return not file.read().startswith(b"max 0")
    except OSError:
        return False


def remove(group: str) -> None:
    """Delete the group, once it is empty."""
    try:
        os.rmdir(group)
    except OSError:
        pass


def _sweep(parent: str) -> None:
    """Remove what killed wardens left; a group with processes in it stays."""
    try:
        names = os.listdir(parent)
    except OSError:
        return
    for name in names:
        owner = name.removeprefix("dvk-")
        if owner != name and owner.isdigit() and not os.path.exists(f"/proc/{owner}"):
            remove(f"{parent}/{name}")


def _write(path: str, value: int) -> bool:
    # Unbuffered and without O_CREAT: these are files of the kernel, and a refusal comes from the write.
    try:
        descriptor = os.open(path, os.O_WRONLY)
    except OSError:
        return False
    try:
        return os.write(descriptor, str(value).encode()) > 0
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _own_groups() -> list[str]:
    groups = []
    try:
        with open("/proc/self/cgroup") as file:
            lines = file.read().splitlines()
    except OSError:
        return []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if "pids" in controllers.split(","):
            groups.append("/sys/fs/cgroup/pids" + path.rstrip("/"))
        elif not controllers:
            groups.append("/sys/fs/cgroup" + path.rstrip("/"))
    return groups
