"""System calls refused to isolated code, as a classic BPF program for seccomp.

All others are allowed, so a compiler, Triton or CUDA notices nothing. Refused are calls that reach into another process or let one be
reached unseen, change the machine or its clock, enter namespaces, leave something behind in the kernel, take memory or disk where neither
is counted, or open a network connection. Refused calls fail with EPERM; fallocate with EOPNOTSUPP, which makes C libraries write; clone3,
whose flags the filter cannot read, with ENOSYS, which makes C libraries use clone. Code of another architecture (32 bit) is killed.

Linux decides once which calls are allowed with any arguments and lets them pass without running the program; SPEC_ALLOW avoids the
speculation controls that otherwise slow the process on kernels before 5.16.

Program format: Linux's include/uapi/linux/filter.h and seccomp.h.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct
from collections.abc import Iterable
from functools import cache

from dvk.sandbox.syscalls import number, syscall

REFUSED = (
    # other processes' memory, registers, descriptors, and sight of them
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "pidfd_getfd",
    "kcmp",
    "process_madvise",
    "process_mrelease",
    "perf_event_open",
    # page faults that stall a reader, memory that no reader sees, requests that bypass this filter
    "userfaultfd",
    "memfd_secret",
    "io_uring_setup",
    "io_uring_enter",
    "io_uring_register",
    # the kernel and the machine
    "bpf",
    "kexec_load",
    "kexec_file_load",
    "init_module",
    "finit_module",
    "delete_module",
    "reboot",
    "swapon",
    "swapoff",
    "acct",
    "quotactl",
    "quotactl_fd",
    "sethostname",
    "setdomainname",
    "vhangup",
    "iopl",
    "ioperm",
    "syslog",
    "lookup_dcookie",
    "fanotify_init",
    "open_by_handle_at",
    "settimeofday",
    "clock_settime",
    "adjtimex",
    "clock_adjtime",
    # timers that send any signal, SIGCONT to a stopped process among them (setitimer's and alarm's signals are fixed)
    "timer_create",
    # pages kept in a pipe after they were unmapped
    "vmsplice",
    # what outlives the process
    "add_key",
    "request_key",
    "keyctl",
    "shmget",
    "shmat",
    "shmctl",
    "semget",
    "semop",
    "semtimedop",
    "semctl",
    "msgget",
    "msgsnd",
    "msgrcv",
    "msgctl",
    "mq_open",
    "mq_unlink",
    # another view of the machine
    "unshare",
    "setns",
    "mount",
    "umount2",
    "pivot_root",
    "chroot",
    "open_tree",
    "move_mount",
    "fsopen",
    "fsconfig",
    "fsmount",
    "fspick",
    "mount_setattr",
)

SIGNALLING = ("tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")
TUNING = (
    "sched_setaffinity",
    "sched_setscheduler",
    "sched_setparam",
    "sched_setattr",
    "prlimit64",
    "migrate_pages",
    "move_pages",
)

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
X32 = 0x40000000
"""Bit of the call numbers of x86-64's second ABI, with 32-bit pointers."""

LOAD, JUMP_EQUAL, JUMP_SET, RETURN = 0x20, 0x15, 0x45, 0x06
ALLOW, REFUSE, KILL = 0x7FFF0000, 0x00050000, 0x80000000
OFFSET_NUMBER, OFFSET_ARCH, OFFSET_ARGUMENTS = 0, 4, 16

CLONE_NEW = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET."""
AF_UNIX = 1
PR_SET_DUMPABLE, PR_SET_PTRACER = 4, 0x59616D61
F_SETOWN, F_SETOWN_EX, F_SETSIG, F_SETLEASE, F_NOTIFY = 8, 15, 10, 1024, 1026
SIGNALS_BY_FILES = (F_SETOWN, F_SETOWN_EX, F_SETSIG, F_SETLEASE, F_NOTIFY)
FIOSETOWN, SIOCSPGRP, TIOCSTI, TIOCLINUX = 0x8901, 0x8902, 0x5412, 0x541C
RESERVING = (0x40305828, 0x4030582A, 0x40305839)
"""FS_IOC_RESVSP, FS_IOC_RESVSP64, FS_IOC_ZERO_RANGE."""
PRIO_USER, IOPRIO_WHO_USER = 2, 3

Instruction = tuple[int, int, int, int]


def install(
    unix_sockets: bool, own_pid: int | None, programs: bool = True, judges: bool = False
) -> None:
    """Install the filter for this thread, and what it starts, permanently; needs no_new_privs.

    Args:
        unix_sockets: allow `socket(AF_UNIX)`; socketpair is allowed in any case.
        own_pid: this process's id, if it shares process ids with others: calls with a process id pass for that one alone.
        Subprocesses then cannot be signalled, except through the group.
        programs: whether it may execute programs.
        judges: whether it reads the memory of the processes that it judges.

    Raises:
        OSError: this kernel, or this architecture, has no usable seccomp filters.
    """
    code = program(platform.machine(), unix_sockets, own_pid, programs, judges)
    text = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(text))
    set_mode_filter, spec_allow = 1, 4
    try:
        syscall("seccomp", set_mode_filter, spec_allow, header)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        syscall(
            "seccomp", set_mode_filter, 0, header
        )  # a kernel before 4.17, which has no such flag


def program(
    machine: str,
    unix_sockets: bool,
    own_pid: int | None,
    programs: bool = True,
    judges: bool = False,
) -> bytes:
    """Return the filter's instructions, eight bytes each; `machine` as in uname, the rest as for `install`.

    Raises:
        OSError: not x86-64 or aarch64.
    """
    code = _refused(machine, judges)
    code += _case(machine, "socket", _refuse_unless(0, [AF_UNIX] if unix_sockets else []))
    if (
        not unix_sockets
    ):  # descriptors in flight in a socket belong to no process, nor does what they hold
        code += _case(machine, "sendmsg", [_refuse()]) + _case(machine, "sendmmsg", [_refuse()])
    if own_pid is not None:
        code += _about_processes(machine, own_pid)
    if not programs:
        code += _case(machine, "execve", [_refuse()]) + _case(machine, "execveat", [_refuse()])
    return code + _bytes([(RETURN, 0, 0, ALLOW)])


@cache
def _refused(machine: str, judges: bool) -> bytes:
    """Build all parts that depend on no session, so that the zygote has them ready."""
    if machine not in AUDIT_ARCH:
        raise OSError(errno.ENOSYS, f"no list of system calls for {machine}")
    start: list[Instruction] = [
        (LOAD, 0, 0, OFFSET_ARCH),
        (JUMP_EQUAL, 1, 0, AUDIT_ARCH[machine]),
        (RETURN, 0, 0, KILL),
        (LOAD, 0, 0, OFFSET_NUMBER),
    ]
    if machine == "x86_64":
        start += [(JUMP_SET, 0, 1, X32), (RETURN, 0, 0, KILL)]
    cases = [
        _case(machine, name, [_refuse()])
        for name in REFUSED
        if not (judges and name == "process_vm_readv")
    ]
    cases += [
        _case(machine, "clone3", [_refuse(errno.ENOSYS)]),
        _case(machine, "clone", _refuse_bits(0, CLONE_NEW)),
        _case(
            machine, "prctl", _refuse_if(0, [PR_SET_DUMPABLE, PR_SET_PTRACER])
        ),  # may the judge read us?
        _case(
            machine, "fcntl", _refuse_if(1, SIGNALS_BY_FILES)
        ),  # any signal to any process, or to itself while it is stopped
        _case(
            machine, "ioctl", _refuse_if(1, [FIOSETOWN, SIOCSPGRP, TIOCSTI, TIOCLINUX, *RESERVING])
        ),
        # Gigabytes at once, before a warden looks; C libraries write zeros if a file system does not support it.
        _case(machine, "fallocate", [_refuse(errno.EOPNOTSUPP)]),
        _case(machine, "personality", _refuse_unless(0, [0, 0xFFFFFFFF])),
    ]
    return _bytes(start) + b"".join(cases)


def _about_processes(machine: str, pid: int) -> bytes:
    own = _refuse_unless(0, [0, pid])
    cases = [_case(machine, "kill", _refuse_unless(0, [0, pid, -pid & 0xFFFFFFFF]))]
    cases += [_case(machine, name, _refuse_unless(0, [pid])) for name in SIGNALLING]
    cases += [_case(machine, name, own) for name in TUNING]
    cases.append(_case(machine, "pidfd_send_signal", [_refuse()]))
    cases.append(
        _case(machine, "setpriority", _refuse_if(0, [PRIO_USER]), _refuse_unless(1, [0, pid]))
    )
    cases.append(
        _case(machine, "ioprio_set", _refuse_if(0, [IOPRIO_WHO_USER]), _refuse_unless(1, [0, pid]))
    )
    return b"".join(cases)


def _case(machine: str, name: str, *checks: list[Instruction]) -> bytes:
    """Return the instructions for one call; the accumulator holds its number before and, if it is another, after."""
    called = number(name, machine)
    if called is None:
        return b""
    body = [instruction for check in checks for instruction in check] + [(RETURN, 0, 0, ALLOW)]
    return _bytes([(JUMP_EQUAL, 0, len(body), called), *body])


def _bytes(code: Iterable[Instruction]) -> bytes:
    return b"".join(struct.pack("<HBBI", *instruction) for instruction in code)


def _refuse(error: int = errno.EPERM) -> Instruction:
    return (RETURN, 0, 0, REFUSE | error)


def _load(argument: int) -> Instruction:
    """Compare the lower half: the kernel reads these arguments as 32 bits (all refused flags of clone are in it)."""
    return (LOAD, 0, 0, OFFSET_ARGUMENTS + 8 * argument)


def _refuse_if(argument: int, values: Iterable[int]) -> list[Instruction]:
    code = [_load(argument)]
    for value in values:
        code += [(JUMP_EQUAL, 0, 1, value), _refuse()]
    return code


def _refuse_unless(argument: int, values: list[int]) -> list[Instruction]:
    jumps = [(JUMP_EQUAL, len(values) - place, 0, value) for place, value in enumerate(values)]
    return [_load(argument), *jumps, _refuse()]


def _refuse_bits(argument: int, mask: int) -> list[Instruction]:
    return [_load(argument), (JUMP_SET, 0, 1, mask), _refuse()]
