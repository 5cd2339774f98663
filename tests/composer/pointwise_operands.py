"""Operands with edge values, and several operators as one function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
INF, NAN = float("inf"), float("nan")


Operator = Callable[..., Any]


class All:
    """Several operators on the same operands, as one function."""

    def __init__(self, functions: list[Operator]):
        self.functions = functions
        self.__qualname__ = "All"

    def __call__(self, *args: torch.Tensor) -> tuple[Any, ...]:
        return tuple(f(*args) for f in self.functions)
