"""Isolate a child before it runs untrusted code, as far as the machine grants.

Each layer is tried; if the kernel or the container refuses one, the others remain. `Session.isolation` lists the layers reached, in this
order:

    user       a user namespace (only if the next four need one)
    pid, proc  sees and signals only its own processes; /proc shows no other
    rofs       file systems are read-only except its home: Landlock does not cover chmod, chown and times
               (on "cuda", /proc stays writable: the driver needs it, and Landlock restricts writing to its own folder)
    net        no network, not even loopback
    ipc        a separate namespace of System V objects
    landlockN  files: writes below its home only, reads the system and Python only (`landlock.py` for version N)
    readsall   kept root's capability to read all files, which it needs (`privileges.py`)
    seccomp    no system calls that reach into other processes, change the machine or leave something behind
    rlimits    none of the above

Always: no_new_privs, no capabilities, no inherited descriptors except its own, and an environment without secrets, whose home and caches
are in the session's folder (`variables.py`). A child for CUDA enters no user, ipc or pid namespace: CUDA memory cannot be lent across user
namespaces (cudaErrorMapBufferObjectFailed) and is identified by process ids; it enters the other namespaces if dvk runs as root. The
seccomp filter then restricts calls with a process id to its own, and, from Landlock 6 on, signals reach its own processes only.

Costs, as the least of 40 on a busy machine of 2 cores (kernel 6.18, root): 3.5 ms on "cpu" (network namespace 0.6,
Landlock 0.6, first process 0.8, seccomp 0.4, capabilities 0.3, mounts 0.3), 3 ms on "cuda", of 36 ms from `Session(…)`
to the target's first instruction, 30 ms without. Afterwards: nothing measurable per system call, 0.5 µs for those whose
arguments the filter reads.

The judge reads the child's memory (process_vm_readv) as the same user, so the child stays dumpable and open to Yama.
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
    """Prepare in the zygote what all children need; arguments as for `enter`."""
    if kind == "none":
        return
    landlock.readable(home, cwd, environ)
    try:
        seccomp.program(platform.machine(), False, None)
    except OSError:  # the child will report it as missing
        pass
    if kind == "cpu":
        namespaces.user_namespace_works()


def prepare_warden(kind: Kind) -> namespaces.Surroundings:
    """Prepare in the warden, before it forks the child, what must exist first."""
    return namespaces.surround_children() if kind == "cpu" else namespaces.Surroundings()


def enter(
    kind: Kind,
    home: str,
    cwd: str,
    environ: Mapping[str, str],
    layers: Iterable[str],
    programs: bool = True,
    folders: Iterable[str] = (),
) -> str:
    """Enter the remaining layers in the child; return those reached.

    Args:
        kind: "cpu" or "cuda".
        home: the session's folder.
        cwd: another folder to read.
        environ: names folders to read (`landlock.NAMED`, `landlock.SEARCHED`).
        layers: those that `prepare_warden` reached.
        programs: it may execute programs; refused by seccomp.
        folders: further folders to read, less what `importable` leaves out.

    Raises:
        OSError: not even capabilities could be dropped.
    """
    reached = list(layers)
    if syscalls.number("capset") is None:
        return "rlimits"  # seccomp does not support this architecture
    if namespaces.own_mounts():
        if "pid" in reached and namespaces.hide_processes():
            reached.append("proc")
        # CUDA writes below /proc; Landlock restricts where.
        if namespaces.forbid_writing(home, proc=kind == "cuda"):
            reached.append("rofs")
    reached += namespaces.enter(["net", "ipc"] if kind == "cpu" else ["net"])
    if not privileges.drop([home, cwd, sys.executable, os.__file__, __file__]):
        reached.append("readsall")
    privileges.stay_readable()
    try:
        paths = [
            *landlock.readable(home, cwd, environ),
            *(path for folder in folders for path in importable.shown(folder)),
        ]
        cuda = kind == "cuda"
        reached.append(
            f"landlock{landlock.restrict(home, paths, cuda, threads=f'/proc/{os.getpid()}/task' if cuda else None)}"
        )
    except OSError:
        pass
    try:
        seccomp.install(kind == "cuda", None if "pid" in reached else os.getpid(), programs)
        reached.append("seccomp")
    except OSError:
        pass
    return "+".join(reached) or "rlimits"


def confirmed_level(level: str, pid: int) -> str:
    """Return `level` as the child reported it, less layers that should be visible from outside and are not."""
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
        return os.readlink(f"/proc/{pid}/ns/{namespace}") != os.readlink(
            f"/proc/self/ns/{namespace}"
        )
    except OSError:
        return False
