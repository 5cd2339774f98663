"""Limits that the kernel enforces on tasks and memory, if this process may make control groups (mostly as root).

Version 1 (`pids` and `memory` hierarchies) or version 2 (a delegated subtree). A memory group also counts what no process shows: files in
memory that are written and not mapped, pages in pipes and sockets, page tables. If neither version works, the warden's polling and, for
ordinary users, RLIMIT_NPROC remain.
"""

from __future__ import annotations

import os

SLACK = 16
"""Factor over the limit: a group also counts kernel memory and the file cache."""
FILES = {
    "pids": (("pids.max", "{tasks}"),),
    "memory": (("memory.limit_in_bytes", "{memory}"), ("memory.memsw.limit_in_bytes", "{memory}")),
    "": (("pids.max", "{tasks}"), ("memory.max", "{memory}"), ("memory.swap.max", "0")),
}
"""Controller of version 1, or "" for version 2 → its files and their contents."""


def create(num_tasks: int, memory_bytes: int) -> list[str]:
    """Create groups that hold at most `num_tasks` tasks and `memory_bytes` in all; return the paths of those that could be made."""
    values = {"tasks": num_tasks, "memory": memory_bytes + memory_bytes // SLACK}
    made = []
    for controller, parent in _own_groups():
        _sweep(parent)
        group = f"{parent}/dvk-{os.getpid()}"
        try:
            os.mkdir(group)
        except OSError:
            continue
        if any(
            [_write(f"{group}/{name}", text.format(**values)) for name, text in FILES[controller]]
        ):
            made.append(group)
        else:
            remove([group])  # version 2 without these controllers in this subtree
    return made


def move(groups: list[str], pid: int) -> None:
    """Move a process into the groups, with all its later forks. The kernel takes 12 ms per move."""
    for group in groups:
        _write(
            f"{group}/cgroup.procs", str(pid)
        )  # may be refused (version 2's inner groups): the polling remains


def exceeded(groups: list[str]) -> str | None:
    """Return `processes` if the kernel refused a fork for a group's limit, `memory` if it killed a process, else None."""
    for group in groups:
        if _count(f"{group}/pids.events", b"max"):
            return "processes"
        if _count(f"{group}/memory.oom_control", b"oom_kill") or _count(
            f"{group}/memory.events", b"oom_kill"
        ):
            return "memory"
    return None


def counts_memory(groups: list[str]) -> bool:
    """Whether a group limits memory."""
    return any(
        os.path.exists(f"{group}/{name}")
        for group in groups
        for name in ("memory.limit_in_bytes", "memory.max")
    )


def remove(groups: list[str]) -> None:
    """Delete the groups once they are empty."""
    for group in groups:
        try:
            os.rmdir(group)
        except OSError:
            pass


def _count(path: str, name: bytes) -> int:
    try:
        with open(path, "rb") as file:
            for line in file:
                words = line.split()
                if len(words) == 2 and words[0] == name:
                    return int(words[1])
    except OSError:
        pass
    return 0


def _sweep(parent: str) -> None:
    """Delete groups left by killed wardens; a group with processes in it stays."""
    try:
        names = os.listdir(parent)
    except OSError:
        return
    for name in names:
        owner = name.removeprefix("dvk-")
        if owner != name and owner.isdigit() and not os.path.exists(f"/proc/{owner}"):
            remove([f"{parent}/{name}"])


def _write(path: str, value: str) -> bool:
    # Unbuffered and without O_CREAT: these are files of the kernel, and a refusal comes from the write.
    try:
        descriptor = os.open(path, os.O_WRONLY)
    except OSError:
        return False
    try:
        return os.write(descriptor, value.encode()) > 0
    except OSError:
        return False
    finally:
        os.close(descriptor)


def _own_groups() -> list[tuple[str, str]]:
    groups = []
    try:
        with open("/proc/self/cgroup") as file:
            lines = file.read().splitlines()
    except OSError:
        return []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            if controller in FILES:
                groups.append(
                    (
                        controller,
                        f"/sys/fs/cgroup{'/' * bool(controller)}{controller}{path.rstrip('/')}",
                    )
                )
    return groups
