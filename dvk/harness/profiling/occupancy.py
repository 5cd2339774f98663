"""Occupancy of a kernel, from the compiler's figures and the device's limits. Pure.

The rules of NVIDIA's occupancy calculator: warps are allocated in whole blocks; registers in units of 256 per warp and a multiple of four
warps; shared memory in units of 128 bytes, plus the system's reserve per block. On an H100 it gave the driver's answer
(cuOccupancyMaxActiveBlocksPerMultiprocessor) for 13 of 13 Triton kernels, see the tests.
"""

from __future__ import annotations

from dataclasses import dataclass

WARP = 32
REGISTER_UNIT = 256
"""Allocation unit of registers per warp."""
WARP_UNIT = 4
"""Allocation unit of warps in the register file: one per scheduler."""
SHARED_UNIT = 128

BLOCKS = {
    (7, 0): 32,
    (7, 2): 32,
    (7, 5): 16,
    (8, 0): 32,
    (8, 6): 16,
    (8, 7): 16,
    (8, 9): 24,
    (9, 0): 32,
    (10, 0): 32,
    (10, 3): 32,
}
"""Most blocks per multiprocessor by compute capability (CUDA C++ Programming Guide, table of technical specifications)."""
OTHER_BLOCKS = 24
RESERVED_SHARED = 1024
"""Bytes per block that the system reserves from capability 8.0 on."""


@dataclass(frozen=True)
class MultiprocessorLimits:
    """Resources of one multiprocessor."""

    capability: tuple[int, int]
    num_multiprocessors: int
    threads: int
    registers: int
    shared_bytes: int


@dataclass(frozen=True)
class Occupancy:
    """Use of the device by a launch."""

    share: float
    """Resident warps over the most that a multiprocessor takes."""
    limiter: str | None
    """The resource that keeps it below 1; None at 1."""
    waves: float
    """Blocks of the launch over those that fit on all multiprocessors at once."""


def occupancy(
    limits: MultiprocessorLimits, threads: int, blocks: int, registers: int, shared_bytes: int
) -> Occupancy | None:
    """Return the occupancy of a launch; None if no block fits, which no driver would have launched.

    Args:
        limits: limits of the device.
        threads: threads per block.
        blocks: blocks of the launch.
        registers: registers per thread.
        shared_bytes: shared memory per block, static and dynamic.
    """
    most_warps = limits.threads // WARP
    warps = -(-threads // WARP)
    if warps < 1:
        return None
    room = {
        "block size": most_warps // warps,
        "blocks": BLOCKS.get(limits.capability, OTHER_BLOCKS),
    }
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
    return Occupancy(
        share, limiter if share < 1 else None, blocks / (resident * limits.num_multiprocessors)
    )
