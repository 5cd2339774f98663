"""Control of false discoveries among many tests."""

from __future__ import annotations

from collections.abc import Sequence


def benjamini_hochberg(p_values: Sequence[float], rate: float) -> list[bool]:
    """Return which hypotheses are rejected, so that at most `rate` of the rejections are expected to be wrong.

    Benjamini and Hochberg, Journal of the Royal Statistical Society B 57, 1995: with the p-values in order, all up to the last one with
    p ≤ rate · rank / count. Holds for independent and for positively dependent tests.
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    last = max(
        (k for k, i in enumerate(order, 1) if p_values[i] <= rate * k / len(order)), default=0
    )
    rejected = {i for i in order[:last]}
    return [i in rejected for i in range(len(p_values))]
