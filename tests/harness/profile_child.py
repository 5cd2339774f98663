"""Sandbox target of test_profile: what counts as own code in a process that has loaded nothing else."""

from __future__ import annotations

import ctypes
import shutil

import torch

from dvk.harness.profiling.profile import _own_libraries, profile_call
from dvk.sandbox import RequestChannel


def looks(channel: RequestChannel) -> None:
    """Own libraries and coverage before a private library is loaded, and own libraries after."""
    import _ctypes

    x, path = torch.randn(64, 64), (channel.receive() or {})["path"]
    before, coverage = (
        _own_libraries(),
        profile_call(lambda: sum(range(20_000)) + x @ x, "cpu").coverage,
    )
    shutil.copy(_ctypes.__file__, path)
    ctypes.CDLL(path)
    channel.send({"before": before, "coverage": coverage, "after": _own_libraries()})
