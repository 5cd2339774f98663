"""Indices of maxima and minima: torch's first index, torch's NaN, whatever surrounds them."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from dvk.composer import applicable
from dvk.composer.codegen import cpp
from dvk.composer.compose import fuse
from tests.composer import programs
from tests.composer.programs import TASK, Program, capture

INF, NAN = float("inf"), float("nan")
Made = list[tuple[str, Program]]
check = partial(programs.check, strict=True)


def along(x: torch.Tensor) -> Any:
    """Every form, along every dimension."""
    found: list[Any] = [x.argmax(), x.argmin(keepdim=True)]
    for dim in range(x.dim()):
        largest, where = x.max(dim)
        found += [x.argmax(dim), x.argmin(dim - x.dim(), keepdim=True), largest, where]
    smallest, where = x.min(-1, keepdim=True)
    return (*found, smallest, where)


def ties(*shape: int) -> torch.Tensor:
    return torch.randint(-3, 4, shape).float()


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.int32,
        torch.int8,
        torch.uint8,
        torch.int16,
    ],
)
@pytest.mark.slow
def test_every_form_along_every_dimension_with_ties(dtype: torch.dtype) -> None:
    x = ties(3, 5, 7).abs() if dtype is torch.uint8 else ties(3, 5, 7)
    check([("ties", Program(along, x.to(dtype)))])


def test_nan_wins_infinities_and_zeros_of_both_signs() -> None:
    x = ties(12, 9)
    x[0, 3], x[1, 8], x[2, 0], x[3, 2:] = NAN, INF, -INF, NAN
    x[4, 1], x[4, 5], x[5], x[6], x[7] = INF, NAN, -INF, INF, NAN
    x[8] = torch.tensor([-0.0, 0.0, -0.0, -1, -1, 0.0, -2, -0.0, 0.0])
    check([("special", Program(along, x)), ("negative nan", Program(along, -x))])


@pytest.mark.slow
def test_layouts_and_sizes() -> None:
    made: Made = [
        ("long", Program(lambda x: (x.argmax(1), x.argmin()), ties(2, 70_001))),
        ("one", Program(along, ties(1, 1))),
    ]
    made += [
        ("transposed", Program(along, ties(4, 3, 2).permute(2, 1, 0))),
        ("tall", Program(along, ties(3000, 3))),
    ]
    made += [
        ("sliced", Program(along, ties(4, 6, 5)[::2, 1:])),
        ("vector", Program(along, ties(900))),
    ]
    check(made)


def test_work_around_a_position_is_one_kernel_with_it() -> None:
    def forward(x: torch.Tensor, b: torch.Tensor) -> Any:
        y = torch.relu(x + b)
        value, where = y.max(-1)
        return value * 2, where + 1, y.argmin(-1)

    program = Program(forward, torch.randn(6, 40), torch.randn(40))
    assert len(program.kernels) == 1 and program.kernels[0].family == "row"
    check([("fused", program)])


def test_rounded_values_are_compared() -> None:
    x = torch.randn(4, 300).half()
    check([("half", Program(lambda x: (x * 0.01 + 1).argmax(1), x))])


def test_every_schedule_agrees_with_torch() -> None:
    made: Made = []
    for name, x, dim in (("row", ties(3, 9000), 1), ("column", ties(900, 7), 0)):
        first = Program(lambda x, dim=dim: tuple(x.max(dim)), x)
        (kernel,) = first.kernels
        assert kernel.family == name
        for option in cpp.schedules(kernel):
            made.append((f"{option}", first.under(lambda k, option=option: option)))
    check(made)


def test_wide_values_and_other_recipes_stay_with_torch() -> None:
    for dtype in (torch.float64, torch.int64):
        captured = capture(lambda x: (x.argmax(1), x.max(0)[1]), ties(3, 4).to(dtype))
        assert "own_arg_reductions" not in applicable(captured.graph, "cpu", "cpp")
    captured = capture(lambda x: (x.max(1)[0], x.max(1)[1]), ties(3, 4))
    names = tuple(applicable(captured.graph, "cpu", "cpp"))
    assert "own_arg_reductions" in names
    without = fuse(TASK, captured, tuple(n for n in names if n != "own_arg_reductions"))
    assert {p.op for p in without.part.users if p.kind == "extern"} >= {"aten.max.dim"}
    # Unused indices cost nothing, and need only the recipe of reductions.
    values = applicable(capture(lambda x: x.max(1)[0] * 2, ties(3, 4)).graph, "cpu", "cpp")
    assert "own_arg_reductions" not in values and "fuse_rowwise" in values
