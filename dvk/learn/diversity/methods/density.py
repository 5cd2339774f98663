"""Density clustering with HDBSCAN, which the daVinci paper names for its data; scikit-learn's implementation.

Its noise points resemble nothing else: each such row is a separate cluster, which no cap touches.
"""

from __future__ import annotations

import numpy as np

from dvk.config import DiversityConfig
from dvk.errors import MachineError


def labels(similarity: np.ndarray, settings: DiversityConfig) -> np.ndarray:
    """HDBSCAN on the distance 1 − similarity.

    Raises:
        MachineError: scikit-learn is not installed.
    """
    try:
        from sklearn.cluster import HDBSCAN
    except ImportError:
        raise MachineError("method hdbscan needs scikit-learn, which is not installed", "pip install 'dvk[clusters]'") from None
    rows = len(similarity)
    if rows < 2 * settings.hdbscan_smallest:  # two clusters do not fit
        return np.zeros(rows, dtype=np.int64) if rows and similarity.min() >= settings.similar else np.arange(rows)
    # Rows of equal structure would be infinitely dense: the library divides by distances.
    distance = np.maximum(1.0 - similarity.astype(np.float64), 1e-3)
    np.fill_diagonal(distance, 0.0)
    result = HDBSCAN(min_cluster_size=settings.hdbscan_smallest, metric="precomputed", copy=True).fit_predict(distance)
    result = result.astype(np.int64)
    noise = result < 0
    result[noise] = result.max() + 1 + np.arange(int(noise.sum()))
    return result
