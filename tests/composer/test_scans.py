"""Cumulative sums, products and extremes, from either end, with their neighbours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from dvk.composer import applicable
from dvk.composer.codegen import cpp
from dvk.composer.compose import fuse
from tests.composer.programs import TASK, Program, capture, check, compiled

INF, NAN = float("inf"), float("nan")
Made = list[tuple[str, Program]]


def along(x: torch.Tensor) -> Any:
    """Every form, along every dimension."""
    found: list[Any] = []
    for dim in range(x.dim()):
        largest, where = torch.cummax(x, dim)
        smallest, at = torch.cummin(x, dim)
        backward = x.flip(dim).cumsum(dim).flip(dim)
        found += [
            x.cumsum(dim),
            x.cumprod(dim),
            torch.cummax(x, dim - x.dim())[0],
            largest,
            where,
            smallest,
            at,
            backward,
        ]
    return tuple(found)


@pytest.mark.parametrize(
    "dtype",
    [
        torch.float32,
        torch.bfloat16,
        torch.uint8,
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in (torch.float16, torch.int32)),
    ],
)
def test_every_form_along_every_dimension(dtype: torch.dtype) -> None:
    check([("small", Program(along, torch.randint(0, 4, (3, 5, 4)).to(dtype)))])


def test_nan_and_infinities_stay_from_where_they_are() -> None:
    x = torch.randn(8, 11)
    x[0, 3], x[1, 4], x[2, 5], x[3, 2], x[3, 7] = NAN, INF, -INF, INF, -INF
    x[4, 2], x[4, 6], x[5] = NAN, NAN, -INF
    check([("special", Program(along, x))])


def ones(x: torch.Tensor) -> Any:
    return (
        x.cumsum(-1),
        x.flip(-1).cumsum(-1).flip(-1),
        x.cumsum(0),
        x.cumsum(0, dtype=torch.float64),
    )


def test_layouts_and_sizes() -> None:
    made: Made = [
        ("long", Program(ones, torch.randn(2, 40_001))),
        ("vector", Program(ones, torch.randn(70_000))),
    ]
    made += [
        ("transposed", Program(ones, torch.randn(40, 30, 2).permute(2, 1, 0))),
        ("tall", Program(ones, torch.randn(5000, 3))),
    ]
    made += [
        ("sliced", Program(ones, torch.randn(4, 6, 50)[::2, 1:, ::3])),
        ("one", Program(ones, torch.randn(1, 1))),
    ]
    check(made, scale=3.0)


AROUND: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "masked": lambda x, m: (x * m).cumsum(1) / 2,
    "chosen": lambda x, m: torch.where(m > 0, x, 0.0).cumsum(1),
    "exclusive": lambda x, m: x.cumsum(1) - x,
    "from the end": lambda x, m: torch.relu(x).flip(1).cumsum(1).flip(1) * m,
    "exclusive from the end": lambda x, m: x.flip(1).cumsum(1).flip(1) - x,
    "broadcast": lambda x, m: (x + m[:, :1]).cumsum(1) * m[:, :1],
    "of a scan": lambda x, m: x.cumsum(1).cumsum(1),
    "two together": lambda x, m: x.cumsum(1) + (1 + x * 0.01).cumprod(1),
    "of a constant": lambda x, m: x * 0 + torch.ones_like(x).cumsum(1),
    "in other dimensions": lambda x, m: (
        (x.view(6, 4, 10).flip(0, 1) + 1).cumsum(2).flip(1).view(6, 40)
    ),
    "split up": lambda x, m: torch.exp(x.cumsum(1).view(6, 4, 10) * 0.1),
}


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.slow
def test_work_around_a_scan_is_one_kernel_with_it(across: bool) -> None:
    x, m = torch.randn(6, 40), (torch.rand(6, 40) > 0.3).float()
    made: Made = []
    for name, forward in AROUND.items():
        if across and name in ("in other dimensions", "split up", "of a scan"):
            continue
        args = (x.t().contiguous(), m.t().contiguous()) if across else (x, m)
        program = Program(
            (lambda a, b, f=forward: f(a.t(), b.t()).t()) if across else forward, *args
        )
        assert len(program.kernels) == 1 and program.kernels[0].family == (
            "scan_column" if across else "scan"
        ), name
        made.append((name, program))
    check(made)


def test_a_scan_next_to_other_kernels_is_a_separate_kernel() -> None:
    x = torch.randn(6, 40)
    made: Made = [
        ("both ways", Program(lambda x: x.cumsum(1) + x.flip(1).cumsum(1).flip(1), x)),
        ("before a softmax", Program(lambda x: torch.softmax(x.cumsum(1), 1), x)),
        ("after a sum", Program(lambda x: (x - x.sum(1, keepdim=True)).cumsum(1), x)),
        ("along both", Program(lambda x: x.cumsum(1).cumsum(0), x)),
    ]
    check(made)
    assert all(len(program.kernels) == 2 for _, program in made)


def test_every_schedule_agrees_with_torch() -> None:
    made: Made = []
    for family, x, dim in (
        ("scan", torch.randn(3, 3000), 1),
        ("scan_column", torch.randn(300, 700), 0),
    ):
        for turned in (False, True):

            def forward(x: torch.Tensor, dim: int = dim, turned: bool = turned) -> Any:
                y = (
                    torch.relu(x).flip(dim).cumsum(dim).flip(dim)
                    if turned
                    else torch.relu(x).cumsum(dim)
                )
                return y * 2

            first = Program(forward, x)
            (kernel,) = first.kernels
            assert kernel.family == family
            for option in cpp.schedules(kernel):
                made.append((f"{turned} {option}", first.under(lambda k, option=option: option)))
    assert any(
        p.schedules[k.name].printed()["parallel"] == "inner" for _, p in made for k in p.kernels
    )
    check(made)


def test_errors_grow_no_faster_than_torchs() -> None:
    x = torch.rand(2, 1 << 16)
    exact = x.double().cumsum(1)
    (program,) = compiled([Program(lambda x: x.cumsum(1), x)])
    ours, theirs = (
        (y.double() - exact).abs().max().item() for y in (program.run(), program.eager())
    )
    assert ours <= 2 * theirs


def test_nothing_leaves_torch_without_the_recipe() -> None:
    captured = capture(lambda x: torch.relu(x).flip(0).cumsum(0) * 2, torch.randn(5, 4))
    names = tuple(applicable(captured.graph, "cpu", "cpp"))
    assert "own_scans" in names and "own_scans" not in applicable(captured.graph, "cuda", "cuda")
    assert len(fuse(TASK, captured, names).ordered) == 1
    without = fuse(TASK, captured, tuple(n for n in names if n not in ("own_scans", "own_gathers")))
    assert [p.op for p in without.part.users if p.kind == "extern"] == [
        "aten.flip.default",
        "aten.cumsum.default",
    ]
    assert "own_scans" not in applicable(
        capture(lambda x: x.flip(0), torch.randn(3)).graph, "cpu", "cpp"
    )
