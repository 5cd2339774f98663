"""File access of isolated code by Landlock: write at home only, read the system and Python but no user data.

Readable and executable: the system's programs and libraries (`/usr`, `/lib`, …), the files of /etc that programs need
to start (`SETTINGS`: no passwords, keys or service configurations, even if the user may read them), /sys about the
hardware, /proc (the kernel withholds other processes' memory and environment from a Landlock domain), the folders
that this Python imports from (`importable`), and what PATH, LD_LIBRARY_PATH, CUDA_HOME and the like name. Not readable:
the rest. Folders outside Python installations are readable without hidden files and dvk's run folders.

Also, by version: no TCP (4), no device ioctls except the GPU's (5), no signals to and no abstract sockets of processes
outside (6). Existing descriptors keep working. Interface: Linux's Documentation/userspace-api/landlock.rst.
"""

from __future__ import annotations

import os
import shutil
import stat
import struct
import sys
from collections.abc import Iterable, Mapping
from functools import cache

from dvk.sandbox import importable
from dvk.sandbox.syscalls import syscall

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
TRUNCATE, IOCTL_DEV = 1 << 14, 1 << 15
READ = EXECUTE | READ_FILE | READ_DIR
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV
RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}
"""Landlock version → all file rights of that version."""
TCP = 0b11
SCOPES = 0b11
"""Abstract Unix sockets, signals."""

SYSTEM = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/gnu/store",
    "/cvmfs",
    "/proc",
    "/sys/devices",
    "/sys/class",
    "/sys/bus",
    "/sys/module",
    "/sys/dev",
    "/sys/kernel/mm",
    "/sys/fs/cgroup",
    "/opt/nvidia",
    "/run/opengl-driver",
    "/run/current-system",
    "/dev/fd",
)
SETTINGS = (
    "OpenCL",
    "alternatives",
    "crypto-policies",
    "debian_version",
    "fonts",
    "gai.conf",
    "glvnd",
    "group",
    "host.conf",
    "hostname",
    "hosts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "ld.so.preload",
    "lsb-release",
    "locale.alias",
    "locale.conf",
    "localtime",
    "magic",
    "mime.types",
    "mtab",
    "netconfig",
    "nsswitch.conf",
    "nvidia",
    "os-release",
    "passwd",
    "pki/tls/openssl.cnf",
    "pki/tls/certs",
    "protocols",
    "python3",
    "redhat-release",
    "resolv.conf",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "static",
    "terminfo",
    "timezone",
    "vulkan",
)
"""Readable files below /etc."""
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
GPU_DEVICES = (
    *(f"/dev/nvidia{number}" for number in range(64)),
    "/dev/nvidiactl",
    "/dev/nvidia-uvm",
    "/dev/nvidia-uvm-tools",
    "/dev/nvidia-modeset",
    "/dev/nvidia-caps",
    "/dev/nvidia-caps-imex-channels",
    "/dev/dxg",
)
"""Full names: a process that is already confined cannot list /dev, and confines its children further."""
SEARCHED = (
    "PATH",
    "LD_LIBRARY_PATH",
    "LIBRARY_PATH",
    "CPATH",
    "C_INCLUDE_PATH",
    "CPLUS_INCLUDE_PATH",
)
NAMED = (
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_ROOT",
    "CONDA_PREFIX",
    "VIRTUAL_ENV",
    "TRITON_PTXAS_PATH",
    "TRITON_LIBCUDA_PATH",
)
TOOLS = ("nvcc", "g++", "ptxas")
COMPILERS = ("CC", "CXX", "CUDAHOSTCXX", "NVCC_CCBIN")
"""Programs on PATH or named by these variables. Their installations are readable, too: `…/bin/nvcc` needs `…/include`."""


def version() -> int:
    """Return the kernel's Landlock version.

    Raises:
        OSError: it has none, or it is switched off.
    """
    just_the_version = 1
    return syscall("landlock_create_ruleset", None, 0, just_the_version)


def gpu_devices() -> list[str]:
    """Return the device files of GPUs on this machine."""
    return [path for path in GPU_DEVICES if os.path.exists(path)]


def restrict(
    home: str,
    readable: Iterable[str],
    gpu: bool,
    others: Iterable[str] = (),
    threads: str | None = None,
) -> int:
    """Confine this thread, and what it starts, permanently; needs no_new_privs. Return the version in force.

    Args:
        home: the one folder to write, create and delete in.
        readable: files and folders to read and execute; missing ones are skipped.
        gpu: NVIDIA's devices may be used.
        others: more writable folders.
        threads: the writable folder of /proc, where CUDA's driver names its threads.

    Raises:
        OSError: no Landlock here.
    """
    known = version()
    every = RIGHTS[max(number for number in RIGHTS if number <= known)]
    attributes = struct.pack("QQQ", every, TCP if known >= 4 else 0, SCOPES if known >= 6 else 0)
    size = 24 if known >= 6 else 16 if known >= 4 else 8
    rules = syscall("landlock_create_ruleset", attributes, size, 0)
    try:
        for path in (home, *others):
            _allow(rules, path, every)
        for path in [*DEVICES, *(gpu_devices() if gpu else ())]:
            _allow(rules, path, every & (READ_FILE | WRITE_FILE | READ_DIR | IOCTL_DEV))
        for path in readable:
            _allow(rules, path, READ if not path.endswith("/.") else READ_DIR)
        if threads is not None:  # CUDA does not start without (cuInit: error 304)
            _allow(rules, threads, every & (READ | WRITE_FILE | TRUNCATE))
        syscall("landlock_restrict_self", rules, 0)
    finally:
        os.close(rules)
    return known


def readable(home: str, cwd: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return paths whose trees isolated code may read; some may not exist. Cached, so that the zygote has them ready."""
    named = [environ[name] for name in NAMED if name in environ]
    named += [entry for name in SEARCHED for entry in environ.get(name, "").split(":")]
    compilers = [environ[name].split()[:1] for name in COMPILERS if name in environ]
    found = [shutil.which(words[0], path=environ.get("PATH")) for words in compilers if words]
    named += [
        os.path.dirname(os.path.dirname(os.path.realpath(program))) for program in found if program
    ]
    named += [sys.prefix, sys.base_prefix, sys.exec_prefix, *([cwd] if cwd != home else [])]
    return _readable(environ.get("PATH", ""), tuple(named), importable.folders())


@cache
def _readable(path: str, named: tuple[str, ...], imported: tuple[str, ...]) -> tuple[str, ...]:
    tools = [
        os.path.realpath(found)
        for found in (shutil.which(tool, path=path) for tool in TOOLS)
        if found
    ]
    wanted = [*named, *(os.path.dirname(os.path.dirname(tool)) for tool in tools)]
    wanted = [path for path in wanted if importable.may_be_shown(path)]
    found = [*SYSTEM, *(f"/etc/{name}" for name in SETTINGS)]
    for one in sorted(wanted):
        if not any(importable.within(one, other) for other in found):
            found.append(one)
    shown = [
        path
        for folder in imported
        if not any(importable.within(folder, other) for other in found)
        for path in importable.shown(folder)
    ]
    return (*found, *shown)


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
