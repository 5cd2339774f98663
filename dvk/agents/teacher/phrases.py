"""Paraphrases of a condition or an algorithm: the first is the canonical one, the last is held out from training.

A model that has only seen the others must still understand the last: that separates reading
from matching. Words, not numbers, name lengths: the bounds are `dvk.nanolang`'s.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

ALGORITHMS: Mapping[str, Sequence[str]] = {
    "flat": (
        "one flat index over all elements",
        "flat blocks of elements",
        "treat the tensor as one long line",
        "index everything flat",
    ),
    "tiled": (
        "two-dimensional tiles",
        "tiles of rows and columns",
        "cut it into tiles",
        "work in 2-D tiles",
    ),
    "grid stride": (
        "a grid stride loop",
        "few programs that stride over the grid",
        "persistent programs with a stride",
        "loop with the stride of the grid",
    ),
    "registers": (
        "the whole row in registers",
        "load each row once and keep it",
        "one block holds a whole row",
        "hold the row in registers",
    ),
    "looped": (
        "loop over the row in blocks",
        "walk each row piece by piece",
        "go over the row in a loop",
        "row in a loop of blocks",
    ),
    "split": (
        "cut each row into pieces that run in parallel",
        "split the reduction over programs",
        "several programs a row",
        "share one row among programs",
    ),
    "online": (
        "running maximum and rescaled sum in one pass",
        "online maximum and sum",
        "one pass with rescaling",
        "online in a single pass",
    ),
    "moments": (
        "sum and sum of squares in one pass",
        "both moments in one sweep",
        "mean and square together",
        "moments in a single sweep",
    ),
    "welford": (
        "running mean and variance in one pass",
        "Welford's update",
        "merge mean and variance as you go",
        "Welford in one pass",
    ),
    "threefold": (
        "float32 as three products in TF32",
        "three TF32 products for one",
        "on tensor cores in three parts",
        "a product of three TF32 parts",
    ),
    "skinny": (
        "the short side written out",
        "plain arithmetic along the long side",
        "no tensor cores for so few rows",
        "sums in ordinary arithmetic",
    ),
    "serial": ("one thread", "no threads", "keep it serial", "without threads"),
    "lines": (
        "whole lines a thread",
        "a thread takes whole lines",
        "parallel over lines",
        "line by line in parallel",
    ),
    "pieces": (
        "lines in pieces",
        "short pieces a thread",
        "cut lines into pieces",
        "pieces of lines",
    ),
    "blocked": (
        "columns in blocks",
        "a block of columns at a time",
        "accumulate blocks of columns",
        "block the columns",
    ),
    "strided": (
        "walk with a stride",
        "one column after another",
        "strided columns",
        "stride down each column",
    ),
    "blocks": (
        "partial results by blocks",
        "block after block of the row",
        "blocks of a row",
        "row by blocks",
    ),
    "recomputed": (
        "compute again instead of keeping",
        "recompute values in the next pass",
        "nothing kept between passes",
        "recompute, do not keep",
    ),
}
"""Parts of the algorithm names that `compact.name_of` gives; `row` and `column` go without saying."""

PLANS: Mapping[str, Sequence[str]] = {
    "left to torch": (
        "leave everything to torch",
        "no kernel of your own",
        "let torch do it",
        "do not write a kernel",
    ),
    "epilogue separate": (
        "write the epilogue to memory of its own",
        "a separate result for the epilogue",
        "not in place",
        "epilogue out of place",
    ),
    "epilogue in place": (
        "the epilogue in place",
        "write over the result of the call",
        "epilogue into the same memory",
        "reuse the call's result for the epilogue",
    ),
    "own products": (
        "multiply in a kernel of your own",
        "the matrix product in your own tiles",
        "fuse into your own product",
        "a product of your own",
    ),
    "products left to torch": (
        "leave products to torch",
        "the library multiplies",
        "torch does the matrix product",
        "let torch multiply",
    ),
    "batch norm folded": (
        "fold the batch norm into the weights",
        "batch norm folded into the layer before",
        "no batch norm of its own",
        "merge the batch norm with the weights",
    ),
    "linear and sum collapsed": (
        "collapse linear and sum",
        "one dot product with summed weights",
        "sum the weights first",
        "linear and sum as one",
    ),
    "channels last": (
        "channels last",
        "channels-last layout for the convolution",
        "put channels last",
        "use channels last",
    ),
    "graph replay": (
        "replay a CUDA graph",
        "capture the launches in a graph",
        "graph replay",
        "one graph launch",
    ),
    "reductions left to torch": (
        "leave reductions to torch",
        "fuse only what is pointwise",
        "torch reduces",
        "reductions by torch",
    ),
}

CONDITIONS: Mapping[tuple[str, str], Sequence[str]] = {
    ("does", "pointwise"): (
        "pointwise work",
        "elementwise chains",
        "only elementwise operators",
        "element by element",
    ),
    ("does", "softmax"): (
        "softmax",
        "a softmax",
        "rows that are normalised by exp",
        "softmax rows",
    ),
    ("does", "logsumexp"): (
        "logsumexp",
        "a log of summed exponentials",
        "log-sum-exp rows",
        "logsumexp rows",
    ),
    ("does", "norm"): (
        "a normalisation",
        "layer, group or RMS norms",
        "rows that are normalised",
        "normalising rows",
    ),
    ("does", "product"): (
        "matrix products",
        "a matrix product",
        "multiplying matrices",
        "products of matrices",
    ),
    ("does", "reduction"): (
        "a reduction",
        "sums, means or maxima",
        "reducing rows",
        "rows reduced to a number",
    ),
    ("family", "column"): (
        "a reduction over columns",
        "reducing a slow dimension",
        "the reduced dimension is strided",
        "columns are reduced",
    ),
    ("row length", "short"): (
        "short rows",
        "rows up to 1024",
        "rows that are short",
        "few elements a row",
    ),
    ("row length", "medium"): (
        "rows of medium length",
        "rows from 1024 to 16384",
        "medium rows",
        "thousands of elements a row",
    ),
    ("row length", "long"): (
        "long rows",
        "rows above 16384",
        "very long rows",
        "rows of many thousands",
    ),
    ("row count", "few"): ("few rows", "fewer than 256 rows", "only some rows", "not many rows"),
    ("row count", "many"): (
        "many rows",
        "at least 256 rows",
        "rows without number",
        "hundreds of rows or more",
    ),
    ("elements", "small"): (
        "small tensors",
        "few elements",
        "tensors up to 65536 elements",
        "little data",
    ),
    ("elements", "middling"): (
        "tensors of middling size",
        "neither small nor large",
        "some hundred thousand elements",
        "medium amounts of data",
    ),
    ("elements", "large"): (
        "large tensors",
        "millions of elements",
        "from 4194304 elements",
        "much data",
    ),
}

JOINS = (", ", " and ", " with ")
"""Between the parts of a condition."""
ALWAYS = "always"

NUMBERS = ("{0} {1}", "with {0} {1}", "{0}={1}", "and {0} {1}")


def pick(ways: Sequence[str], rng: random.Random, *, unseen: bool = False) -> str:
    """One paraphrase: of those in training, or the held-out one."""
    return ways[-1] if unseen else rng.choice(ways[:-1])
