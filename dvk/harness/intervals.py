"""From paired samples to a ratio with its 95 % interval: percentile bootstrap of the median log-ratio.

The interval covers what varied within one process. Two processes of the same kernels differ by
more (addresses, page colours; about 1 %), which is why a search's winner is confirmed in a fresh one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from dvk.records import Interval


def ratio_interval(reference_ms: Sequence[float], candidate_ms: Sequence[float], num_bootstrap: int) -> Interval:
    """Speedup of the candidate: median of reference / candidate over the pairs.

    Args:
        reference_ms: time of the reference in each pair.
        candidate_ms: time of the candidate in the same pair.
        num_bootstrap: resamples.
    """
    logs = torch.tensor([math.log(r / c) for r, c in zip(reference_ms, candidate_ms, strict=True)], dtype=torch.float64)
    draws = torch.Generator().manual_seed(0)
    picks = torch.randint(len(logs), (num_bootstrap, len(logs)), generator=draws)
    medians = logs[picks].quantile(0.5, dim=1)
    lo, hi = medians.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    value = float(logs.quantile(0.5))
    return Interval(value=math.exp(value), lo=math.exp(min(lo, value)), hi=math.exp(max(hi, value)))


def settled(reference_ms: Sequence[float], candidate_ms: Sequence[float], width: float) -> bool:
    """More pairs would hardly move the median ratio: its standard error is below `width` (relative)."""
    logs = sorted(math.log(r / c) for r, c in zip(reference_ms, candidate_ms, strict=True))
    middle = logs[len(logs) // 2]
    deviation = sorted(abs(x - middle) for x in logs)[len(logs) // 2]
    return 1.2533 * 1.4826 * deviation / len(logs) ** 0.5 < width
