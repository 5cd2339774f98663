"""Lowering of ATen operators to primitives: `dispatch`, and a module of rules for each kind of operator.

Importing the package fills the tables of rules.
"""

from dvk.composer.lowering import (  # noqa: F401 - each registers its rules
    activations,
    arg_reductions,
    attention,
    bool_reductions,
    conv_transpose,
    convolution,
    creation,
    data_movement,
    elementary,
    indexing,
    integers,
    losses,
    matmul,
    narrow,
    nucleus,
    pointwise,
    pooling,
    powers,
    reductions,
    resampling,
    scans,
    scatters,
    selections,
    sums_at_places,
    views,
)
from dvk.composer.lowering.dispatch import CODEGEN_RULES, RULES, Lowering, NotLowered
from dvk.composer.lowering.whole_graph import PrimGraph, lower

__all__ = ["CODEGEN_RULES", "RULES", "NotLowered", "Lowering", "PrimGraph", "lower"]
