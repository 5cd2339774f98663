"""Scans: prefix operations along rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate

from dvk.taskgen.program import TaskProgram
from dvk.taskgen.values import TaskValue, UnfitOperands, deviation, rows, unrowed


def scan(program: TaskProgram, x: TaskValue) -> TaskValue:
    """A running sum, product, maximum or logarithm of summed exponentials along one dimension.

    Raises:
        UnfitOperands: too short, or it grows too large.
    """
    dice = program.dice
    if not x.rank:
        raise UnfitOperands("no rows")
    dim = dice.weighted({x.rank - 1: 5, max(0, x.rank - 2): 1.5, 0: 0.5})
    length = x.shape[dim]
    if min(length[1:]) < 4:
        raise UnfitOperands("too short")
    kind = dice.weighted(
        {"cumsum": 4, "cummax": 1, "cummin": 0.6, "cumprod": 1, "logcumsumexp": 0.8}
    )
    where = dim - x.rank if dim == x.rank - 1 and dice.chance(0.7) else dim
    families: tuple[str, ...] = (kind,)
    if kind in ("cummax", "cummin"):
        text = dice.pick((f"torch.{kind}({{0}}, dim={where})[0]", f"{{0}}.{kind}({where}).values"))
    elif kind == "cumprod":
        # Factors near 1, like survival rates and discounts: others vanish or explode within a row.
        text, families = (
            f"torch.cumprod(1.0 + 0.05 * torch.tanh({{0}}), dim={where})",
            ("tanh", "mul", "add", "cumprod"),
        )
    else:
        text = dice.pick(
            (
                f"torch.{kind}({{0}}, dim={where})",
                f"{{0}}.{kind}({where})",
                f"{{0}}.{kind}(dim={where})",
            )
        )
    first = dim == 0 and x.rank > 1
    walked = [_walked(program, kind, row, length.native) for row in rows(x.sample, first)]
    rises = kind == "cumsum" and x.floor is not None and x.floor >= 0
    floor = x.floor if rises or kind in ("cummax", "cummin") else None
    return program.emit(kind, families, text, [x], unrowed(walked, first), floor=floor)


def _walked(program: TaskProgram, kind: str, row: Sequence[float], count: int) -> list[float]:
    """Eight plausible results along a row of `count` elements distributed as `row`."""
    if kind in ("cummax", "cummin"):
        return list(accumulate(row, max if kind == "cummax" else min))
    mean, sigma = math.fsum(row) / len(row), deviation(row)
    places = [count * (place + program.dice.random()) / len(row) for place in range(len(row))]
    if kind == "logcumsumexp":
        peak = max(row)
        size = math.fsum(math.exp(v - peak) for v in row) / len(row)
        return [peak + math.log(max(1.0, place) * size) for place in places]
    summed = [place * mean + math.sqrt(place) * sigma * program.dice.normal() for place in places]
    if kind == "cumsum":
        return summed
    factors = [math.tanh(v) for v in row]
    drift = math.fsum(0.05 * f - 0.00125 * f * f for f in factors) / len(row)
    return [
        math.exp(
            min(
                50.0,
                place * drift
                + math.sqrt(place) * 0.05 * deviation(factors) * program.dice.normal(),
            )
        )
        for place in places
    ]
