"""Options of operators that special values are tried with."""

from __future__ import annotations

import itertools

from dvk.composer.algorithms import algorithms
from dvk.composer.codegen import cpp
from dvk.composer.ir.loops import Kernel
from dvk.composer.ir.schedules.base import Schedule


def options(kernel: Kernel) -> list[Schedule]:
    """Every schedule that some search may choose; pointwise kernels differ only in the length of slices."""
    found: list[Schedule] = [*cpp.schedules(kernel)]
    if kernel.family in ("row", "column"):
        more = itertools.chain.from_iterable(algorithms(kernel, "cpp").values())
        found += [o for o in more if o not in found]
    return found[:2] if kernel.family == "pointwise" else found
