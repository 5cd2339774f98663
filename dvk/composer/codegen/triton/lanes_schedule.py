"""Schedules of products on lanes in Triton, the best guess first.

Measured on an H200 with layers of Llama 3 8B and 70B and Mistral 7B, for 1, 4 and 8 rows.
"""

from __future__ import annotations

from dvk.composer.codegen.triton.lanes import RESULTS, STEP, lane_form
from dvk.composer.ir.loops import Kernel
from dvk.composer.ir.schedules.triton import TritonLanes
from dvk.target import Gpu

RESIDENT = 32
"""Warps that a multiprocessor should hold when all programs run at once: their loads in flight keep the memory busy."""
IN_WAVES = 8
"""Warps of a program where programs run in several waves: more share a multiprocessor badly, fewer make a long last wave."""
WARPS = (16, 8, 4, 2, 1)
FLIGHT = 8
"""Reads of `STEP` places of k that a program starts at once."""
MOST = 3


def options(kernel: Kernel, gpu: Gpu) -> list[TritonLanes]:
    """The alternatives worth measuring, whose warps share k evenly; none for a kernel that lanes do not multiply."""
    if gpu.capability < (8, 0) or (form := lane_form(kernel)) is None:
        return []
    turns = int(form.k) // STEP
    programs = -(-int(form.long.size) // RESULTS // gpu.sms)
    warps = next((w for w in WARPS[:3] if w * programs <= RESIDENT), IN_WAVES)
    nearest = sorted(WARPS, key=lambda w: max(w / warps, warps / w))
    found: list[TritonLanes] = []
    for count in nearest:
        first = max(FLIGHT // count, 1)
        fits = [s for s in (first, 2 * first, first // 2, 1) if s and turns % (count * s) == 0]
        found += [TritonLanes(warps=count, steps=s) for s in list(dict.fromkeys(fits))[:2]]
    return found[:MOST]
