"""Shut in a child before it runs code that nobody vouches for, as far as the machine grants.

Each layer is tried; where the kernel, or the container around us, refuses one, the others remain. `Session.isolation`
tells what was reached, in this order:

    user       a user namespace (only where it takes one to get the next four)
    pid, proc  sees, signals and meddles with no process but its own; /proc shows no other
    rofs       file systems are read-only but for its home: Landlock does not rule over chmod, chown and times
               (on "cuda", /proc stays writable: the driver needs it, and Landlock lets it write about itself only)
    net        no network, not even loopback
    ipc        System V objects of its own
    landlockN  files: writes beneath its home only, reads the system and Python only (`landlock.py` for version N)
    readsall   it had to keep root's right to read all files (`privileges.py`)
    seccomp    no system calls that reach into other processes, change the machine or leave something behind
    rlimits    nothing of the above

Always: no_new_privs, no capabilities, no descriptors but its own, and an environment without secrets, whose home and
caches lie in the session's folder (`variables.py`). A child for CUDA enters no user, ipc or pid namespace: CUDA memory
cannot be lent across user namespaces (cudaErrorMapBufferObjectFailed) and is known by process ids; the other
namespaces it enters where dvk runs as root. Calls that take a process id are then held to its own by the seccomp
filter, and, from Landlock 6 on, signals to its own processes.

Costs, as the least of 40 on a busy machine of 2 cores (kernel 6.18, root): 3.5 ms on "cpu" (network namespace 0.6,
Landlock 0.6, first process 0.8, seccomp 0.4, capabilities 0.3, mounts 0.3), 3 ms on "cuda", of 36 ms from `Session(…)`
to the target's first instruction, 30 ms without. Afterwards: nothing measurable a system call, 0.5 µs for those whose
arguments the filter looks at.

The judge reads the child's memory (process_vm_readv) as the same user: it stays dumpable and open to Yama.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable, Mapping
from typing import Literal

from dvk.sandbox import importable, landlock, namespaces, privileges, seccomp, syscalls

Kind = Literal["none", "cpu", "cuda"]


def warm(kind: Kind, home: str, cwd: str, environ: Mapping[str, str]) -> None:
    """In the zygote: find out once what the children need to know; arguments as for `enter`."""
    if kind == "none":
        return
    landlock.readable(home, cwd, environ)
    try:
        seccomp.program(platform.machine(), False, None)
    except OSError:  # the child will say that it goes without
        pass
    if kind == "cpu":
        namespaces.user_namespace_works()


def surround(kind: Kind) -> namespaces.Surroundings:
    """In the warden, before it forks the child: what must be there first."""
    return namespaces.surround_children() if kind == "cpu" else namespaces.Surroundings()


def enter(
    kind: Kind, home: str, cwd: str, environ: Mapping[str, str], layers: Iterable[str], programs: bool = True,
    folders: Iterable[str] = (),
) -> str:
    """In the child: the rest; what was reached.

    Args:
        kind: "cpu" or "cuda".
        home: the session's folder.
        cwd: another to read.
        environ: names folders to read (`landlock.NAMED`, `landlock.SEARCHED`).
        layers: what `surround` reached.
        programs: it may execute some; refused by seccomp.
        folders: more to read, less what `importable` leaves out.

    Raises:
        OSError: not even capabilities could be dropped.
    """
    reached = list(layers)
    if syscalls.number("capset") is None:
        return "rlimits"  # a kind of machine whose system calls we do not know
    if namespaces.own_mounts():
        if "pid" in reached and namespaces.hide_processes():
            reached.append("proc")
        # CUDA writes below /proc; what it may is Landlock's to say.
        if namespaces.forbid_writing(home, proc=kind == "cuda"):
            reached.append("rofs")
    reached += namespaces.enter(["net", "ipc"] if kind == "cpu" else ["net"])
    if not privileges.drop([home, cwd, sys.executable, os.__file__, __file__]):
        reached.append("readsall")
    privileges.stay_readable()
    try:
        paths = [*landlock.readable(home, cwd, environ), *(path for folder in folders for path in importable.shown(folder))]
        cuda = kind == "cuda"
        reached.append(f"landlock{landlock.restrict(home, paths, cuda, threads=f'/proc/{os.getpid()}/task' if cuda else None)}")
    except OSError:
        pass
    try:
        seccomp.install(kind == "cuda", None if "pid" in reached else os.getpid(), programs)
        reached.append("seccomp")
    except OSError:
        pass
    return "+".join(reached) or "rlimits"


def confirmed(level: str, pid: int) -> str:
    """`level` as the child told it, less what cannot be seen from outside although it should be."""
    try:
        with open(f"/proc/{pid}/status") as file:
            status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    except OSError:
        return ""
    filtered = status.get("Seccomp") == "2" and status.get("NoNewPrivs") == "1"
    links = {"user": "user", "pid": "pid", "proc": "mnt", "rofs": "mnt", "net": "net", "ipc": "ipc"}

    def visible(layer: str) -> bool:
        return filtered if layer == "seccomp" else layer not in links or _apart(pid, links[layer])

    return "+".join(filter(visible, level.split("+"))) or "rlimits"


def _apart(pid: int, namespace: str) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/ns/{namespace}") != os.readlink(f"/proc/self/ns/{namespace}")
    except OSError:
        return False
