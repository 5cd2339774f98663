"""Enclosure of all processes of a judge session with an untrusted reference: files and the network, as for a candidate.

The judging process executes the reference and reads the candidates' memory. With a candidate's isolation it could not: Landlock lets a
process access only processes of its domain and of domains within it. So the zygote that all of them are forked from enters a domain, which
they share, and each candidate enters a further domain within.

    may write   the folder with its sessions' folders, the device locks
    may read    what a candidate may read, and dvk's cache of compiled objects
    network     none, by a namespace for root, by `seccomp` in the child

Zygotes with another environment are started by the first one, since they must share its domain.

Inside, a candidate cannot have separate mounts (`proc`, `rofs` in `isolate`), since Landlock forbids mounting: root's zygote makes file
systems read-only beforehand, and hides outside processes.

GPUs: CUDA's driver writes to a folder of /proc named after the process id, which the zygote cannot know. So all of /proc is writable, as
far as the kernel lets this user: not the machine's settings (`_settings_are_safe`). A candidate's domain leaves only its own folder
writable. If dvk does not run as root, a reference can still change `oom_score_adj` of its user's other processes.

Without Landlock references are not enclosed: `works` reports it.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

from dvk import device_lock, resources
from dvk.sandbox import landlock, namespaces, privileges, seccomp

PREFIX = "dvk-shut-"

_folders: dict[int, str] = {}


def works() -> bool:
    """Whether the kernel supports it."""
    try:
        return landlock.version() > 0
    except OSError:
        return False


def folder() -> str:
    """Return the folder for this process's enclosed sessions; removed at its end, or by the next one."""
    if os.getpid() not in _folders:
        parent = tempfile.gettempdir()
        for name in os.listdir(parent):
            owner = name.removeprefix(PREFIX).partition("-")[0]
            if name.startswith(PREFIX) and owner.isdigit() and not os.path.exists(f"/proc/{owner}"):
                shutil.rmtree(os.path.join(parent, name), ignore_errors=True)
        _folders[os.getpid()] = made = tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-")
        atexit.register(shutil.rmtree, made, ignore_errors=True)
        os.makedirs(_locks(), mode=0o700, exist_ok=True)
    return _folders[os.getpid()]


def close(place: str) -> None:
    """Enclose the zygote permanently, before it forks any child.

    Args:
        place: the `folder`.
    """
    # None of this is possible afterwards.
    readable = [*landlock.readable(place, place, os.environ), str(resources.home() / "cache")]
    os.environ["TMPDIR"] = tempfile.tempdir = place
    hidden = False
    if namespaces.own_mounts():
        hidden = namespaces.hide_strangers()
        hidden = namespaces.forbid_writing(place, proc=True, others=[_locks()]) and hidden
    namespaces.enter(["net"])
    privileges.set_no_new_privs()
    named = (hidden or landlock.gpu_devices()) and _settings_are_safe()
    try:
        landlock.restrict(
            place, readable, gpu=True, others=[_locks()], threads="/proc" if named else None
        )
    except OSError:
        pass


def _settings_are_safe() -> bool:
    """Whether the machine's settings in /proc are not writable: the user is not root, or they are mounted read-only."""
    return not any(
        os.access(path, os.W_OK)
        for path in ("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger")
    )


def enter() -> None:
    """Restrict a child without other isolation: a process that judges, or times a reference."""
    privileges.drop([])
    privileges.stay_readable()
    try:
        seccomp.install(unix_sockets=True, own_pid=None, judges=True)
    except OSError:
        pass


def _locks() -> str:
    return os.path.join(device_lock.shared_folder(), "lanes")
