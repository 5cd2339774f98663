"""Which files isolated code may open, by Landlock: write at home only, read the system and Python but nobody's data.

Readable and executable: the top-level folders of the system (`/usr`, `/etc`, `/opt`, `/sys`, … and those it does not
know, such as a cluster's `/apps`), /proc (the kernel itself withholds other processes' memory and environment from a
Landlock domain), Python's folders, and what PATH, LD_LIBRARY_PATH, CUDA_HOME and the like name. Not readable: home
folders, temporary folders (other sessions have theirs there), /var, /run, mounted disks, most of /dev. What a
candidate reads it cannot carry away, so the line is drawn where honest candidates meet no obstacle.

Also, by version: no TCP (4), no device ioctls except the GPU's (5), no signals to and no abstract sockets of processes
outside (6). Existing descriptors keep working. Interface: Linux's Documentation/userspace-api/landlock.rst.
"""

from __future__ import annotations

import glob
import os
import shutil
import stat
import struct
import sys
from collections.abc import Iterable, Mapping
from functools import cache

from dvk.sandbox.syscalls import syscall

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
TRUNCATE, IOCTL_DEV = 1 << 14, 1 << 15
READ = EXECUTE | READ_FILE | READ_DIR
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""Landlock version → all rights over files that it knows."""
TCP = 0b11
SCOPES = 0b11
"""Abstract Unix sockets, signals."""

ALWAYS = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "opt", "sys", "proc", "nix", "gnu")
NEVER = ("home", "root", "tmp", "var", "run", "dev", "mnt", "media", "srv", "boot", "lost+found")
SPECIAL = ("/run/opengl-driver", "/run/current-system", "/dev/fd")
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
GPU_DEVICES = ("/dev/nvidia*", "/dev/dxg")
SEARCHED = ("PATH", "LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH")
NAMED = ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "CONDA_PREFIX", "VIRTUAL_ENV", "TRITON_PTXAS_PATH", "TRITON_LIBCUDA_PATH")
TOOLS = ("nvcc", "g++", "ptxas")
"""Their installations are read too: `…/bin/nvcc` needs `…/include`."""
USER_HOME = os.path.expanduser("~")
"""Found while HOME is still the user's, and asking a directory service, if need be, only once."""


def version() -> int:
    """Of the kernel's Landlock.

    Raises:
        OSError: it has none, or it is switched off.
    """
    just_the_version = 1
    return syscall("landlock_create_ruleset", None, 0, just_the_version)


def restrict(home: str, readable: Iterable[str], gpu: bool) -> int:
    """Confine this thread, and what it starts, for good; needs no_new_privs. Returns the version in force.

    Args:
        home: the one folder to write, create and delete in.
        readable: files and folders to read and execute; those that do not exist are passed over.
        gpu: NVIDIA's devices may be used.

    Raises:
        OSError: no Landlock here.
    """
    known = version()
    every = RIGHTS[max(number for number in RIGHTS if number <= known)]
    attributes = struct.pack("QQQ", every, TCP if known >= 4 else 0, SCOPES if known >= 6 else 0)
    size = 24 if known >= 6 else 16 if known >= 4 else 8
    rules = syscall("landlock_create_ruleset", attributes, size, 0)
    try:
        _allow(rules, home, every)
        for path in [*DEVICES, *(path for pattern in GPU_DEVICES if gpu for path in glob.glob(pattern))]:
            _allow(rules, path, every & (READ_FILE | WRITE_FILE | READ_DIR | IOCTL_DEV))
        for path in readable:
            _allow(rules, path, READ)
        if gpu:  # the driver names its threads there, and does not start without (cuInit: error 304)
            _allow(rules, f"/proc/{os.getpid()}/task", every & (READ | WRITE_FILE | TRUNCATE))
        syscall("landlock_restrict_self", rules, 0)
    finally:
        os.close(rules)
    return known


def readable(home: str, cwd: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Paths whose trees isolated code may read; not all of them exist. Cached, for the zygote to have them ready."""
    named = [environ[name] for name in NAMED if name in environ]
    named += [entry for name in SEARCHED for entry in environ.get(name, "").split(":")]
    named += [*sys.path, sys.prefix, sys.base_prefix, sys.exec_prefix, *([cwd] if cwd != home else [])]
    return _readable(os.path.dirname(home), environ.get("PATH", ""), tuple(named))


@cache
def _readable(homes: str, path: str, named: tuple[str, ...]) -> tuple[str, ...]:
    private = {USER_HOME, homes, "/tmp", "/var/tmp", "/home", "/root"}
    private |= {os.path.realpath(folder) for folder in private}
    tops = [entry.name for entry in os.scandir("/") if entry.name not in NEVER and entry.is_dir()]
    tops = [name for name in tops if name in ALWAYS or not any(_within(folder, "/" + name) for folder in private)]
    tools = [os.path.realpath(found) for found in (shutil.which(tool, path=path) for tool in TOOLS) if found]
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    wanted = [*named, *(os.path.dirname(os.path.dirname(tool)) for tool in tools), package]
    wanted = [path for path in wanted if path.startswith("/") and not any(_within(folder, path) for folder in private)]
    found: list[str] = []
    for path in [*("/" + name for name in tops), *SPECIAL, *sorted(wanted)]:
        if not any(_within(path, other) for other in found):
            found.append(path)
    return tuple(found)


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _allow(rules: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= OF_FILES
        beneath = struct.pack("=Qi", rights, descriptor)
        path_beneath = 1
        syscall("landlock_add_rule", rules, path_beneath, beneath, 0)
    finally:
        os.close(descriptor)
