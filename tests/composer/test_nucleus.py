"""Nucleus sampling (top-p) without a sort: what is kept, ties in order, and where the sort stays."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from dvk.composer import applicable
from dvk.composer.codegen.base import codegen
from dvk.composer.compose import fuse
from dvk.composer.lowering import nucleus
from tests.composer.programs import TASK, Program, capture, compiled
from tests.composer.selection_cases import NUCLEI, below, hard, rescaled, same


@pytest.mark.parametrize(
    ("bits", "dtype", "names"),
    [
        (2, torch.bfloat16, ("nucleus", "ascending")),
        pytest.param(1, torch.bfloat16, tuple(NUCLEI), marks=pytest.mark.slow),
        *(pytest.param(n, torch.float32, tuple(NUCLEI), marks=pytest.mark.slow) for n in (1, 2)),
    ],
)
def test_what_is_kept_is_what_pytorch_keeps(
    bits: int, dtype: torch.dtype, names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nucleus, "IN_REGISTERS", 1 << 20 if bits == 1 else 1)
    x, limit = hard(37, dtype), torch.linspace(0.1, 0.99, 10)[:, None]
    made = {name: Program(NUCLEI[name], x, limit) for name in names}
    compiled(made.values())
    for name, program in made.items():
        assert program.externs == [], name
        assert len(program.kernels) == 1, name
        assert same(program.run(), program.eager()), name


@pytest.mark.slow
def test_what_is_kept_may_be_rescaled() -> None:
    """Of long rows, sums are rounded: one token at the limit may stay or go."""
    made = {
        "long": Program(rescaled, torch.randn(2, 70_000), torch.tensor([[0.3], [0.9]])),
        "nothing": Program(rescaled, torch.randn(3, 64), torch.tensor([[0.3], [0.9], [0.0]])),
    }
    compiled(made.values())
    for name, program in made.items():
        assert program.externs == [], name
        found, want = program.run(), program.eager()
        apart = ~torch.isclose(found, want, rtol=1e-3, equal_nan=True)
        assert apart.sum(-1).max() <= (name == "long"), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_search_of_many_passes_is_not_split(dtype: torch.dtype) -> None:
    """Each pass would be a launch that adds up the sums of all before it."""
    x = torch.empty(4, 128256, dtype=dtype, device="meta")
    captured = capture(NUCLEI["strict"], x, torch.empty(4, 1, device="meta"))
    recipes = tuple(applicable(captured.graph, "cuda", "triton"))
    (kernel,) = fuse(TASK.model_copy(update={"device": "cuda"}), captured, recipes).ordered
    kinds = {schedule.kind for schedule in codegen("triton").schedules(kernel)}
    assert "looped" in kinds and ("split" in kinds) is (dtype is torch.bfloat16)


def returned(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    ordered, places = torch.sort(torch.softmax(x, -1), descending=True)
    remove = ordered.cumsum(-1) > 0.9
    return ordered, torch.zeros_like(remove).scatter(-1, places, remove)


def signed(x: torch.Tensor) -> torch.Tensor:
    ordered, places = torch.sort(x, descending=True)
    remove = ordered.cumsum(-1) > 0.9
    return torch.zeros_like(remove).scatter(-1, places, remove)


def aligned(x: torch.Tensor) -> torch.Tensor:
    """A tensor that has the order of the line before the sort, where the sorted one is."""
    ordered, places = torch.sort(torch.softmax(x, -1), descending=True)
    kept = torch.where(ordered.cumsum(-1) > 0.9, x, 0.0)
    return torch.zeros_like(x).scatter(-1, places, kept)


def elsewhere(x: torch.Tensor) -> torch.Tensor:
    ordered, places = torch.sort(torch.softmax(x, -1), descending=True)
    remove = ordered.cumsum(-1) > 0.9
    return torch.zeros_like(remove).scatter(-1, places.flip(-1), remove)


def shown(x: torch.Tensor) -> torch.Tensor:
    ordered, places = torch.sort(torch.softmax(x, -1), descending=True)
    sums = ordered.cumsum(-1)
    return below(x, torch.zeros_like(x).scatter(-1, places, sums))


@pytest.mark.parametrize("forward", [returned, signed, aligned, elsewhere, shown])
def test_what_needs_the_order_stays(forward: Callable[..., torch.Tensor]) -> None:
    graph = capture(forward, hard(37)).graph
    assert "nucleus" not in applicable(graph, "cuda", "triton")
