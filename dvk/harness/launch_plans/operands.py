"""Decoding of a plan's operands: operators by name, constants, memory with arbitrary contents."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

import torch

from dvk.harness.launch_plans.operators import allowed
from dvk.harness.launch_plans.plan import Const, LaunchPlanError

KINDS = {"dtype", "layout", "memory_format"}


def operator(op: str) -> Callable[..., Any]:
    """Return the operator of a name.

    Raises:
        LaunchPlanError: there is none, or a plan may not use it.
    """
    try:
        result: Callable[..., Any] = allowed(op)
    except (KeyError, AttributeError):
        raise LaunchPlanError(f"{op} is not an operator that a plan may use") from None
    return result


def live(operand: Any, values: Mapping[int, torch.Tensor], device: torch.device) -> Any:
    """Return an operand from its encoding.

    Raises:
        LaunchPlanError: it has none.
    """
    if isinstance(operand, dict):
        if len(operand) != 1:
            raise LaunchPlanError(f"malformed operand {operand}")
        ((kind, inner),) = operand.items()
        if kind == "ref":
            return values[inner]
        if kind == "float" and inner in ("inf", "-inf", "nan"):
            return float(inner)
        if kind == "device":
            return torch.device("cpu") if inner == "cpu" else device
        result = getattr(torch, str(inner), None)
        if kind in KINDS and isinstance(result, (torch.dtype, torch.layout, torch.memory_format)):
            return result
        raise LaunchPlanError(f"malformed operand {operand}")
    if isinstance(operand, (list, tuple)):
        return [live(item, values, device) for item in operand]
    return operand


def constant(const: Const) -> torch.Tensor:
    """Return a constant's tensor, on the host.

    Raises:
        LaunchPlanError: its data are not those of its layout.
    """
    layout = const.layout
    raw = bytearray(base64.b64decode(const.data))
    dtype = getattr(torch, layout.dtype, None)
    if (
        not isinstance(dtype, torch.dtype)
        or len(raw) != torch.Size(layout.shape).numel() * dtype.itemsize
    ):
        raise LaunchPlanError("a constant's data do not fit its layout")
    return (
        torch.frombuffer(raw, dtype=dtype).reshape(layout.shape)
        if raw
        else torch.empty(layout.shape, dtype=dtype)
    )


def fill(tensor: torch.Tensor, value: float) -> None:
    """Overwrite memory that no result may depend on."""
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        tensor.fill_(value)
    elif tensor.dtype is torch.bool:
        tensor.fill_(True)
    else:
        tensor.fill_(torch.iinfo(tensor.dtype).min)
