"""Sums of values of nearly one shape are one kernel on a GPU, which reads what they have in common once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from dvk.composer import applicable
from dvk.composer.compose import Plan, compose, fuse
from dvk.composer.ir.loops import Kernel
from dvk.composer.lowering.common_loops import RECIPE, common_shapes
from dvk.records import Graph
from tests.composer.programs import TASK, Program, capture, check, usual

A, B = torch.rand(2, 3, 24, 40), torch.rand(2, 3, 24, 40)
A[0, 0, 3, 4], B[1, 2, 23, 39] = float("inf"), 40.0


def charbonnier(x: torch.Tensor) -> torch.Tensor:
    return torch.sqrt(x * x + 1e-6)


def edges(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    r = a - b
    across, down = r[..., 1:] - r[..., :-1], r[:, :, 1:] - r[:, :, :-1]
    return charbonnier(across).mean() + charbonnier(down).mean()


def laplacian(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    r = a - b
    inner = 4 * r[..., 1:-1, 1:-1] - r[..., :-2, 1:-1] - r[..., 2:, 1:-1] - r[..., 1:-1, 2:]
    return r.abs().sum() / 7 - 0.5 * charbonnier(inner).sum()


def of_each_image(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    across, down = (a * b).diff(dim=3).abs(), (a * b).diff(dim=2).abs()
    return across.mean(dim=(1, 2, 3)) * 2 + down.mean(dim=(1, 2, 3)).sqrt()


def second_order(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Three sums, and doubles."""
    a = a.double()
    parts = (a, a[..., 2:] - 2 * a[..., 1:-1] + a[..., :-2], a[:, :, 1:] * a[:, :, :-1])
    return sum((p.exp().mean() for p in parts), torch.zeros((), dtype=torch.float64))


SHIFTED: dict[str, Callable[..., torch.Tensor]] = {
    f.__name__: f for f in (edges, laplacian, of_each_image, second_order)
}


def kernels(function: Callable[..., Any]) -> list[Kernel]:
    graph = capture(function, A, B)
    recipes = tuple(applicable(graph.graph, "cuda", "triton"))
    return fuse(TASK.model_copy(update={"device": "cuda"}), graph, recipes).ordered


def completed(graph: Graph) -> tuple[str, ...]:
    return (*usual(graph), RECIPE)


def test_values_are_those_of_pytorch() -> None:
    """In C++, for which it is not the usual way; infinities beside the missing elements stay away from the sums of others."""
    finite = A.nan_to_num(posinf=0.5)
    made = [(name, Program(f, finite, B, recipes=completed)) for name, f in SHIFTED.items()]
    made.append(("an infinity", Program(edges, A, B, recipes=completed)))
    assert all(len(program.kernels) == 1 for _, program in made)
    check(made)


@pytest.mark.parametrize("name", SHIFTED)
def test_the_image_is_read_once(name: str) -> None:
    (kernel,) = kernels(SHIFTED[name])
    images = 1 if name == "second_order" else 2
    assert sum(b.num_bytes for b in kernel.inputs) <= images * A.nbytes + 8


def test_cuda_text_has_no_bounds_within_loops() -> None:
    graph = capture(edges, A, B)
    recipes = tuple(applicable(graph.graph, "cuda", "cuda"))
    task = TASK.model_copy(update={"device": "cuda", "source": "class Model: pass"})
    assert RECIPE not in recipes and "own_scatters" not in recipes
    assert compose(task, graph, Plan(recipes), "cuda").source.count("__global__") >= 2


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: (a.exp().sum(), b[..., 1:].exp().sum()),  # apart
        lambda a, b: a.exp().sum() + b[..., 1:].exp().sum(),  # nothing in common
        lambda a, b: a.exp().sum() + a[..., :9].sin().sum(),  # half of the image
        lambda a, b: a[..., 1:].exp().sum() + a[..., :-1].sin().sum(),  # one shape
    ],
)
def test_other_sums_keep_their_shapes(function: Callable[..., Any]) -> None:
    assert common_shapes(capture(function, A, B).graph) == {}
