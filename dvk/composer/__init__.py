"""The offline kernel writer: captures a module, fuses its operators, renders C++ or Triton.

`capture` records the operator graph, `fuse` partitions it under named recipes, `compose` writes a
whole drop-in for a `Plan`. Every module composes: operators without a rule stay PyTorch calls.
"""

from dvk.composer.capture.batch import capture_many
from dvk.composer.capture.export import CannotCompose, CapturedGraph, capture
from dvk.composer.codegen.base import codegen
from dvk.composer.compose import Composition, Part, Plan, compose, fuse, join, write
from dvk.composer.recipes import RECIPES, applicable, applicable_to

__all__ = [
    "RECIPES",
    "CannotCompose",
    "CapturedGraph",
    "Composition",
    "Part",
    "Plan",
    "applicable",
    "applicable_to",
    "capture",
    "capture_many",
    "compose",
    "codegen",
    "fuse",
    "join",
    "write",
]
