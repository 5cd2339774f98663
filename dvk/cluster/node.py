"""A cluster node's description of itself, and repair of the environment that Ray sets. Imports no Ray."""

from __future__ import annotations

import os
from pathlib import Path

import dvk
from dvk import machine
from dvk.records import PROTOCOL


def of_node() -> tuple[str, str]:
    """(version of the judge, kind of machine); equal kinds may share verdicts."""
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # Ray hides the GPUs from actors that request none
    machine.gpu_names.cache_clear()
    packages = ", ".join(f"{name} {machine.version(name)}" for name in machine.PACKAGES)
    kind = f"{', '.join(sorted(set(machine.gpu_names())))}; {machine.cpu_name()}, {machine.num_cores()} cores, {machine.isa()}; {packages}"
    return f"dvk {dvk.__version__}, protocol {PROTOCOL}", kind


def unbound() -> None:
    """Undo Ray's limit of one OpenMP thread per actor: candidates and references compute on all cores.

    A limit set in the node's own environment stays.
    """
    if b"OMP_NUM_THREADS=" not in Path("/proc/self/environ").read_bytes():
        os.environ.pop("OMP_NUM_THREADS", None)
