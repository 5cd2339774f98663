"""Coarse operator signatures: a task's kind of fusion, whichever pointwise operators are in it.

`(linear, gelu, mul, softmax)` and `(linear, relu, add, log_softmax)` ask for the same kernel shape: a matmul, an
epilogue, a row reduction. Exact signatures of generated chains are nearly all different; there are some hundred families.
"""

from __future__ import annotations

from functools import lru_cache

from dvk import aten

_CATEGORIES = {
    "product": ("matmul", "outer", "attention"),
    "conv": ("convolution",),
    "norm": ("normalization",),
    "softmax": ("softmax",),
    "reduce": ("reduction", "loss"),
    "scan": ("scan",),
    "pool": ("pooling", "resampling"),
    "move": (*aten.REARRANGING, "scatter"),
}
"""Class → the categories of ATen operators in it; others are pointwise."""
_BESIDES = {
    "product": "bilinear",
    "norm": "native_layer_norm native_group_norm native_batch_norm _native_batch_norm_legit_no_training normalize",
    "softmax": "softmin cross_entropy cross_entropy_loss nll_loss nll_loss2d nll_loss_nd",
    "scan": "logcumsumexp",
    "pool": "adaptive_max_pool2d interpolate",
    "move": "copy repeat",
}
"""Class → functions of torch that are no operators of `aten`, and losses that are a softmax with a selection."""
_CLASS_OF = {
    name: kind for kind, categories in _CATEGORIES.items() for name in aten.of(*categories)
} | {name: kind for kind, names in _BESIDES.items() for name in names.split()}
_LONGEST = 6
"""Steps of a family's name that keep their order; a longer signature is named by its set of classes."""


@lru_cache(maxsize=1 << 16)
def family(signature: tuple[str, ...]) -> str:
    """The classes of the operators in order, pointwise ones as `point`, data movement left out, repeats merged."""
    steps: list[str] = []
    for name in signature:
        kind = _CLASS_OF.get(name.rstrip("_"), "point")
        if kind != "move" and steps[-1:] != [kind]:
            steps.append(kind)
    if len(steps) > _LONGEST:
        return "long: " + " ".join(sorted(set(steps)))
    return " ".join(steps) or ("move" if signature else "unknown")
