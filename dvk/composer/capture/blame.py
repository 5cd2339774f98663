"""Locate a failed capture: the line of the user's file and the operator."""

from __future__ import annotations

import os
import traceback
from pathlib import Path
from typing import Any

import dvk
from dvk import crashes
from dvk.composer.ir import structures
from dvk.composer.ir.errors import CannotCompose

ASSERTIONS = {
    "aten._assert_scalar.default",
    "aten.sym_constrain_range.default",
    "aten.sym_constrain_range_for_size.default",
}
"""Operators that export inserts to record sizes that depend on values."""


def operator_name(node: Any) -> str | None:
    """Name an operator as the graph calls it; None for one that only export uses.

    Raises:
        CannotCompose: a drop-in could not call the operator.
    """
    import torch

    target, op = node.target, str(node.target)
    if op in ASSERTIONS:
        return None
    if op.startswith("aten."):
        return op
    if isinstance(target, torch._ops.OpOverload):
        if target._schema.is_mutable or any(
            value.alias_info is not None for value in target._schema.returns
        ):
            raise CannotCompose(f"operator {op}, which writes or returns its arguments")
        return op
    if (
        getattr(target, "__module__", None) in ("_operator", "math")
        and target.__name__ in structures.OPERATIONS
    ):
        return f"python.{target.__name__}"
    if str(getattr(target, "__module__", "")).startswith("torch._functorch"):
        raise CannotCompose("torch.func inside forward()")
    raise CannotCompose(f"operator {getattr(target, '__name__', op)}")


def with_location(error: CannotCompose, node: Any) -> CannotCompose:
    """The same error with its location in the model."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    trace = [line.strip() for line in str(node.meta.get("stack_trace") or "").splitlines()]
    places = [
        n
        for n, line in enumerate(trace)
        if line.startswith("File ") and not is_ours(line.split('"')[1])
    ]
    where = ""
    if places:
        _, path, rest = trace[places[-1]].split('"')
        where = f" ({Path(path).name},{rest.split(', in ')[0].removeprefix(',')}: {''.join(trace[places[-1] + 1 : places[-1] + 2])})"
    located = CannotCompose(f"{error}{where}", error.traceback)
    located.path = stack[-1][0].partition("@")[0] if stack else None
    steps = [trace[n].split('"')[1:] for n in reversed(places)]
    located.lines = tuple((path, int(rest.split(",")[1].split()[-1])) for path, rest in steps)
    return located


def one_line(error: BaseException) -> str:
    """Summarise an exception in one line: its type and the line of the model's code that caused it."""
    text = crashes.summary_of(error)
    where = innermost_user_line(error)
    return f"{text} ({where})" if where else text


def innermost_user_line(error: BaseException) -> str:
    """The innermost line of an exception outside PyTorch and dvk, with its text; empty if there is none."""
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if not is_ours(frame.filename)
    ]
    if not frames:
        return ""
    last = frames[-1]
    return f"{Path(last.filename).name}, line {last.lineno}{f': {last.line}' if last.line else ''}"


def is_ours(path: str) -> bool:
    """The file belongs to PyTorch or to this package."""
    import torch

    return path.startswith(
        tuple(f"{Path(package.__file__ or '').parent}{os.sep}" for package in (torch, dvk))
    )
