"""Targets of enclosed sessions."""

from __future__ import annotations

import ctypes
import os
from typing import Any

from dvk.sandbox import landlock

HELD = b"what the candidate holds"


class _Part(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


def waits(channel: Any) -> None:
    channel.receive()


def holds(channel: Any) -> None:
    kept = ctypes.create_string_buffer(HELD)
    channel.send({"address": ctypes.addressof(kept)})
    channel.receive()


def judges(channel: Any) -> None:
    order = channel.receive()
    into = ctypes.create_string_buffer(len(HELD))
    here, there = _Part(ctypes.addressof(into), len(HELD)), _Part(order["address"], len(HELD))
    ctypes.CDLL(None).process_vm_readv(
        order["pid"], ctypes.byref(here), 1, ctypes.byref(there), 1, 0
    )
    outside = order["outside"]
    forbidden = [f"/proc/{outside}/mem", f"/proc/{outside}/environ", "/etc/shadow"]
    settings = ["/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger"]
    reached = [path for path in forbidden if _opens(path, os.O_RDONLY)] + [
        path for path in settings if _opens(path, os.O_WRONLY)
    ]
    channel.send(
        {
            "read": into.raw.decode(errors="replace"),
            "reached": reached,
            "sees_outside": os.path.exists(f"/proc/{outside}"),
            "named": _opens(f"/proc/self/task/{os.getpid()}/comm", os.O_WRONLY),
        }
    )
    channel.receive()


def finds_devices(channel: Any) -> None:
    """Report terminals found the way that GPUs are."""
    landlock.GPU_DEVICES = tuple(path.replace("nvidia", "tty") for path in landlock.GPU_DEVICES)
    channel.send({"found": landlock.gpu_devices()})
    channel.receive()


def _opens(path: str, how: int) -> bool:
    try:
        os.close(os.open(path, how))
    except OSError:
        return False
    return True
