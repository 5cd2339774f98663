"""Split of compositions into training and held-out, by the sequence of operator families.

An operator belongs to a family in any spelling (`x * x`, `x ** 2`, `x / 2` all multiply), and views, casts and copies belong to none. The
key of a task is its sequence of families with consecutive repeats merged, so that two tasks with the same captured ATen sequence always
fall on the same side. The held-out part of the benchmark suite (`data/tasks/suite`) is held out here, too, whatever its key's share says.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import cache
from itertools import groupby
from typing import Literal

from dvk.resources import resource

Split = Literal["train", "heldout"]

HELD_OUT = {1: 0.25}
"""Share of keys held out, by length; a key of one operator is rare, so more of those are."""
HELD_OUT_OTHERS = 0.1

FAMILIES = {
    "add": ("add", "sub", "rsub", "subtract"),
    "mul": (
        "mul",
        "multiply",
        "div",
        "divide",
        "true_divide",
        "neg",
        "negative",
        "square",
        "pow",
        "reciprocal",
    ),
    "where": (
        "where",
        "masked_fill",
        "lt",
        "le",
        "gt",
        "ge",
        "eq",
        "ne",
        "logical_not",
        "logical_and",
        "logical_or",
        "bitwise_not",
        "bitwise_and",
        "bitwise_or",
    ),
    "clamp": ("clamp", "clip", "clamp_min", "clamp_max", "hardtanh", "relu6"),
    "sigmoid": ("sigmoid", "special_expit"),
    "erf": ("erf", "special_erf"),
    "prelu": ("prelu", "_prelu_kernel"),
    "amax": ("amax", "max"),
    "amin": ("amin", "min"),
    "var": ("var", "std", "var_mean", "std_mean"),
    "norm": ("norm", "linalg_vector_norm", "linalg_norm"),
    "matmul": ("matmul", "mm", "bmm", "linear", "addmm", "baddbmm"),
    "conv": ("conv1d", "conv2d", "conv3d", "convolution"),
    "conv_transpose": ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
    "pool": (
        "max_pool1d",
        "max_pool2d",
        "max_pool3d",
        "avg_pool1d",
        "avg_pool2d",
        "avg_pool3d",
        "adaptive_avg_pool1d",
        "adaptive_avg_pool2d",
        "adaptive_avg_pool3d",
    ),
    "bce_logits": ("binary_cross_entropy_with_logits",),
    "cross_entropy": ("cross_entropy_loss", "nll_loss", "nll_loss_nd"),
}
"""Family → ATen operators, for families with more than the operator of the same name."""
FAMILY_OF = {operator: family for family, operators in FAMILIES.items() for operator in operators}

SILENT = frozenset(
    {
        "view",
        "reshape",
        "flatten",
        "unflatten",
        "squeeze",
        "unsqueeze",
        "permute",
        "transpose",
        "t",
        "expand",
        "expand_as",
        "select",
        "slice",
        "chunk",
        "split",
        "split_with_sizes",
        "unbind",
        "detach",
        "detach_",
        "alias",
        "contiguous",
        "numpy_T",
        "mT",
        "movedim",
        "narrow",
        "to",
        "_to_copy",
        "type_as",
        "clone",
        "getitem",
        "dropout",
        "lift_fresh_copy",
        "lift_fresh",
        "scalar_tensor",
        "full",
        "zeros",
        "ones",
        "_unsafe_view",
        "_assert_tensor_metadata",
        "full_like",
        "zeros_like",
        "ones_like",
        "arange",
        "identity",
        "broadcast_tensors",
    }
)
"""Operators that change no value."""


def collapsed(families: Iterable[str]) -> tuple[str, ...]:
    """The canonical sequence, with consecutive repeats merged."""
    return tuple(family for family, _ in groupby(families))


def signature_of(operators: Iterable[str]) -> tuple[str, ...]:
    """The canonical sequence of ATen operators, as `Graph.signature()` gives them."""
    plain = (
        name if name.startswith("_") or not name.endswith("_") else name[:-1] for name in operators
    )
    return collapsed(FAMILY_OF.get(name, name) for name in plain if name not in SILENT)


@cache
def reserved() -> frozenset[tuple[str, ...]]:
    """The canonical sequences of the benchmark suite's held-out part."""
    index = json.loads(resource("data", "tasks", "suite", "index.json").read_text(encoding="utf-8"))
    return frozenset(
        tuple(entry["signature"])
        for entry in index
        if entry["half"] == "heldout" and entry["signature"]
    )


def split_of(signature: tuple[str, ...]) -> Split:
    """The side on which every task with that canonical sequence falls."""
    if signature in reserved():
        return "heldout"
    digest = hashlib.sha256("\0".join(signature).encode()).digest()
    share = int.from_bytes(digest[:6], "big") / 2**48
    return "heldout" if share < HELD_OUT.get(len(signature), HELD_OUT_OTHERS) else "train"
