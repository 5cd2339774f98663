"""Tables of modules with code that no graph can hold in their own forward, and how a case is added."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

HEADER = """
import logging
import math
import warnings
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

log = logging.getLogger("inline")

"""

Case = tuple[str, Callable[[int], tuple[Any, ...]]]
CASES: dict[str, Case] = {}


def random_input(rows: int = 6, columns: int = 16) -> Callable[[int], tuple[Any, ...]]:
    def make(seed: int) -> tuple[Any, ...]:
        generator = torch.Generator().manual_seed(seed)
        return (torch.randn(rows + (seed == 3), columns, generator=generator),)

    return make


def case(name: str, text: str, make: Callable[[int], tuple[Any, ...]] | None = None) -> None:
    CASES[name] = HEADER + text.strip("\n") + "\n", make or random_input()


REFUSED: dict[str, tuple[str, Callable[[int], tuple[Any, ...]], str]] = {}


def refused(name: str, text: str, said: str) -> None:
    REFUSED[name] = HEADER + text.strip("\n") + "\n", random_input(), said
