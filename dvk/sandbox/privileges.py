"""Drop a process's privileges beyond its user's plain rights, while the judge can still read it.

Without capabilities, root is a user who owns root's files. If that is too little to read Python or the session's folder (root in a
container with a user's folders), the one capability to read all files is kept.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct

from dvk.sandbox.proctree import PR_SET_PDEATHSIG
from dvk.sandbox.syscalls import syscall

PR_SET_DUMPABLE = 4
PR_SET_SECUREBITS = 28
PR_SET_NO_NEW_PRIVS = 38
PR_SET_PTRACER = 0x59616D61
PR_SET_PTRACER_ANY = (1 << 64) - 1
CAP_DAC_READ_SEARCH = 1 << 2
LOCKED_NOROOT = 0b11001111
"""Securebits, all locked: neither executing as root, nor changing ids, nor ambient sets give capabilities."""
CAPABILITIES_V3 = 0x20080522


def drop(needed: list[str]) -> bool:
    """Drop all capabilities permanently, those gained by executing a program included; return True if none is left.

    Args:
        needed: paths that must stay readable; CAP_DAC_READ_SEARCH is kept if they would not.

    Raises:
        OSError: the kernel refused.
    """
    set_no_new_privs()
    permitted = _permitted()
    if permitted == 0:
        return True
    _set(0, permitted)
    if all(os.access(path, os.R_OK, effective_ids=True) for path in needed):
        _set(permitted, permitted)
        try:
            _prctl(PR_SET_SECUREBITS, LOCKED_NOROOT)
        except OSError:  # without CAP_SETPCAP; no_new_privs alone keeps an exec from gaining any
            pass
        _set(0, 0)
        return True
    kept = permitted & CAP_DAC_READ_SEARCH
    _set(kept, kept)
    return kept == 0


def set_no_new_privs() -> None:
    """Set no_new_privs: executed programs gain no rights; needed for the rest.

    Raises:
        OSError: the kernel refused.
    """
    _prctl(PR_SET_NO_NEW_PRIVS, 1)


def stay_readable() -> None:
    """Let the same user's other processes read this one's memory, and renew settings that a change of credentials resets."""
    _prctl(PR_SET_DUMPABLE, 1)
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        _prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY)
    except OSError:  # no Yama, no need
        pass


def _prctl(option: int, value: int) -> None:
    syscall("prctl", option, value, 0, 0, 0)


def _permitted() -> int:
    """Return the capabilities this process may use, one bit each."""
    data = ctypes.create_string_buffer(24)
    syscall("capget", struct.pack("=Ii", CAPABILITIES_V3, 0), data)
    low, high = struct.unpack("=4xI4x4xI4x", data.raw)
    return int(low | high << 32)


def _set(effective: int, permitted: int) -> None:
    sets = [value >> shift & 0xFFFFFFFF for shift in (0, 32) for value in (effective, permitted, 0)]
    syscall("capset", struct.pack("=Ii", CAPABILITIES_V3, 0), struct.pack("=6I", *sets))
