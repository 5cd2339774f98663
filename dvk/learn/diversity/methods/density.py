"""Density clustering with HDBSCAN, which the daVinci paper names for its data; scikit-learn's implementation.

Its noise points resemble nothing else: each such row is a separate cluster, which no cap touches.
"""

from __future__ import annotations

import numpy as np

from dvk.config import DiversityConfig
from dvk.errors import MachineError
from dvk.learn.diversity.methods.linkage import SIMILAR

SMALLEST = 5
"""Smallest cluster of method hdbscan; its library's default."""


def labels(similarity: np.ndarray, settings: DiversityConfig) -> np.ndarray:
    """HDBSCAN on the distance 1 − similarity.

    Raises:
        MachineError: scikit-learn is not installed.
    """
    try:
        from sklearn.cluster import HDBSCAN
    except ImportError:
        raise MachineError(
            "method hdbscan needs scikit-learn, which is not installed",
            "pip install 'dvk[clusters]'",
        ) from None
    rows = len(similarity)
    if rows < 2 * SMALLEST:  # two clusters do not fit
        return (
            np.zeros(rows, dtype=np.int64)
            if rows and similarity.min() >= SIMILAR
            else np.arange(rows)
        )
    # Rows of equal structure would be infinitely dense: the library divides by distances.
    distance = np.maximum(1.0 - similarity.astype(np.float64), 1e-3)
    np.fill_diagonal(distance, 0.0)
    result = HDBSCAN(min_cluster_size=SMALLEST, metric="precomputed", copy=True).fit_predict(
        distance
    )
    result = result.astype(np.int64)
    noise = result < 0
    result[noise] = result.max() + 1 + np.arange(int(noise.sum()))
    return result
