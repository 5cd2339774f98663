"""How much error is admitted, by precision class and by the reference's own error.

The error of an element is |ŷ − y| / (|y| + rms(y)): relative for large elements, relative to the
output's typical size for small ones. A candidate is held to `MULTIPLE` times the error that the
reference itself makes against float64, never below the class's floor (an honest kernel sums in
another order and approximates exp) and never above its ceiling.

    class   floor   ceiling   why
    exact   0       0         integers and booleans
    fp64    1e-10   1e-7
    fp32    1e-5    1e-4      zero-mean matmul in fp32 errs by 2e-6 here, in TF32 by 1.5e-3: 1e-4 admits no TF32
    tf32    2e-3    3e-3      five to eight standard deviations of TF32's rounding (3e-4) in a product; a convolution's
                              25 million elements reach 1.9e-3 in the reference itself, bfloat16 would err by 1e-2
    half    2 eps   16 eps    eps of the coarser of the task's 16-bit types: 9.8e-4 (float16), 7.8e-3 (bfloat16)
"""

from __future__ import annotations

from dataclasses import dataclass

MULTIPLE = 4.0
EPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
_RANGES = {"exact": (0.0, 0.0), "fp64": (1e-10, 1e-7), "fp32": (1e-5, 1e-4), "tf32": (2e-3, 3e-3)}


@dataclass(frozen=True)
class Range:
    """What a precision class admits."""

    floor: float
    ceiling: float

    def tolerance(self, own_error: float) -> float:
        """The admitted error where the reference itself errs by `own_error`; the floor when that is unknown (nan)."""
        wanted = MULTIPLE * own_error
        return min(self.ceiling, max(self.floor, wanted)) if wanted == wanted else self.floor


def admitted(precision: str, dtypes: set[str]) -> Range:
    """The range of a class.

    Args:
        precision: a `Task.precision`.
        dtypes: torch dtypes of the task's inputs, weights and outputs, without prefix.
    """
    if precision != "half":
        return Range(*_RANGES[precision])
    # Where only intermediate values are 16 bits wide (autocast), assume the coarser type.
    seen = [EPS[name] for name in dtypes if name in EPS]
    eps = max(seen) if seen else EPS["bfloat16"]
    return Range(2 * eps, 16 * eps)
