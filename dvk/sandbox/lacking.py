"""Gaps in the isolation on a machine that does not grant every layer: for people who decide whether to serve untrusted code."""

from __future__ import annotations

from dvk.sandbox import cgroup, landlock

ABSENT = {
    "landlock": "files of this user can be read, home folders and keys among them: the kernel has no Landlock (5.13 or newer)",
    "seccomp": "other processes of this user can be traced, and any socket can be opened: no seccomp filters here",
    "rofs": "permissions and times of this user's files can be changed: no mount namespace",
    "pid": "command lines of other processes can be read: no process id namespace",
    "net": "Unix sockets with a path can be connected to: no network namespace",
}
"""Layer of `isolate` → what its absence leaves open."""
OLD_LANDLOCK = {
    4: "TCP connections are kept out by seccomp alone: Landlock is older than 6.7",
    6: "signals reach other processes of this user where it has no process id namespace: Landlock is older than 6.12",
}


def missing_layers(isolation: str) -> list[str]:
    """Return what `Session.isolation` leaves open; empty if every layer is there."""
    layers = isolation.split("+")
    version = max([int(layer[8:]) for layer in layers if layer.startswith("landlock")], default=0)
    result = [
        text
        for layer, text in ABSENT.items()
        if layer not in layers and not (layer == "landlock" and version)
    ]
    if version:
        result += [
            text
            for needed, text in OLD_LANDLOCK.items()
            if version < needed and not (needed == 6 and "pid" in layers)
        ]
    if "readsall" in layers:
        result.append(
            "root's right to read all files is kept, since Python or the session's folder could not be read without"
        )
    return result


def memory_sentence() -> str | None:
    """Return what is open if the kernel cannot limit memory."""
    groups = cgroup.create(64, 64 << 20)
    counted = cgroup.counts_memory(groups)
    cgroup.remove(groups)
    return (
        None
        if counted
        else "memory and processes are counted by polling, 20 times a second: no control group may be made here"
    )


def references_sentence() -> str | None:
    """Return what untrusted references of `dvk serve` can do."""
    try:
        landlock.version()
    except OSError:
        return "references that others send to `dvk serve` can read this user's files: the kernel has no Landlock"
    return None


__all__ = ["memory_sentence", "references_sentence", "missing_layers"]
