"""Triton schedules: how a kernel is cut into programs. Sizes are elements, and powers of two unless a line says otherwise.

`warps` is the number of warps (32 threads) of a program.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dvk.composer.ir.schedules.base import Natural, Positive, Power, Schedule

ROWS = ("row", "column")
Online = bool | Literal["moments"]
"""True: dependent reductions in one pass (`codegen.analysis.online`); `moments`: a variance from shifted sums (`codegen.triton.moments`).
"""


@dataclass(frozen=True, kw_only=True)
class TritonSchedule(Schedule):
    """Any schedule of a Triton kernel."""


@dataclass(frozen=True, kw_only=True)
class TritonFlat(TritonSchedule):
    """One flat index over everything, `block` elements a program."""

    families = ("pointwise",)
    kind: Literal["flat"] = "flat"
    block: Power
    warps: Power


@dataclass(frozen=True, kw_only=True)
class TritonStride(TritonSchedule):
    """As `TritonFlat`, but a fixed number of `programs` (any number) loops over everything."""

    families = ("pointwise",)
    kind: Literal["stride"] = "stride"
    block: Power
    programs: Positive
    warps: Power


@dataclass(frozen=True, kw_only=True)
class TritonTile(TritonSchedule):
    """A tile of `yblock` × `xblock` elements, for transposes and for broadcasts without divisions."""

    families = ("pointwise",)
    kind: Literal["tile"] = "tile"
    yblock: Power
    xblock: Power
    warps: Power


@dataclass(frozen=True, kw_only=True)
class TritonPersistent(TritonSchedule):
    """`xblock` rows a program, each whole in registers."""

    families = (*ROWS, "window")
    kind: Literal["persistent"] = "persistent"
    xblock: Power
    warps: Power
    online: Online = False


@dataclass(frozen=True, kw_only=True)
class TritonLooped(TritonSchedule):
    """`xblock` rows a program, `rblock` elements of the row at a time.

    Attributes:
        evict: hints say what should stay in L2 for a later pass.
    """

    families = ROWS
    kind: Literal["looped"] = "looped"
    xblock: Power
    rblock: Power
    warps: Power
    evict: bool
    online: Online = False


@dataclass(frozen=True, kw_only=True)
class TritonRowSums(TritonSchedule):
    """A program a block of rows, `xblock` whole rows in registers at a time; sums over the rows stay there, too."""

    families = ("row_sums",)
    kind: Literal["row_sums"] = "row_sums"
    xblock: Power
    warps: Power


@dataclass(frozen=True, kw_only=True)
class TritonSplit(TritonSchedule):
    """Each row in `splits` slices, `rblock` elements at a time; one launch a stage, partial results in between."""

    families = ROWS
    kind: Literal["split"] = "split"
    xblock: Power
    rblock: Power
    splits: Power
    warps: Power
    online: bool = False


@dataclass(frozen=True, kw_only=True)
class TritonWindow(TritonSchedule):
    """`block` outputs a program by one flat index, each with a loop over its window.

    Attributes:
        unroll: the positions of the window are written one after the other.
    """

    families = ("window",)
    kind: Literal["window"] = "window"
    block: Power
    unroll: bool
    warps: Power


@dataclass(frozen=True, kw_only=True)
class TritonWindowTile(TritonSchedule):
    """As `TritonWindow`, with a tile of `yblock` runs of `xblock` outputs, whose indices need no division."""

    families = ("window",)
    kind: Literal["window"] = "window"
    yblock: Power
    xblock: Power
    unroll: bool
    warps: Power


SCANS = ("scan", "scan_column")


@dataclass(frozen=True, kw_only=True)
class TritonScan(TritonSchedule):
    """`xblock` rows a program, each scanned whole in registers."""

    families = SCANS
    kind: Literal["scan"] = "scan"
    xblock: Power
    warps: Power


@dataclass(frozen=True, kw_only=True)
class TritonScanLoop(TritonSchedule):
    """`xblock` rows a program, `rblock` elements of the row at a time, with a running value a row."""

    families = SCANS
    kind: Literal["scan_loop"] = "scan_loop"
    xblock: Power
    rblock: Power
    warps: Power


@dataclass(frozen=True, kw_only=True)
class TritonScanWalk(TritonSchedule):
    """`block` rows a program, one element of each at a time: for scans across memory."""

    families = SCANS
    kind: Literal["scan_walk"] = "scan_walk"
    block: Power
    warps: Power


@dataclass(frozen=True, kw_only=True)
class TritonScanSplit(TritonSchedule):
    """Each row in `splits` slices, `rblock` at a time: totals of the slices, then each slice from its prefix."""

    families = SCANS
    kind: Literal["scan_split"] = "scan_split"
    xblock: Power
    rblock: Power
    splits: Power
    warps: Power


@dataclass(frozen=True, kw_only=True)
class TritonProduct(TritonSchedule):
    """A matmul in tiles of `rows` × `columns` results, `depth` of k at a time.

    Attributes:
        stages: loads in flight.
        group: rows of tiles in a strip, so that programs that run together share operands in L2.
        splits: slices of k, whose partial sums a second function adds in a fixed order; 1 for none.
        programs: if not 0, that many persistent programs (any number) loop over all tiles.
        dot: `tf32x3` computes float32 as three TF32 products of the operands' TF32 parts and remainders, together as exact as float32
            (Ootomo and Yokota, arXiv 2203.03341), except for operands that TF32 rounds to infinity, and those near 1e-37, whose
            remainder vanishes; empty for the operands' type.
    """

    families = ("product",)
    kind: Literal["product"] = "product"
    rows: Power
    columns: Power
    depth: Power
    warps: Power
    stages: Positive
    group: Positive
    splits: Power
    programs: Natural
    dot: Literal["", "tf32x3"] = ""


@dataclass(frozen=True, kw_only=True)
class TritonSkinny(TritonSchedule):
    """A matmul with few rows or few columns: `block` of the long side and `depth` of k at a time, the short side unrolled, sums in
    ordinary arithmetic; `stages` and `splits` as in `TritonProduct`."""

    families = ("product",)
    kind: Literal["skinny"] = "skinny"
    block: Power
    depth: Power
    warps: Power
    stages: Positive
    splits: Power


@dataclass(frozen=True, kw_only=True)
class TritonUnpacked(TritonSchedule):
    """As `TritonSkinny`, for a long operand whose words hold several elements each: `block` of the long side and `depth` of k at a time,
    counted in words if they lie along it. A word is read once, its elements are written out."""

    families = ("product",)
    kind: Literal["unpacked"] = "unpacked"
    block: Power
    depth: Power
    warps: Power
    stages: Positive
    splits: Power


@dataclass(frozen=True, kw_only=True)
class TritonLanes(TritonSchedule):
    """A matmul of up to 8 rows in bf16 with words of four bits along k, on matrix units: 16 results a program, whose `warps` take turns
    along k, `steps` times 128 of it at once."""

    families = ("product",)
    kind: Literal["lanes"] = "lanes"
    warps: Power
    steps: Power


@dataclass(frozen=True, kw_only=True)
class TritonAttention(TritonSchedule):
    """An attention of `rows` queries and `keys` keys at a time; `stages` and `splits` (of the keys) as in `TritonProduct`.

    Attributes:
        registers: the most of a thread, so that more programs run on a multiprocessor, one its exponents while another its products; 0 for
            the compiler's choice.
    """

    families = ("attention",)
    kind: Literal["attention"] = "attention"
    rows: Power
    keys: Power
    warps: Power
    stages: Positive
    splits: Power
    registers: Natural = 0


TRITON = (
    TritonFlat,
    TritonStride,
    TritonTile,
    TritonPersistent,
    TritonLooped,
    TritonRowSums,
    TritonSplit,
    TritonWindow,
    TritonWindowTile,
    TritonScan,
    TritonScanLoop,
    TritonScanWalk,
    TritonScanSplit,
    TritonProduct,
    TritonSkinny,
    TritonUnpacked,
    TritonLanes,
    TritonAttention,
)
"""Every class of schedules of the back end."""
