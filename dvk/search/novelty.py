"""Distance of two programs, independent of names: 1 − Jaccard similarity of their token shingles.

Names, comments, layout and the texts of strings that are not code are taken out first (`dvk.learn.diversity.lexing`); numbers
stay, since a block size is a difference that pays. Runs of three tokens keep the order in which things are done, so that
distance follows structure without a parser, which broken programs would not pass.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from dvk.learn.diversity.lexing import code_tokens
from dvk.learn.diversity.sketches import jaccard, shingles

WIDTH = 3
"""Tokens a shingle: one changed number touches three of some 300, an operator inserted four."""


def distance(one: str, other: str) -> float:
    """Distance of two sources: 0 for the same program, 1 if no three tokens in a row agree."""
    return 1.0 - jaccard(_shingles(one), _shingles(other))


@lru_cache(maxsize=4096)
def _shingles(source: str) -> np.ndarray:
    return shingles(code_tokens(source).exact, WIDTH)
