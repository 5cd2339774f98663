"""Programs that must agree with eager, in every dtype, with nothing left to PyTorch."""

from __future__ import annotations

import pytest
import torch

from tests.composer.programs import Program, compiled, differences

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


WIDE = [
    pytest.param(dtype, marks=pytest.mark.slow if dtype is not torch.float32 else (), id=str(dtype))
    for dtype in FLOATS
]


Made = list[tuple[str, Program]]


def check(made: Made, *, scale: float = 1.0, externs: frozenset[str] = frozenset()) -> None:
    """All programs agree with eager, and only `externs` stayed PyTorch calls."""
    compiled(program for _, program in made)
    wrong = {}
    for name, program in made:
        found = differences(
            program.run(),
            program.eager(),
            scale=scale,
            precision=program.args[0].dtype if program.args[0].is_floating_point() else None,
        )
        found += [
            f"stayed a call: {op}" for op in program.externs if op.split(".")[1] not in externs
        ]
        if found:
            wrong[name] = found
    assert wrong == {}
