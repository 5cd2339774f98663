"""Tolerances by precision class, calibrated for each problem by two errors of the reference.

The error of an element is r = |ŷ − y| / (|y| + s), with s the scale of its row (`compare`). Two numbers are limited: `typical`, the root
mean square of r over all elements, and `worst`, its maximum. Computing every element in a coarser format moves the first, which hardly
varies from draw to draw, so it separates precision classes and is tight. One element computed from wrong data moves only the second, which
depends on the smallest denominators, so it is loose.

`own` is the reference's error against float64, `lower` the reference's error with inputs and weights rounded to the next coarser format
(float32 → ten bits of mantissa as in TF32, float16 → bfloat16, bfloat16 → three bits). The admitted error is √(own·lower) if the two are at
least `APART` apart, so that an honest kernel and one in the coarser format are equally far from it; else `MULTIPLE`·own, and the class is
not separated on those inputs (`separation`). Floors leave room for another order of summation and for approximated exponentials, ceilings
apply if the reference itself is inaccurate.

Measured on the CPU, fp32 class, typical errors of zero-mean draws (tests/harness/test_compare.py):

                                     own         TF32 inputs   admitted    nearest honest (one accumulator, quick exp)
    matmul 64×K×64, K = 256 … 16384  1.4–2.4e-7  1.9e-4        5.2–6.7e-6  0.4 of it
    convolution 3×3, 3 … 128 inputs  0.5–1.4e-7  1.8–2.0e-4    3.0–5.2e-6  0.05
    softmax of 64 … 32768            2.5–7.3e-8  9.5e-5        2.0–7.2e-6  0.4
    layer norm of 64 … 8192          2.5e-8      8.9e-5        2.0–3.6e-6  0.1

Inputs rounded to TF32, float16 or bfloat16, float16 or bfloat16 outputs and float16 accumulators are all rejected, with at least thirteen
times the admitted error; on positive inputs alone TF32 passes from K = 16384.

In TF32 the worst element varies by chance, in any program. Two convolutions with a norm each: 1.1 to 1.8e-2 among 262,144 elements, 3 to
4e-2 if a ReLU leaves a sixth of them, 5 to 10e-2 if a fiftieth, with typical errors of 4 to 7e-4; a norm folded into the weights errs by as
much in other places. In float16 the same, in bfloat16 eight times as much. So there, whatever the ceiling, twice the reference's worst
error is admitted, up to half the scale: values computed from wrong data are off by more.

A wider threshold for half precision than √ would gain nothing: values stored in 16 bits have the reference's error to within a few percent.
Long sums widen the floors (`Sums`): n float32 values added in one accumulator are off by √n roundings, n equal ones by n/4, as softmax and
layer norm over rows of 1,024 to 32,768 showed on the integers; that is slow, but not wrong.

    class   typical: floor default ceiling   worst: floor default ceiling
    exact            0      0       0               0      0       0       integers and booleans
    fp64             1e-11  1e-10   1e-8            1e-10  1e-9    1e-7
    fp32             2e-6   8e-6    5e-5            2e-5   1e-4    1e-3
    tf32             4e-4   6e-4    1e-3            2e-2   2e-2    4e-2
    half             .6 eps eps     4 eps           2 eps  4 eps   32 eps  eps of the coarser 16-bit type of the task:
                                                                           9.8e-4 (float16), 7.8e-3 (bfloat16: 16 eps)
"""

from __future__ import annotations

import math
from dataclasses import dataclass

LUCK = 2.0
MOST_BY_LUCK = 0.5
APART = 6.0
MULTIPLE = 8.0
FEW_ELEMENTS = 64
MOST_SUMMED = 1024.0
"""Square root of the number of terms that an honest kernel may add up in one accumulator."""
EPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
COARSE_BITS = 8
"""Formats below, for those with few bits themselves: TF32 and 16 bits."""
_BITS = {"exact": 24, "fp64": 24, "fp32": 11, "tf32": 8}
"""Significant bits of the next coarser format, the implicit one included."""


@dataclass(frozen=True)
class Errors:
    """Root mean square and maximum of the elements' errors; nan if there is a NaN, so compare with `not (… <= …)`."""

    typical: float
    worst: float

    def within(self, admitted: Errors) -> bool:
        """Whether both are admitted."""
        return self.typical <= admitted.typical and self.worst <= admitted.worst

    def at_least(self, other: Errors) -> Errors:
        """Return the larger of each."""
        return Errors(max(self.typical, other.typical), max(self.worst, other.worst))


UNKNOWN = Errors(math.nan, math.nan)
NONE = Errors(0.0, 0.0)


@dataclass(frozen=True)
class Sums:
    """Sums that an output may contain."""

    terms: float = 1.0
    """Terms of the longest sum: elements read for each written, or elements of one sample."""
    elements: int = FEW_ELEMENTS
    """Elements of the output."""
    equal_terms: bool = False
    """Whether many terms are equal, so that roundings do not cancel."""


@dataclass(frozen=True)
class Class:
    """Admitted errors of a precision class, and the format below it."""

    floor: Errors
    default: Errors
    ceiling: Errors
    lower_bits: int
    summing_eps: float
    """One rounding of the accumulator, relative: 16-bit and TF32 values are summed in float32."""
    stores_lower: bool
    """Whether a kernel in the next coarser format would store its outputs in it, too: 16-bit formats do, TF32 is for products."""
    cap: float
    """Errors of elements on ill-conditioned rows are excused up to this; larger steps are jumps."""
    amplified: float
    """Noise of the reference is amplified from this share of the admitted typical error on; in coarse formats, whose rounding is close to
    what is admitted, it is more."""

    def tolerance(self, own: Errors, lower: Errors, sums: Sums) -> Errors:
        """Return the admitted errors of one output.

        Args:
            own: the reference's error against float64; unknown (nan) gives the class's default.
            lower: the reference's error when rounded to the next coarser format, unknown where not measured.
            sums: sums that it may contain.
        """
        ceiling = self.ceiling
        if sums.equal_terms:
            typical = min(sums.terms * self.summing_eps / 4, 4 * ceiling.typical)
            ceiling = Errors(max(ceiling.typical, typical), ceiling.worst)
        else:
            typical = min(math.sqrt(sums.terms), MOST_SUMMED) * self.summing_eps / 3
            if lower.typical == lower.typical:
                typical = min(typical, lower.typical / 5)
        worst = 6 * typical
        # A loss is one number: nothing averages out, and a biased exponential shows in full.
        least = (
            self.floor.typical
            if sums.elements >= FEW_ELEMENTS
            else math.sqrt(self.floor.typical * self.floor.worst)
        )
        luck = (
            min(LUCK * own.worst, MOST_BY_LUCK)
            if self.lower_bits <= COARSE_BITS and own.worst == own.worst
            else 0.0
        )
        return Errors(
            _admitted(
                own.typical,
                lower.typical,
                max(least, typical),
                self.default.typical,
                ceiling.typical,
            ),
            max(
                luck,
                _admitted(
                    own.worst,
                    lower.worst,
                    max(self.floor.worst, worst),
                    self.default.worst,
                    ceiling.worst,
                ),
            ),
        )


def _admitted(own: float, lower: float, floor: float, default: float, ceiling: float) -> float:
    if own != own:
        return default
    wanted = math.sqrt(own * lower) if lower >= APART * own else MULTIPLE * own
    return min(ceiling, max(floor, wanted))


def separation(admitted: Errors, own: Errors, lower: Errors) -> float:
    """Return the typical error of a kernel in the next coarser format over the admitted one; above 1 it is caught."""
    if admitted.typical == 0 or lower.typical != lower.typical or own.typical != own.typical:
        return 0.0
    return lower.typical / admitted.typical


def class_of(precision: str, dtypes: set[str]) -> Class:
    """Return the numbers of a class.

    Args:
        precision: a `Task.precision`.
        dtypes: torch dtypes of the task's inputs, weights and outputs, without prefix.
    """
    if precision == "half":
        # If only intermediate values are 16 bits wide (autocast), assume the coarser type.
        seen = [name for name in dtypes if name in EPS]
        coarse = "bfloat16" if "bfloat16" in seen or not seen else "float16"
        eps = EPS[coarse]
        bits = 4 if coarse == "bfloat16" else 8
        ceiling = Errors(4 * eps, min(32 * eps, 0.125))
        return Class(
            Errors(0.6 * eps, 2 * eps),
            Errors(eps, 4 * eps),
            ceiling,
            bits,
            2.0**-23,
            True,
            2 * ceiling.worst,
            1.0,
        )
    rows = {
        "exact": (NONE, NONE, NONE, 0.0, 0.0),
        "fp64": (Errors(1e-11, 1e-10), Errors(1e-10, 1e-9), Errors(1e-8, 1e-7), 2.0**-52, 1e-6),
        "fp32": (Errors(2e-6, 2e-5), Errors(8e-6, 1e-4), Errors(5e-5, 1e-3), 2.0**-23, 1e-2),
        "tf32": (Errors(4e-4, 2e-2), Errors(6e-4, 2e-2), Errors(1e-3, 4e-2), 2.0**-23, 5e-2),
    }
    floor, default, ceiling, summing_eps, cap = rows[precision]
    stores_lower, amplified = precision in ("fp64", "tf32"), 0.5 if precision == "tf32" else 0.25
    bits = _BITS[precision]
    return Class(floor, default, ceiling, bits, summing_eps, stores_lower, cap, amplified)
