"""Student's distribution: tail and quantiles in plain Python, microseconds to a millisecond per call."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist


def student_tail(t: float, degrees: float) -> float:
    """Return P(T ≥ t) of Student's distribution.

    Through the regularised incomplete beta function: for t ≥ 0 it is I_x(ν/2, 1/2) / 2 with x = ν / (ν + t²)
    (Abramowitz and Stegun 26.7.1).
    """
    if t < 0:
        return 1 - student_tail(-t, degrees)
    return _incomplete_beta(degrees / (degrees + t * t), degrees / 2, 0.5) / 2


@lru_cache(maxsize=4096)
def student_quantile(p: float, degrees: float) -> float:
    """Return the quantile of Student's distribution at probability `p`, by bisection.

    Raises:
        ValueError: `p` not inside (0, 1), or no degrees of freedom.
    """
    if not 0 < p < 1 or degrees < 1:
        raise ValueError(f"no quantile {p} of {degrees} degrees of freedom")
    if p < 0.5:
        return -student_quantile(1 - p, degrees)
    lo, hi = 0.0, max(1.0, NormalDist().inv_cdf(p))
    while student_tail(hi, degrees) > 1 - p:
        lo, hi = hi, 2 * hi
    for _ in range(100):
        middle = (lo + hi) / 2
        lo, hi = (middle, hi) if student_tail(middle, degrees) > 1 - p else (lo, middle)
    return (lo + hi) / 2


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Return the regularised I_x(a, b) by its continued fraction (Abramowitz and Stegun 26.5.8), evaluated by Lentz's method."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):  # the fraction converges quickly on the other side
        return 1 - _incomplete_beta(1 - x, b, a)
    tiny = 1e-300
    c, d = 1.0, 1 / _away(1 - (a + b) * x / (a + 1), tiny)
    value = d
    for m in range(1, 400):
        for factor in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _away(1 + factor * d, tiny)
            c = _away(1 + factor / c, tiny)
            value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    scale = (
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    return math.exp(scale) * value / a


def _away(value: float, tiny: float) -> float:
    return value if abs(value) > tiny else tiny
