"""Pooling and padding as kernels: bounds, identities and divisors as PyTorch has them, neighbours fused in."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dvk.composer import applicable
from dvk.composer.codegen import cpp
from dvk.composer.compose import fuse
from dvk.composer.recipes import OWN_FAMILIES
from dvk.nanolang import structures
from tests.composer.programs import TASK, Program, capture, check, compiled, differences, usual

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INF, NAN = float("inf"), float("nan")
Made = list[tuple[str, Program]]


def pools(dims: int) -> list[tuple[str, Callable[[torch.Tensor], torch.Tensor]]]:
    """Max and average pools over so many dimensions, with every kind of argument."""
    biggest, average = getattr(F, f"max_pool{dims}d"), getattr(F, f"avg_pool{dims}d")
    found: list[tuple[str, Callable[[torch.Tensor], torch.Tensor]]] = []
    for size, stride, padding, ceil in itertools.product((2, 3), (1, 2, 3), (0, 1), (False, True)):
        words = f"{dims}-D size {size} stride {stride} padding {padding}{' ceil' if ceil else ''}"
        given = {"stride": stride, "padding": padding, "ceil_mode": ceil}
        found.append((f"max {words}", lambda x, s=size, g=given: biggest(x, s, **g)))
        found.append(
            (
                f"average {words}",
                lambda x, s=size, g=given: average(x, s, count_include_pad=s == 3, **g),
            )
        )
    found.append(
        (f"max {dims}-D dilated", lambda x: biggest(x, 2, 2, 1, dilation=3, ceil_mode=True))
    )
    if dims > 1:
        found.append(
            (f"average {dims}-D divided by 5", lambda x: average(x, 2, 3, 1, divisor_override=5))
        )
    return found


@pytest.mark.parametrize("dims", [1, 2, pytest.param(3, marks=pytest.mark.slow)])
def test_pools_of_every_kind_agree_with_torch(dims: int) -> None:
    x = torch.randn(2, 3, *(7, 9, 8)[:dims])
    check([(name, Program(pool, x)) for name, pool in pools(dims)[dims :: 3 if dims == 2 else 5]])


@pytest.mark.slow
def test_types_layouts_and_special_values() -> None:
    x = torch.randn(2, 3, 8, 9)
    odd = x.clone()
    odd[0, 0, 0, 0], odd[0, 1, 3, 4], odd[1, 2, -1, -1], odd[1, 0, :4, :4] = NAN, INF, -INF, -INF

    def pool(x: torch.Tensor) -> Any:
        return (
            F.max_pool2d(x, 3, 2, 1),
            F.avg_pool2d(x, 3, 2, 1),
            F.max_pool2d(x, 2),
            F.avg_pool2d(x, (1, 3), (2, 1), (0, 1)),
        )

    made: Made = [(str(dtype), Program(pool, x.to(dtype))) for dtype in FLOATS]
    made += [
        ("special", Program(pool, odd)),
        ("channels last", Program(pool, x.to(memory_format=torch.channels_last))),
    ]
    made += [
        ("strided", Program(pool, torch.randn(3, 2, 9, 16).transpose(0, 1)[..., ::2])),
        ("three", Program(pool, x[0])),
    ]
    made += [
        ("wide", Program(pool, torch.randn(1, 2, 5, 700))),
        ("columns", Program(pool, torch.randn(2, 2, 300, 3))),
    ]
    check(made)


def test_adaptive_pools_of_equal_windows() -> None:
    x = torch.randn(2, 4, 6, 12)
    made: Made = [
        (
            f"{size}",
            Program(
                lambda x, size=size: (
                    F.adaptive_avg_pool2d(x, size),
                    F.adaptive_max_pool2d(x, size) * 2,
                ),
                x,
            ),
        )
        for size in (1, (3, 4), (6, 12), (1, 3), (2, 1))
    ]
    made.append(
        ("1-D", Program(lambda x: F.adaptive_avg_pool1d(x, 4) + F.adaptive_max_pool1d(x, 4), x[0]))
    )
    made.append(("3-D", Program(lambda x: F.adaptive_avg_pool3d(x, (2, 3, 3)), x)))
    check(made)
    left = Program(
        lambda x: (F.adaptive_avg_pool2d(x, (5, 5)), F.max_pool2d(x, 2, return_indices=True)[1]),
        x,
        recipes=lambda graph: tuple(r for r in usual(graph) if r != "operator_parts"),
    )
    assert len(left.externs) == 2 and left.kernels == []


def test_padding_with_nothing_is_a_copy() -> None:
    x = torch.randn(3, 4)
    program = Program(lambda x: (F.pad(x, (0, 0)), F.pad(x, (0, 0))), x)
    assert len({x.data_ptr(), *(t.data_ptr() for t in program.run())}) == 3
    assert differences(program.run(), program.eager()) == []


@pytest.mark.slow
def test_padding_with_a_number_is_read_through_bounds() -> None:
    x, n = torch.randn(3, 4, 5), torch.arange(60).view(3, 4, 5)
    made: Made = []
    for pads in ((1, 2), (0, 0, 3, 1), (2, -1, -1, 2, 1, 0), (-1, -2)):
        made.append(
            (
                f"{pads}",
                Program(
                    lambda x, pads=pads: (
                        F.pad(x, pads, value=1.5) * 2,
                        F.pad(torch.relu(x), pads),
                    ),
                    x,
                ),
            )
        )
        made.append(
            (f"{pads} of integers", Program(lambda n, pads=pads: F.pad(n, pads, value=7) + 1, n))
        )
    made.append(("half", Program(lambda x: F.pad(x, (1, 1), value=0.1), x.half())))
    made.append(("flags", Program(lambda x: F.pad(x > 0, (1, 1), value=True), x)))
    made.append(
        (
            "a pool of another number",
            Program(lambda x: F.max_pool1d(F.pad(x, (1, 2), value=0.5), 3, 2), x),
        )
    )
    made.append(
        ("twice", Program(lambda x: F.pad(F.pad(x, (1, 1), value=3.0), (0, 2, 1, 1), value=4.0), x))
    )
    made.append(
        ("of a flattened tensor", Program(lambda x: F.pad(x.reshape(3, 20), (1, 3)) + 1, x))
    )
    made.append(
        (
            "of a view with another dimension",
            Program(lambda x: F.avg_pool2d(x.unsqueeze(0), 3, 1, 1), x),
        )
    )
    check(made)


class Block(nn.Module):
    """Prologues and epilogues of a pool in networks."""

    def __init__(self, before: nn.Module, pool: nn.Module):
        super().__init__()
        self.conv, self.norm, self.before, self.pool = (
            nn.Conv2d(3, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            before,
            pool,
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.pool(self.before(self.norm(self.conv(x)))) * 2.0)


def around(before: nn.Module, pool: nn.Module) -> Program:
    block, x = Block(before, pool).eval(), torch.randn(2, 3, 8, 8)
    return Program(
        block, x, recipes=lambda graph: tuple(r for r in usual(graph) if r != "channels_last")
    )


POOLS = (
    nn.MaxPool2d(3, 2, 1),
    nn.AvgPool2d(2),
    nn.AdaptiveAvgPool2d(4),
    nn.AdaptiveAvgPool2d(1),
    nn.LPPool2d(2, 2),
)


@pytest.mark.parametrize("pool", POOLS, ids=str)
def test_work_before_and_after_a_pool_is_one_kernel_with_it(pool: nn.Module) -> None:
    program = around(nn.ReLU(), pool)
    assert program.externs == ["aten.conv2d.default"] and len(program.kernels) == 1
    check_fused(program)


def test_costly_work_before_overlapping_windows_is_done_once() -> None:
    program = around(nn.GELU(), nn.MaxPool2d(3, 1, 1))
    assert [k.family for k in program.kernels] == ["pointwise", "window"]
    check_fused(program)


def check_fused(program: Program) -> None:
    compiled([program])
    assert differences(program.run(), program.eager()) == []


@pytest.mark.parametrize("padding", [0, 1])
def test_every_schedule_of_a_window_agrees_with_torch(padding: int) -> None:
    def forward(x: torch.Tensor) -> Any:
        return F.max_pool2d(torch.relu(x + 1), 3, 2, padding) * 2 + F.avg_pool2d(
            x, 3, 2, padding, count_include_pad=False
        )

    x = torch.randn(2, 3, 9, 600)
    first = Program(forward, x)
    (kernel,) = first.kernels
    assert kernel.family == "window"
    made: Made = [
        (f"{option}", first.under(lambda k, option=option: option))
        for option in cpp.schedules(kernel)
    ]
    assert any("walk" in p.schedules[k.name].printed() for _, p in made for k in p.kernels)
    assert any("unrolled" in p.schedules[k.name].printed() for _, p in made for k in p.kernels) is (
        padding == 0
    )
    check(made)


def test_nothing_leaves_torch_without_the_recipe_and_texts_that_a_model_learns_have_none_of_it() -> (
    None
):
    captured = capture(lambda x: F.max_pool2d(torch.relu(x), 2) * 2, torch.randn(1, 2, 4, 4))
    names = tuple(applicable(captured.graph, "cpu", "cpp"))
    assert "own_windows" in names and "own_windows" not in applicable(
        captured.graph, "cuda", "cuda"
    )
    assert len(fuse(TASK, captured, names).ordered) == 1
    without = fuse(TASK, captured, tuple(n for n in names if n != "own_windows"))
    assert [p.op for p in without.part.users if p.kind == "extern"] == ["aten.max_pool2d.default"]
    assert not any(set(found) & set(OWN_FAMILIES) for found in structures(captured, "cpp"))
    assert "own_windows" not in applicable(capture(torch.relu, torch.randn(3)).graph, "cpu", "cpp")
