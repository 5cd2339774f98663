"""Recurrent layers and loops over time steps: nodes that a back end writes as functions next to kernels."""

from __future__ import annotations

from typing import Any

from dvk.composer.ir.errors import CannotCompose
from dvk.composer.ir.nodes import IRNode
from dvk.composer.ir.recurrence import RECURRENT, Recurrence
from dvk.composer.ir.symint import SymbolicSize
from dvk.composer.ir.time_scan import TIME_SCAN, TimeScan


def layer_of(step: IRNode) -> Recurrence | TimeScan | None:
    """The recurrent layer or loop over time steps that a step runs."""
    if step.node is None or step.op not in (RECURRENT, TIME_SCAN):
        return None
    if step.op == TIME_SCAN:
        if _has_sizes(list(step.node.kwargs.values())):
            raise CannotCompose("a loop over time steps whose sizes are not fixed")
        return TimeScan.of(step.node.kwargs)
    return Recurrence(**step.node.kwargs)


def _has_sizes(value: Any) -> bool:
    """A number of the loop depends on a dimension of the inputs."""
    if isinstance(value, (list, tuple)):
        return any(map(_has_sizes, value))
    return isinstance(value, SymbolicSize)
