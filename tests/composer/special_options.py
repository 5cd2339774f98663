"""Options of operators that special values are tried with."""

from __future__ import annotations

import itertools
from typing import Any

from dvk.composer.algorithms import algorithms
from dvk.composer.codegen import cpp
from dvk.composer.ir.loops import Kernel


def options(kernel: Kernel) -> list[dict[str, Any]]:
    """Every schedule that some search may choose; pointwise kernels differ only in the length of slices."""
    found = list(cpp.schedules(kernel))
    if kernel.family in ("row", "column"):
        more = itertools.chain.from_iterable(algorithms(kernel, "cpp").values())
        found += [o for o in more if o not in found]
    return found[:2] if kernel.family == "pointwise" else found
