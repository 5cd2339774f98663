"""Convolutions drawn at random, and how they are checked."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from dvk.composer import applicable
from dvk.composer.codegen import cpp
from dvk.records import Graph
from tests.composer.programs import Program, compiled, differences, out_of_bounds

randn = torch.randn

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def own(forward: Any, *args: Any, **given: Any) -> Program:
    return Program(forward, *args, recipes=_own_alone, **given)


def _own_alone(graph: Graph) -> tuple[str, ...]:
    return tuple(
        r
        for r in applicable(graph, "cpu", "cpp", inexact=True)
        if r not in ("channels_last", "own_matmul")
    )


def check(made: dict[str, Program], left: tuple[str, ...] = ()) -> None:
    """No convolution is left to torch, and each is as close to float64 as its dtype allows."""
    compiled(made.values())
    wrong = {}
    for name, program in made.items():
        kind = program.args[0].dtype
        found = differences(program.run(), program.eager(), precision=kind)
        found += differences(
            _wide(program.run()), _in_double(program), layout=False, precision=kind
        )
        found += [f"stayed a call: {op}" for op in program.externs if op not in left]
        found += [text for kernel in program.kernels for text in out_of_bounds(kernel)]
        if found:
            wrong[name] = found
    assert wrong == {}


def _in_double(program: Program) -> Any:
    with torch.no_grad():
        return copy.deepcopy(program.module).double()(*(_wide(a) for a in program.args))


def _wide(value: Any) -> Any:
    return torch.utils._pytree.tree_map(
        lambda v: v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v, value
    )


class Drawn(nn.Module):
    """A convolution of one of the families with random arguments, with a prologue and an epilogue."""

    BEFORE = {
        "nothing": lambda x: x,
        "relu": torch.relu,
        "exp": torch.exp,
        "shift": lambda x: x * 0.5 + 1,
    }
    BEHIND = {
        "nothing": lambda x: x,
        "relu6": F.relu6,
        "silu": F.silu,
        "tanh": lambda x: torch.tanh(x) * 2,
    }

    def __init__(self, rng: random.Random):
        super().__init__()
        dims = rng.choice((1, 2, 2, 2, 3))
        family = rng.choice(("depthwise", "pointwise", "few"))
        channels, groups, outputs = {
            "depthwise": (1, rng.randint(2, 7), rng.randint(1, 3)),
            "pointwise": (rng.randint(2, 40), 1, rng.randint(1, 15)),
            "few": (rng.randint(1, 4), rng.choice((1, 1, 2, 3)), rng.randint(1, 9)),
        }[family]
        size = [1 if family == "pointwise" else rng.randint(1, 5) for _ in range(dims)]
        stride = [1 if family == "pointwise" else rng.choice((1, 1, 2, 3)) for _ in range(dims)]
        gap = [rng.choice((1, 1, 2, 3)) for _ in range(dims)]
        padding: Any = [0 if family == "pointwise" else rng.randint(0, k) for k in size]
        if max(stride) == 1 and rng.random() < 0.3:
            padding = rng.choice(("same", "valid"))
        kind = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dims - 1]
        self.conv = kind(
            channels * groups,
            outputs * groups,
            size,
            stride,
            padding,
            gap,
            groups,
            bias=rng.random() < 0.5,
        )
        self.before, self.behind = rng.choice(list(self.BEFORE)), rng.choice(list(self.BEHIND))
        self.residual, self.scale = (
            rng.random() < 0.3,
            nn.Parameter(randn(outputs * groups, *(1 for _ in range(dims)))),
        )
        least = [g * (k - 1) + 1 for k, g in zip(size, gap, strict=True)]
        shape = [n + rng.choice((0, 1, 6, 12 if dims == 3 else 40)) for n in least]
        many = [] if rng.random() < 0.1 and dims < 3 else [rng.randint(1, 3)]
        self.x = randn(*many, channels * groups, *shape)
        if rng.random() < 0.2:
            self.x = randn(*many, *shape, channels * groups).movedim(-1, len(many))
        elif rng.random() < 0.2:
            self.x = randn(*self.x.shape[:-1], 2 * shape[-1])[..., ::2]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(self.BEFORE[self.before](x)) * self.scale
        y = self.BEHIND[self.behind](y)
        return y + x if self.residual and x.shape == y.shape else y

    def __str__(self) -> str:
        return (
            f"{self.before} → {self.conv} → {self.behind} of {list(self.x.shape)} {self.x.stride()}"
        )


def drawn(
    seed: int, count: int, kind: Callable[[random.Random], nn.Module] = Drawn
) -> dict[str, Program]:
    """Random modules of a kind, each under its default schedule or another one."""
    rng, made = random.Random(seed), {}
    torch.manual_seed(seed)
    while len(made) < count:
        module = kind(rng).eval()
        place = rng.randrange(12)
        program = own(
            module, module.x, choose=lambda k, n=place: (o := cpp.schedules(k))[n % len(o)]
        )
        made[f"{len(made)} {module} schedule {place}"] = program
    return made
