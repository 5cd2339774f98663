"""CUDA schedules: how threads share a kernel.

`vector` is the number of contiguous elements of a thread's access. Reductions across memory (family `column`) take one element at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dvk.composer.ir.schedules.base import Positive, Power, Schedule


@dataclass(frozen=True, kw_only=True)
class CudaSchedule(Schedule):
    """Any schedule of a CUDA kernel."""


@dataclass(frozen=True, kw_only=True)
class CudaFlat(CudaSchedule):
    """One flat index over everything: `threads` a block, `each` vectors a thread."""

    families = ("pointwise",)
    kind: Literal["flat"] = "flat"
    threads: Positive
    each: Positive
    vector: Power


@dataclass(frozen=True, kw_only=True)
class CudaRows(CudaSchedule):
    """`lanes` threads a row, `rows` rows a block."""

    families = ("row", "column")
    kind: str
    lanes: Power
    rows: Power
    vector: Power


@dataclass(frozen=True, kw_only=True)
class CudaPersistent(CudaRows):
    """Values that several passes read stay in registers."""

    kind: Literal["persistent"] = "persistent"


@dataclass(frozen=True, kw_only=True)
class CudaLooped(CudaRows):
    """Each pass reads memory (or a cache) again.

    Attributes:
        online: dependent reductions in one pass (`codegen.analysis.online`).
    """

    kind: Literal["looped"] = "looped"
    online: bool = False


@dataclass(frozen=True, kw_only=True)
class CudaSplit(CudaRows):
    """As `CudaLooped` for each of `splits` slices of a row; one launch a pass, partial results in between."""

    kind: Literal["split"] = "split"
    splits: Power
    online: bool = False


CUDA = (CudaFlat, CudaPersistent, CudaLooped, CudaSplit)
"""Every class of schedules of the back end."""
