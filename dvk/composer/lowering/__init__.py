"""Lowering of ATen operators to primitives: `dispatch`, and a module of rules for each kind of operator.

Importing the package fills the tables of rules.
"""

from dvk.composer.lowering import (
    activations,
    arg_reductions,
    bool_reductions,
    conv_transpose,
    convolution,
    data_movement,
    elementary,
    indexing,
    integers,
    matmul,
    pointwise,
    pooling,
    powers,
    reductions,
    resampling,
    scans,
    views,
)
from dvk.composer.lowering.dispatch import (
    CODEGEN_RULES,
    RULES,
    Lowering,
    NotLowered,
    PrimGraph,
    lower,
    pinned,
    walk_refs,
)

RULE_MODULES = (
    activations,
    arg_reductions,
    bool_reductions,
    conv_transpose,
    convolution,
    data_movement,
    elementary,
    indexing,
    integers,
    matmul,
    pointwise,
    pooling,
    powers,
    reductions,
    resampling,
    scans,
    views,
)
"""Their import registers the rules."""

__all__ = [
    "CODEGEN_RULES",
    "RULES",
    "RULE_MODULES",
    "NotLowered",
    "Lowering",
    "PrimGraph",
    "lower",
    "pinned",
    "walk_refs",
]
