"""Normwise errors: rounding of large elements that spreads to small ones in algorithms with fewer multiplications.

Strassen's product and Winograd's convolution add large operands before they multiply, so their error is bounded by the largest elements of
the result, not elementwise (Higham, Accuracy and Stability of Numerical Algorithms, ch. 23). An output with too large errors at single
elements passes if the typical element is within the admitted error, which keeps lower precision out, and if the errors are small relative
to the largest element, as the precision class requires; the verdict mentions it. Not in 16 bits and TF32, where the worst element's
tolerance is loose already.
"""

from __future__ import annotations

import torch

from dvk.harness.checking.compare import ExpectedLeaf, errors, real, sliced_ratios, targets
from dvk.harness.checking.tolerance import COARSE_BITS, Class, Errors

EDGE = 32.0
"""Factor on the admitted error of single elements. Measured on the CPU with large elements among the inputs: 3.8 for two levels of
Strassen's product of 512x512 matrices and 8.5 for Winograd's F(4x4, 3x3) over 32 channels."""


def spread(got: torch.Tensor, want: ExpectedLeaf, precision: Class) -> Errors | None:
    """Return the errors of `got` if they are rounding that spreads; None otherwise."""
    if want.scale is None or not want.finite or precision.lower_bits <= COARSE_BITS:
        return None
    for target in targets(want):
        error = errors(got, target, want)
        if not error.within(Errors(want.admitted.typical, EDGE * want.admitted.worst)):
            continue
        largest = max(-float(real(target).min()), float(real(target).max()))
        squares, worst = 0.0, 0.0
        for _, move, _, _ in sliced_ratios(got, target, want):
            squares += float(move.square().sum(dtype=torch.float64))
            worst = max(worst, float(move.max()))
        typical = (squares / real(target).numel()) ** 0.5
        if Errors(typical / largest, worst / largest).within(precision.floor):
            return error
    return None


def note(name: str) -> str:
    """Return the verdict's note on such an output."""
    return (
        f"`{name}` is at the edge of the tolerance: single elements are off by up to {EDGE:g} times what is admitted, "
        "as with algorithms that use fewer multiplications (Strassen, Winograd)"
    )
