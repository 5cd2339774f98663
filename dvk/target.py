"""The device that kernels are written for: facts that heuristics read, and this machine's (`of_machine`).

Nothing here imports torch or opens a CUDA context.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from dvk import machine
from dvk.config import Config
from dvk.errors import UsageError
from dvk.records.measured import read_table


@dataclass(frozen=True)
class Gpu:
    """A GPU; the default is an H200.

    Attributes:
        name: for people.
        capability: compute capability.
        sms: streaming multiprocessors; fewer programs than this leave some idle.
        registers_per_sm: of 32 bits.
        shared_bytes_per_sm: shared memory of a multiprocessor.
        shared_bytes_per_block: the most that one block may use.
        l2_bytes: cache shared by all multiprocessors.
        gb_per_s: achievable bandwidth of device memory.
        warp: threads of a warp.
    """

    name: str = "NVIDIA H200"
    capability: tuple[int, int] = (9, 0)
    sms: int = 132
    registers_per_sm: int = 1 << 16
    shared_bytes_per_sm: int = 228 << 10
    shared_bytes_per_block: int = 227 << 10
    l2_bytes: int = 50 << 20
    gb_per_s: float = 4400.0
    warp: int = 32


@dataclass(frozen=True)
class Cpu:
    """A processor; the default is a small server with AVX-512.

    Attributes:
        name: for people.
        cores: that this process may use.
        l1_bytes: data cache of a core.
        l2_bytes: second cache of a core.
        vector_bits: widest vector registers.
    """

    name: str = "x86-64 with AVX-512"
    cores: int = 4
    l1_bytes: int = 32 << 10
    l2_bytes: int = 256 << 10
    vector_bits: int = 512


@dataclass(frozen=True)
class Target:
    """What kernels are written for. A back end reads the part where its kernels run."""

    gpu: Gpu = field(default_factory=Gpu)
    cpu: Cpu = field(default_factory=Cpu)


DEFAULT = Target()
"""The target of texts that must not depend on the machine, and of machines whose facts are not known."""


def loaded(found: Sequence[Mapping[str, Any]]) -> Target:
    """The target that a run folder holds as `dataclasses.asdict` gives it; the default if it holds none."""
    if not found:
        return DEFAULT
    gpu, cpu = found[0]["gpu"], found[0]["cpu"]
    return Target(Gpu(**{**gpu, "capability": tuple(gpu["capability"])}), Cpu(**cpu))


ACHIEVED = 0.9
"""Share of the memory's peak bandwidth that kernels reach: 4400 of 4900 GB/s on an H200."""
_ATTRIBUTES = {
    "sms": 16,
    "registers_per_sm": 82,
    "shared_bytes_per_sm": 81,
    "shared_bytes_per_block": 97,
    "l2_bytes": 38,
    "warp": 10,
    "clock_khz": 36,
    "bus_bits": 37,
    "major": 75,
    "minor": 76,
}
"""Numbers of CUdevice_attribute."""
_ASK = """
import ctypes, json, sys
cuda, device, value, found = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_int(), {}
if cuda.cuInit(0) or cuda.cuDeviceGet(ctypes.byref(device), 0):
    sys.exit(1)
for name, number in json.loads(sys.argv[1]).items():
    if cuda.cuDeviceGetAttribute(ctypes.byref(value), number, device):
        sys.exit(1)
    found[name] = value.value
print(json.dumps(found))
"""
"""Asked of the driver by a child: a process that has called cuInit cannot fork children that use CUDA."""


@cache
def of_machine(device: str) -> Target:
    """This machine as a target; the default's facts where they are not known.

    Args:
        device: `cuda` asks the driver about the first visible GPU, which takes about a tenth of a second.
    """
    gpu = _gpu() if device == "cuda" and machine.gpu_names() else None
    return Target(gpu or Gpu(), _cpu())


def of_judge(config: Config, device: str) -> Target:
    """The device that a judge under these settings times on; the default's facts if it is another machine's.

    A table of measured plans (`table:FILE`) is asked for plans with the vectors that its own plans have.
    """
    judge = config.remote.judge or ""
    if judge.startswith("table:"):
        return replace(DEFAULT, cpu=replace(DEFAULT.cpu, vector_bits=_vector_bits(judge[6:])))
    return DEFAULT if judge or config.remote.engine else of_machine(device)


@cache
def _vector_bits(table: str) -> int:
    """The widest vectors of a table's plans for a CPU; the default's if it has none, or cannot be read."""
    try:
        rows = list(read_table(Path(table).expanduser()))
    except UsageError:
        return DEFAULT.cpu.vector_bits
    schedules = [one for row in rows for plan in row.plans for one in plan.schedule.values()]
    return max(
        (one["width"] for one in schedules if "width" in one), default=DEFAULT.cpu.vector_bits
    )


def _gpu() -> Gpu | None:
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-c", _ASK, json.dumps(_ATTRIBUTES)],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
        return gpu_of(machine.gpu_names()[0], json.loads(done.stdout))
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def gpu_of(name: str, attributes: dict[str, int]) -> Gpu:
    """A GPU from the driver's attributes, by the names of `_ATTRIBUTES`."""
    facts = dict(attributes)
    capability = facts.pop("major"), facts.pop("minor")
    # Two transfers a clock, 8 bits a byte.
    peak = 2e3 * facts.pop("clock_khz") * facts.pop("bus_bits") / 8 / 1e9
    gb_per_s = round(ACHIEVED * peak, -1) or Gpu.gb_per_s
    return Gpu(name=name, capability=capability, gb_per_s=gb_per_s, **facts)


def _cpu() -> Cpu:
    flags = machine.cpu_flags()
    known = Cpu()
    return Cpu(
        name=machine.cpu_name(),
        cores=machine.num_cores(),
        l1_bytes=_cache_bytes(1) or known.l1_bytes,
        l2_bytes=_cache_bytes(2) or known.l2_bytes,
        vector_bits=256 if "avx2" in flags and "avx512f" not in flags else known.vector_bits,
    )


def _cache_bytes(level: int) -> int | None:
    """Size of the first core's data cache of a level."""
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            facts = [(folder / n).read_text().strip() for n in ("level", "type", "size")]
        except OSError:
            continue
        if facts[0] == str(level) and facts[1] != "Instruction" and facts[2][:-1].isdigit():
            return int(facts[2][:-1]) << {"K": 10, "M": 20}.get(facts[2][-1], 0)
    return None
