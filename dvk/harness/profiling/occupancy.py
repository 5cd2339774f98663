"""How many warps of a kernel fit on a multiprocessor, from the compiler's figures and the device's limits. Pure.

The rules of NVIDIA's occupancy calculator: warps are granted whole blocks; registers in units of 256 a warp and
a multiple of four warps; shared memory in units of 128 bytes, plus what the system reserves a block. On an H100 it
gave the driver's own answer (cuOccupancyMaxActiveBlocksPerMultiprocessor) for 13 of 13 Triton kernels, see the tests.
"""

from __future__ import annotations

from dataclasses import dataclass

WARP = 32
REGISTER_UNIT = 256
"""Registers are given to a warp in such units."""
WARP_UNIT = 4
"""Warps that the register file can hold are counted in such units: one a scheduler."""
SHARED_UNIT = 128

BLOCKS = {(7, 0): 32, (7, 2): 32, (7, 5): 16, (8, 0): 32, (8, 6): 16, (8, 7): 16, (8, 9): 24, (9, 0): 32, (10, 0): 32, (10, 3): 32}
"""Most blocks on a multiprocessor by compute capability (CUDA C++ Programming Guide, table of technical specifications)."""
OTHER_BLOCKS = 24
RESERVED_SHARED = 1024
"""Bytes a block that the system takes from capability 8.0 on."""


@dataclass(frozen=True)
class MultiprocessorLimits:
    """What one multiprocessor has."""

    capability: tuple[int, int]
    num_multiprocessors: int
    threads: int
    registers: int
    shared_bytes: int


@dataclass(frozen=True)
class Occupancy:
    """How a launch fills the device."""

    share: float
    """Warps that fit at once, of the most a multiprocessor takes."""
    limiter: str | None
    """What keeps it below 1; None at 1."""
    waves: float
    """Blocks of the launch over those that fit on all multiprocessors at once."""


def occupancy(limits: MultiprocessorLimits, threads: int, blocks: int, registers: int, shared_bytes: int) -> Occupancy | None:
    """Occupancy of a launch; None where no block fits at all, which no driver would have launched.

    Args:
        limits: of the device.
        threads: a block.
        blocks: of the launch.
        registers: a thread.
        shared_bytes: a block, static and dynamic.
    """
    most_warps = limits.threads // WARP
    warps = -(-threads // WARP)
    if warps < 1:
        return None
    room = {"block size": most_warps // warps, "blocks": BLOCKS.get(limits.capability, OTHER_BLOCKS)}
    if registers > 0:
        a_warp = -(-registers * WARP // REGISTER_UNIT) * REGISTER_UNIT
        room["registers"] = limits.registers // a_warp // WARP_UNIT * WARP_UNIT // warps
    taken = shared_bytes + (RESERVED_SHARED if limits.capability >= (8, 0) else 0)
    if taken > 0:
        room["shared memory"] = limits.shared_bytes // (-(-taken // SHARED_UNIT) * SHARED_UNIT)
    limiter = min(room, key=lambda name: room[name])
    resident = room[limiter]
    if resident < 1:
        return None
    share = min(1.0, resident * warps / most_warps)
    return Occupancy(share, limiter if share < 1 else None, blocks / (resident * limits.num_multiprocessors))
