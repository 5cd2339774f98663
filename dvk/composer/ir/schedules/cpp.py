"""C++ schedules: how loops are shared by threads and vectors.

`width` is the preferred width of vectors in bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dvk.composer.ir.schedules.base import Natural, Positive, Schedule

Width = Literal[256, 512]
Parallel = Literal["rows", "inner", "serial"]
Form = Literal["outer", "dot"]


@dataclass(frozen=True, kw_only=True)
class CppSchedule(Schedule):
    """Any schedule of a C++ kernel."""

    tag = "form"

    @property
    def strided(self) -> bool:
        """Rows are walked one by one although they lie across memory."""
        return False


@dataclass(frozen=True, kw_only=True)
class CppLoops(CppSchedule):
    """Loops over rows around a vector loop.

    Attributes:
        parallel: threads share `rows`, or the `inner` slices of each pass over a row; `serial` for one thread.
        chunk: elements of a slice of the variable that vectors run over.
        form: `flat`: one vector loop over all elements, whose indices are divided out.
        walk: `strided`: see `CppSchedule.strided`.
        block: elements of a row at a time; 0 for all.
        online: dependent reductions in one pass (`codegen.analysis.online`).
        keep: costly values that a later pass needs are kept in a buffer.
        unrolled: the positions of a window are written one after the other.
    """

    families = ("pointwise", "row", "column", "window", "scan", "scan_column", "row_sums")
    parallel: Parallel
    chunk: Positive
    width: Width
    form: Literal["", "flat"] = ""
    walk: Literal["", "strided"] = ""
    block: Natural = 0
    online: bool = False
    keep: bool = True
    unrolled: bool = False

    @property
    def strided(self) -> bool:
        return self.walk == "strided"


@dataclass(frozen=True, kw_only=True)
class CppProduct(CppSchedule):
    """A matmul.

    Attributes:
        form: vectors run along the columns (`outer`) or along k (`dot`).
        panel: columns of a task.
    """

    families = ("product",)
    form: Form
    parallel: Literal["rows"]
    panel: Positive
    width: Width


@dataclass(frozen=True, kw_only=True)
class CppDirect(CppSchedule):
    """A convolution in tiles of `outputs` channels × `lines` rows × `vectors` vectors of sums.

    Attributes:
        panel: columns of a task.
        band: output rows of a task.
    """

    families = ("window", "product")
    form: Literal["direct"] = "direct"
    parallel: Literal["rows"]
    outputs: Positive
    lines: Positive
    vectors: Positive
    panel: Positive
    band: Positive
    width: Width


CppForm = CppLoops | CppProduct | CppDirect
CPP = (CppLoops, CppProduct, CppDirect)
"""Every class of schedules of the back end."""
