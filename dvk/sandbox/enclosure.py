"""What encloses all processes of a judge session whose reference is a stranger's: files and the network, as for a candidate.

The process that judges executes the reference and reads the candidates' memory. Isolated as they are it could not: Landlock lets a
process reach into those of its domain and of domains within it only. So the zygote that all of them are forked from enters a
domain, which they share, and each candidate gets its own within.

    may write   the folder that its sessions' folders lie in, the lanes' locks
    may read    what a candidate may, and dvk's cache of compiled objects
    network     none, by a namespace for root, by `seccomp` in the child

Zygotes with an environment that differs are started by the first one, for they must share its domain.

Within it the mounts of a candidate's own namespace (`proc`, `rofs` in `isolate`) are not to be had, since Landlock forbids mounting:
root's zygote makes file systems read-only beforehand, and hides processes outside.

GPUs: CUDA's driver writes to a folder of /proc that has the process's own number, which the zygote cannot know. So all of /proc may
be written to, as far as the kernel lets this user: not the machine's settings (`_settings_are_safe`). A candidate's domain leaves it
only its own folder. Where dvk does not run as root, a reference can still change its user's other processes' `oom_score_adj`.

Where the kernel lacks Landlock, references are not enclosed: `works` says so.
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
    """The kernel has what it takes."""
    try:
        return landlock.version() > 0
    except OSError:
        return False


def folder() -> str:
    """Where this process's enclosed sessions have their folders; removed at its end, or by the next one."""
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
    """In the zygote, before it forks anything; for good.

    Args:
        place: the `folder`.
    """
    # Nothing of this is to be had any more afterwards.
    readable = [*landlock.readable(place, place, os.environ), str(resources.home() / "cache")]
    os.environ["TMPDIR"] = tempfile.tempdir = place
    hidden = False
    if namespaces.own_mounts():
        hidden = namespaces.hide_strangers()
        hidden = namespaces.forbid_writing(place, proc=True, others=[_locks()]) and hidden
    namespaces.enter(["net"])
    privileges.gain_nothing()
    named = (hidden or landlock.gpu_devices()) and _settings_are_safe()
    try:
        landlock.restrict(place, readable, gpu=True, others=[_locks()], threads="/proc" if named else None)
    except OSError:
        pass


def _settings_are_safe() -> bool:
    """The machine's settings in /proc cannot be written to: this is not root, or they are mounted read-only."""
    return not any(os.access(path, os.W_OK) for path in ("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger"))


def enter() -> None:
    """In a child that is not isolated otherwise: a process that judges, or times a reference."""
    privileges.drop([])
    privileges.stay_readable()
    try:
        seccomp.install(unix_sockets=True, own_pid=None, judges=True)
    except OSError:
        pass


def _locks() -> str:
    return os.path.join(device_lock.shared_folder(), "lanes")
