"""The filter's program, run by a small interpreter for both architectures, as the kernel would."""

from __future__ import annotations

import errno
import platform
import re
import struct
import subprocess

import pytest

from dvk.sandbox import seccomp
from dvk.sandbox.syscalls import NUMBERS, number

MACHINES = ("x86_64", "aarch64")
EPERM = seccomp.REFUSE | errno.EPERM
PID = 4321


def decide(code, machine, called, arguments=(), arch=None):
    """Return the filter's result for one system call; fails on a jump out of the program."""
    arguments = [value & (1 << 64) - 1 for value in arguments] + [0] * (6 - len(arguments))
    data = struct.pack(
        "<iIQ6Q", called, seccomp.AUDIT_ARCH[machine] if arch is None else arch, 0, *arguments
    )
    program = [struct.unpack_from("<HBBI", code, start) for start in range(0, len(code), 8)]
    place, accumulator = 0, 0
    while True:
        operation, if_true, if_false, value = program[place]
        place += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif operation == 0x15:
            place += if_true if accumulator == value else if_false
        elif operation == 0x45:
            place += if_true if accumulator & value else if_false
        else:
            assert operation == 0x06
            return value


@pytest.fixture(params=MACHINES)
def machine(request):
    return request.param


def call(machine, name, *arguments, unix=False, own_pid=None):
    return decide(
        seccomp.program(machine, unix, own_pid), machine, number(name, machine), arguments
    )


def test_refused_calls(machine):
    for name in seccomp.REFUSED:
        if number(name, machine) is not None:
            assert call(machine, name) == EPERM, name
    assert call(machine, "clone3") == seccomp.REFUSE | errno.ENOSYS


def test_everything_else_is_allowed(machine):
    code = seccomp.program(machine, False, None)
    others = ("clone3", "socket", "personality", "fallocate", "sendmsg", "sendmmsg")
    restricted = {number(name, machine) for name in (*seccomp.REFUSED, *others)}
    for called in set(range(470)) - restricted:
        assert decide(code, machine, called) == seccomp.ALLOW, called


def test_arguments_decide(machine):
    threads, fork, new_user, new_net = 0x3D0F00, 0x1200011, 0x10000011, 0x40000011
    for flags, expected in (
        (threads, seccomp.ALLOW),
        (fork, seccomp.ALLOW),
        (new_user, EPERM),
        (new_net, EPERM),
    ):
        assert call(machine, "clone", flags) == expected
    for family, unix, expected in (
        (1, True, seccomp.ALLOW),
        (1, False, EPERM),
        (2, True, EPERM),
        (16, True, EPERM),
    ):
        assert call(machine, "socket", family, unix=unix) == expected
    for option, expected in (
        (15, seccomp.ALLOW),
        (22, seccomp.ALLOW),
        (4, EPERM),
        (0x59616D61, EPERM),
    ):
        assert call(machine, "prctl", option, 1) == expected
    for command, expected in ((3, seccomp.ALLOW), (1030, seccomp.ALLOW), (8, EPERM), (15, EPERM)):
        assert call(machine, "fcntl", 5, command, PID) == expected
    for command, expected in (
        (0x5401, seccomp.ALLOW),
        (0xC0204623, seccomp.ALLOW),
        (0x5412, EPERM),
        (0x8901, EPERM),
    ):
        assert call(machine, "ioctl", 5, command) == expected
    for name in ("sendmsg", "sendmmsg"):
        assert call(machine, name) == EPERM and call(machine, name, unix=True) == seccomp.ALLOW
    assert call(machine, "fallocate", 3, 1) == seccomp.REFUSE | errno.EOPNOTSUPP
    assert call(machine, "ioctl", 5, 0x40305828) == EPERM
    assert call(machine, "personality", 0xFFFFFFFF) == seccomp.ALLOW
    assert call(machine, "personality", 0x0040000) == EPERM


def test_who_may_execute_nothing_may_do_the_rest(machine):
    code = seccomp.program(machine, False, None, programs=False)
    for name in ("execve", "execveat"):
        assert call(machine, name) == seccomp.ALLOW
        assert decide(code, machine, number(name, machine)) == EPERM
    assert decide(code, machine, number("clone", machine), [0x1200011]) == seccomp.ALLOW


def test_upper_halves_of_arguments_change_nothing(machine):
    """The kernel reads these as 32 bits; a filter that looks at 64 can be led past."""
    assert call(machine, "fcntl", 5, 8 | 1 << 32) == EPERM
    assert call(machine, "socket", 2 | 1 << 32) == EPERM
    assert call(machine, "kill", (PID + 1) | 1 << 40, own_pid=PID) == EPERM
    assert call(machine, "kill", -PID, own_pid=PID) == seccomp.ALLOW
    assert call(machine, "kill", -PID & 0xFFFFFFFF, own_pid=PID) == seccomp.ALLOW


def test_process_ids_are_ones_own_where_others_are_seen(machine):
    for name in ("kill", "sched_setaffinity", "prlimit64", "sched_setscheduler", "sched_setattr"):
        assert call(machine, name, PID + 1) == seccomp.ALLOW  # in a process id namespace
        for pid, expected in (
            (PID, seccomp.ALLOW),
            (0, seccomp.ALLOW),
            (PID + 1, EPERM),
            (1, EPERM),
            (-1, EPERM),
        ):
            assert call(machine, name, pid, own_pid=PID) == expected, (name, pid)
    for name in seccomp.SIGNALLING:
        assert call(machine, name, PID, PID + 7, own_pid=PID) == seccomp.ALLOW
        assert call(machine, name, PID + 1, PID, own_pid=PID) == EPERM
    assert call(machine, "pidfd_send_signal", 3, own_pid=PID) == EPERM
    for which, who, expected in (
        (0, 0, seccomp.ALLOW),
        (0, PID, seccomp.ALLOW),
        (0, PID + 1, EPERM),
        (2, 0, EPERM),
    ):
        assert call(machine, "setpriority", which, who, own_pid=PID) == expected
    for which, who, expected in ((1, 0, seccomp.ALLOW), (1, PID + 1, EPERM), (3, 0, EPERM)):
        assert call(machine, "ioprio_set", which, who, own_pid=PID) == expected


def test_other_architectures_are_killed():
    code = seccomp.program("x86_64", False, None)
    i386 = 0x40000003
    assert decide(code, "x86_64", 20, arch=i386) == seccomp.KILL
    assert decide(code, "x86_64", 0x40000000 | 39) == seccomp.KILL
    with pytest.raises(OSError):
        seccomp.program("riscv64", False, None)


@pytest.mark.skipif(platform.machine() not in MACHINES, reason="no numbers for this machine")
def test_numbers_are_the_kernels():
    source = "#include <sys/syscall.h>\n"
    done = subprocess.run(
        ["cc", "-E", "-dM", "-"], input=source, capture_output=True, text=True, check=True
    )
    known = {
        name: int(value) for name, value in re.findall(r"#define __NR_(\w+) (\d+)", done.stdout)
    }
    compared = [name for name in NUMBERS if name in known]
    assert len(compared) > 80
    for name in compared:
        assert number(name) == known[name], name
