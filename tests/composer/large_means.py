"""Norms, inputs whose mean is much larger than their spread or whose rows begin far from it, and how far a program may be from float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

Norm = Callable[[torch.Tensor], Any]
NORMS: dict[str, Norm] = {
    "layer_norm": lambda x: F.layer_norm(x, x.shape[1:]),
    "layer_norm of computed values": lambda x: F.layer_norm(x * 1.5, x.shape[1:]),
    "layer_norm of chosen values": lambda x: F.layer_norm(
        torch.where(x > -1e5, x, -7.5), x.shape[1:]
    ),
    "group_norm": lambda x: F.group_norm(x[:, :, None], 1),
    "instance_norm": lambda x: F.instance_norm(x[:, None]),
    "by hand": lambda x: (
        (x - x.mean(1, keepdim=True))
        / torch.sqrt((x - x.mean(1, keepdim=True)).square().mean(1, keepdim=True) + 1e-5)
    ),
    "down columns": lambda x: F.layer_norm(x.t(), (len(x),)),
    "over channels": lambda x: (lambda c: c * torch.rsqrt(c.square().mean(0, keepdim=True) + 1e-5))(
        x - x.mean(0, keepdim=True)
    ),
}
Inputs = dict[str, tuple[torch.Tensor, float]]
"""Name → rows, and the error that rounding may cost them."""
ACROSS = ("down columns", "over channels")
"""Those whose rows lie across memory."""


def shape_of(name: str, length: int) -> tuple[int, int]:
    return (length, 6) if name in ACROSS else (6, length)


def inputs(shape: tuple[int, int]) -> Inputs:
    """Rows of a large mean, and of equal elements, each with half a unit in the last place of the mean."""
    given = {
        f"mean {mean:g}": (torch.randn(shape) + mean, mean * 2.0**-24)
        for mean in (1e2, 1e3, 1e4, 1e5, 1e6)
    }
    return given | {
        f"{value} alone": (torch.full(shape, value), 0.0)
        for value in (3.3, 1234.567, 100000.3, -7e8)
    }


def outliers(shape: tuple[int, int]) -> Inputs:
    """Rows of heavy tails that begin with their largest elements, rows whose first elements are filled, and rows of equal ones."""
    along = int(shape[1] > shape[0])
    heavy, filled = torch.randn(shape).pow(5), torch.randn(shape)
    filled.narrow(along, 0, 2).fill_(-1e4)
    order = heavy.abs().argsort(along, descending=True)
    given = {"heavy tails": heavy.gather(along, order), "filled": filled}
    given["equal"] = torch.full(shape, -7e8)
    # A row's largest element is as many deviations away as the root of its length.
    return {name: (x, 2.0**-20 * shape[along] ** 0.5) for name, x in given.items()}


def differences(
    norm: Norm, given: Inputs, programs: dict[str, Callable[[torch.Tensor], Any]]
) -> dict[str, str]:
    """Inputs for which a program is further from float64 than eager, beyond what rounding may cost."""
    found = {}
    for name, (x, unit) in given.items():
        truth = norm(x.double())
        eager = (norm(x) - truth).abs().max()
        for schedule, run in programs.items():
            error = (run(x) - truth).abs().max()
            if not error <= 1.2 * eager + unit + 2e-6:
                found[name] = f"{error:.1e} instead of {eager:.1e} under {schedule}"
    return found
