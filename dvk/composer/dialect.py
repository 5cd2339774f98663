"""Which recipes the compact dialect of back ends can express."""

from __future__ import annotations

from dvk.composer.lowering import common_loops
from dvk.composer.recipes import COLUMN_SUMS, OWN_FAMILIES
from dvk.composer.rewrites import cudnn, experts, packed_weights

NOT_IN_DSL = (
    *OWN_FAMILIES,
    "attention",
    "attention_finite",
    "batch_norm_training",
    "collapse_linear_reduction_finite",
    COLUMN_SUMS,
    "chunked_steps",
    common_loops.RECIPE,
    "common_subexpressions",
    "convolution_bias",
    cudnn.RECIPE,
    "distances",
    experts.RECIPE,
    "fold_batch_norm_finite",
    "fold_scale",
    "huge_pages",
    "lists_apart",
    "nucleus",
    "operator_parts",
    "pack_linears",
    packed_weights.RECIPE,
    "recurrent_cells",
    "recurrent_sequences",
    "unroll_reductions",
)
"""Recipes that the compact dialect cannot express, except as listed by back end."""
DSL_BY_BACKEND = {"triton": ("own_matmul",)}
"""Back end → recipes that its dialect can express after all; see `not_in_dsl`."""


def not_in_dsl(backend: str) -> tuple[str, ...]:
    """Recipes that the compact dialect cannot express."""
    return tuple(name for name in NOT_IN_DSL if name not in DSL_BY_BACKEND.get(backend, ()))
