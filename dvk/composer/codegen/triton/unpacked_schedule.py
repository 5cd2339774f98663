"""Schedules of matmuls with a packed weight in Triton, the best guess first."""

from __future__ import annotations

import math

from dvk.composer.codegen.analysis.digits import PackedForm, packed_form
from dvk.composer.ir.loops import Kernel
from dvk.composer.ir.nodes import BYTES
from dvk.composer.ir.schedules.triton import TritonUnpacked
from dvk.composer.ir.symint import power
from dvk.target import Gpu

ALONG = (
    (4, 128, 4, 2),
    (4, 256, 4, 2),
    (8, 128, 4, 2),
    (4, 128, 4, 3),
    (2, 128, 2, 2),
    (8, 128, 4, 1),
    (16, 128, 4, 2),
    (16, 64, 4, 2),
)
"""Results, words of 4 bytes along k, warps and stages: for words of one result side by side."""
ACROSS = (
    (128, 16, 4, 2),
    (64, 32, 4, 2),
    (64, 64, 8, 2),
    (128, 16, 4, 3),
    (32, 32, 4, 2),
    (256, 16, 8, 2),
)
"""The same for words of one place in k side by side."""
MAX_SUMS = 1 << 13
"""Sums that four warps hold beside what they unpack."""
MAX_SHORT = 16
"""Most rows that are written out."""
MAX_SPLITS = 16
PROGRAMS = 2
"""Programs that each multiprocessor should have at least."""


def options(kernel: Kernel, gpu: Gpu) -> list[TritonUnpacked]:
    """The alternatives worth measuring; none for a kernel that multiplies no packed weight, or many rows."""
    form = packed_form(kernel)
    if form is None:
        return []
    results, short = _sizes(form)
    short *= len(form.form.terms) * (1 if form.is_summed else form.digit.size)
    if short > MAX_SHORT:
        return []
    length = math.prod(v.size for v in form.kernel.reduced if v is not form.digit)
    found: dict[TritonUnpacked, bool] = {}
    for block, words, warps, stages in ACROSS if form.across else ALONG:
        depth = min(words if form.across else words * 4 // _width(form), power(length))
        while block * depth * short > MAX_SUMS * warps // 4 and depth > 16:
            depth //= 2
        programs, splits = -(-results // block), 1
        while programs * splits < PROGRAMS * gpu.sms and splits < min(
            MAX_SPLITS, length // (2 * depth)
        ):
            splits *= 2
        for pieces in dict.fromkeys((splits, max(splits // 2, 1))):
            made = TritonUnpacked(
                block=block, depth=depth, warps=warps, stages=stages, splits=pieces
            )
            found[made] = pieces == splits
    # As many programs as the device can hold come first: the text of a word has few loads in flight.
    return sorted(found, key=lambda option: not found[option])[:8]


def _sizes(form: PackedForm) -> tuple[int, int]:
    """Results of the long side, the digit's excluded, and lines of the short side."""
    _, rows, columns = form.form.sizes
    long, short = (columns, rows) if form.wide else (rows, columns)
    return long // (1 if form.is_summed else form.digit.size), short


def _width(form: PackedForm) -> int:
    """Bytes of a word."""
    return min(BYTES[form.kernel.inputs[i.buffer].dtype] for i in form.words)
