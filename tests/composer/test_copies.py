"""Reshapes that would copy a computed value, and stacks of values over merged dimensions: stored once, by the kernel that computes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dvk.composer.lowering.copies import viewed
from tests.composer.programs import Program, check, differences, leaves

GRID, GAIN, ROWS = torch.randn(2, 4, 6, 16), torch.randn(16), torch.randn(6, 40)
POINTS, OCTAVES, WEIGHT = torch.randn(31, 3), torch.randn(4), torch.randn(5, 64)


@dataclass(frozen=True)
class Case:
    """A function, its arguments, and the bytes that its kernels may read and write."""

    function: Callable[..., Any]
    args: tuple[Tensor, ...]
    num_bytes: int
    kernels: int = 1


def windows(x: Tensor, gain: Tensor) -> Tensor:
    normed = F.layer_norm(torch.roll(x, (-1, -1), (1, 2)), (16,), gain, gain)
    return normed.view(2, 2, 2, 3, 2, 16).permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, 16)


def heads(x: Tensor, weight: Tensor) -> Tensor:
    apart = torch.softmax(x, -1).view(2, 4, 6, 16).transpose(1, 2)
    return F.linear(apart.reshape(2, 6, 64), weight)


def shared(x: Tensor) -> tuple[Tensor, ...]:
    whole = torch.tanh(x).transpose(1, 2).reshape(2, 24, 16)
    return whole, whole[0]


def features(points: Tensor, octaves: Tensor) -> Tensor:
    phase = (points.unsqueeze(-1) * octaves).flatten(1)
    return torch.stack((phase.sin(), phase.cos()), dim=-1).flatten(1)


CASES = {
    "windows of a norm": Case(windows, (GRID, GAIN), 2 * GRID.nbytes + 2 * GAIN.nbytes),
    "heads put together": Case(heads, (GRID, WEIGHT), 2 * GRID.nbytes),
    "patches": Case(
        lambda x: torch.relu(x).view(2, 2, 2, 3, 2, 16).permute(0, 1, 3, 5, 2, 4).reshape(12, 64),
        (GRID,),
        2 * GRID.nbytes,
    ),
    "shared by results": Case(shared, (GRID,), 2 * GRID.nbytes),
    "channels to the end": Case(
        lambda x: (x * 2).permute(0, 2, 3, 1).reshape(-1, 4), (GRID,), 2 * GRID.nbytes
    ),
    "read twice": Case(
        lambda x: (y := torch.exp(x), y.transpose(0, 1).reshape(8, 96)), (GRID,), 3 * GRID.nbytes
    ),
    "waves side by side": Case(
        features, (POINTS, OCTAVES), POINTS.nbytes + OCTAVES.nbytes + 31 * 24 * 4
    ),
    "waves in front": Case(
        lambda x, o: torch.stack((p := (x.unsqueeze(-1) * o).flatten(1), p.cos()), dim=1),
        (POINTS, OCTAVES),
        POINTS.nbytes + OCTAVES.nbytes + 31 * 24 * 4,
    ),
}


@pytest.fixture(scope="module")
def programs() -> dict[str, Program]:
    return {name: Program(case.function, *case.args) for name, case in CASES.items()}


@pytest.mark.slow
def test_results_are_pytorchs(programs: dict[str, Program]) -> None:
    check([(name, program) for name, program in programs.items() if not program.externs])
    called = [program for program in programs.values() if program.externs]
    assert [program.externs for program in called] == [["aten.linear.default"]]
    assert not [text for p in called for text in differences(p.run(), p.eager())]


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_copied(programs: dict[str, Program], name: str) -> None:
    case, program = CASES[name], programs[name]
    assert len(program.kernels) == case.kernels
    assert sum(k.num_bytes for k in program.kernels) <= case.num_bytes
    assert ".contiguous()" not in program.text and "pad(" not in program.text
    # What reshapes a result is a view of memory in which it lies already.
    for result in leaves(program.run()):
        assert result._base is None or result.data_ptr() >= result._base.data_ptr()
    assert all(
        b.strides == torch.empty(b.shape).stride() for k in program.kernels for b in k.outputs
    )


def test_rows_whose_neighbours_are_scattered_are_copied_by_pytorch() -> None:
    program = Program(lambda x: torch.softmax(x, -1).t().reshape(60, 4), ROWS)
    assert [b.shape for k in program.kernels for b in k.outputs] == [(6, 40)]
    check([("scattered", program)])


def test_views_that_are_returned_share_memory(programs: dict[str, Program]) -> None:
    whole, first = programs["shared by results"].run()
    assert whole.data_ptr() == first.data_ptr()


def test_results_that_pytorch_copies_apart_share_no_memory() -> None:
    def apart(x: Tensor) -> tuple[Tensor, Tensor]:
        turned = torch.relu(x).t()
        return turned.reshape(-1), turned.reshape(2, -1)

    flat, pair = Program(apart, ROWS).run()
    assert flat.data_ptr() != pair.data_ptr()
    assert torch.equal(flat, torch.relu(ROWS).t().reshape(-1)) and torch.equal(pair.flatten(), flat)


LAYOUTS = {
    "dense": ((4, 6), (6, 1), (3, 8)),
    "split": ((4, 6), (1, 4), (2, 2, 6)),
    "turned": ((4, 6), (1, 4), (24,)),
    "batch apart": ((2, 4, 6), (24, 1, 4), (2, 24)),
    "rows of a turned batch": ((4, 2, 6), (6, 24, 1), (8, 6)),
    "merged in part": ((2, 3, 4, 5), (60, 20, 5, 1), (6, 20)),
    "ones": ((1, 4, 1, 6), (9, 6, 7, 1), (4, 1, 6, 1)),
    "channels last": ((2, 4, 3, 5), (60, 1, 20, 4), (2, 4, 15)),
    "channels last, flat": ((2, 4, 3, 5), (60, 1, 20, 4), (2, 60)),
    "apart within a block": ((4, 6), (12, 1), (2, 2, 3, 2)),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_views_are_told_from_copies_as_pytorch_does(name: str) -> None:
    shape, strides, after = LAYOUTS[name]
    x = torch.empty(200).as_strided(shape, strides)
    try:
        found = x.view(after)
    except RuntimeError:
        assert viewed(shape, strides, after) is None
    else:
        assert viewed(shape, strides, after) is not None
        kept = [n for n, size in enumerate(after) if size > 1]
        assert [viewed(shape, strides, after)[n] for n in kept] == [found.stride(n) for n in kept]  # type: ignore[index]
