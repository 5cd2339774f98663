"""A view of the machine without other processes, network and System V objects.

A process id namespace must exist before the child is forked, so the *warden* asks for it. Its first process is a `cat` that reads from a
pipe whose other end only the warden holds, and reaps orphans by ignoring SIGCHLD: when it dies, with the warden or by its kill, the kernel
kills everything in the namespace at once. The child is the second process; the first would be immune to its own signals, so abort() would
not look like one.

A user without the right to make namespaces (any user but root) has it in a user namespace: the warden and its child enter one, under the
same ids as outside.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import struct
import sys
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

from dvk.sandbox.syscalls import syscall

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER = 0x00020000, 0x08000000, 0x10000000
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
MOUNT_ATTR_RDONLY, AT_RECURSIVE, AT_FDCWD = 1, 0x8000, -100
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_SLAVE = 2, 4, 8, 1 << 12, 1 << 14, 1 << 19
FIRST_PROCESS = shutil.which("cat", path="/usr/bin:/bin:" + os.environ.get("PATH", ""))


@cache
def user_namespace_works() -> bool:
    """Whether a user namespace works, tried in a separate process: partial success would leave a process with unmapped ids.

    It does not if Python is readable by a capability alone, which has no effect inside.
    """
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            _enter_user_namespace(CLONE_NEWPID)
            code = (
                0
                if all(os.access(path, os.R_OK) for path in (sys.executable, os.__file__, __file__))
                else 1
            )
        finally:
            os._exit(code)
    return os.waitpid(pid, 0)[1] == 0


class Surroundings(NamedTuple):
    """Namespaces that a forked child starts in."""

    layers: tuple[str, ...] = ()
    """`user`, `pid`, as far as entered."""
    first: int | None = None
    """First process of the process id namespace."""
    leash: int | None = None
    """Descriptor whose closing ends that process, and so all in the namespace; closed on exec."""


def surround_children() -> Surroundings:
    """Give this process's future children a shared process id namespace, if the machine grants it."""
    layers = ["pid"]
    if FIRST_PROCESS is None:
        return Surroundings()
    try:
        syscall("unshare", CLONE_NEWPID)
    except OSError:
        if not user_namespace_works():
            return Surroundings()
        _enter_user_namespace(CLONE_NEWPID)
        layers.insert(0, "user")
    return Surroundings(tuple(layers), *_start_first_process(FIRST_PROCESS))


def enter(names: list[str]) -> list[str]:
    """Enter separate `net` and `ipc` namespaces; return those that the machine granted."""
    flags = {"net": CLONE_NEWNET, "ipc": CLONE_NEWIPC}
    return [name for name in names if _granted("unshare", flags[name])]


def own_mounts() -> bool:
    """Enter a mount namespace for the next two, as a slave: its mounts must not appear outside."""
    return _granted("unshare", CLONE_NEWNS) and _granted(
        "mount", b"none", b"/", None, MS_REC | MS_SLAVE, None
    )


def hide_processes() -> bool:
    """Mount a /proc that shows this process id namespace only."""
    return _granted("mount", b"proc", b"/proc", b"proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, None)


def hide_strangers() -> bool:
    """Mount a /proc that shows each process only those that it may trace, with the system's folders and settings unchanged.

    Those are mounted again one by one: containers mount over parts of them, for example over files of NVIDIA's driver. Each is then a mount
    that `forbid_writing` makes read-only even if it leaves /proc writable.
    """
    old = {
        entry.path: os.open(entry.path, os.O_PATH | os.O_CLOEXEC)
        for entry in os.scandir("/proc")
        if _of_the_system(entry)
    }
    try:
        if not _granted(
            "mount",
            b"proc",
            b"/proc",
            b"proc",
            MS_NOSUID | MS_NODEV | MS_NOEXEC,
            b"hidepid=ptraceable",
        ):
            return False
        return all(
            [
                _granted(
                    "mount",
                    f"/proc/self/fd/{descriptor}".encode(),
                    path.encode(),
                    None,
                    MS_BIND | MS_REC,
                    None,
                )
                for path, descriptor in old.items()
            ]
        )
    finally:
        for descriptor in old.values():
            os.close(descriptor)


def _of_the_system(entry: os.DirEntry[str]) -> bool:
    """Whether it is a folder of /proc, or a file to write to, of no process."""
    if entry.name.isdigit() or entry.is_symlink():
        return False
    return entry.is_dir() or bool(entry.stat().st_mode & 0o222)


def forbid_writing(home: str, proc: bool = False, others: Sequence[str] = ()) -> bool:
    """Make every file system read-only except `home`, `others`, and /proc if requested; devices stay writable."""
    kept = [home, *others]
    if not all(
        _granted("mount", path.encode(), path.encode(), None, MS_BIND, None) for path in kept
    ):
        return False
    read_only, writable = (
        struct.pack("QQQQ", *bits)
        for bits in ((MOUNT_ATTR_RDONLY, 0, 0, 0), (0, MOUNT_ATTR_RDONLY, 0, 0))
    )
    forbidden = _granted("mount_setattr", AT_FDCWD, b"/", AT_RECURSIVE, read_only, len(read_only))
    allowed = all(
        [
            _granted("mount_setattr", AT_FDCWD, path.encode(), 0, writable, len(writable))
            for path in ([*kept, "/proc"] if proc else kept)
        ]
    )
    os.chdir(os.getcwd())  # from the file system below the new mount to the one on it
    return forbidden and allowed


def _granted(name: str, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None) -> bool:
    try:
        syscall(name, *arguments)
    except OSError:
        return False
    return True


def _enter_user_namespace(more: int) -> None:
    user, group = os.geteuid(), os.getegid()
    syscall("unshare", CLONE_NEWUSER | more)
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def _start_first_process(program: str) -> tuple[int, int]:
    read, write = os.pipe()
    null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    # Ignored signals stay ignored across exec, and children of a process that ignores SIGCHLD need no reaping.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    actions = [
        (os.POSIX_SPAWN_DUP2, read, 0),
        (os.POSIX_SPAWN_DUP2, null, 1),
        (os.POSIX_SPAWN_DUP2, null, 2),
    ]
    try:
        pid = os.posix_spawn(program, [program], {}, file_actions=actions, setsid=True)
    finally:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(read)
        os.close(null)
    return pid, write
