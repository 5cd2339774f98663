"""Reductions over a few elements as additions of slices, where another reduction follows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from dvk.composer import applicable
from dvk.composer.compose import fuse
from dvk.composer.rewrites import unrolled
from tests.composer.programs import TASK, Program, capture, check

LEFT, RIGHT, IMAGE = torch.randn(40, 3), torch.randn(50, 3), torch.rand(2, 3, 9, 8)


def cloud(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    d = (x[:, None] - y).square().sum(-1)
    return torch.log1p(torch.sqrt(d + 1e-6)).sum(1)


def edges(x: torch.Tensor) -> torch.Tensor:
    apart = (x[..., 1:] - x[..., :-1]).abs()
    return torch.exp(-apart.mean(1, keepdim=True)).mean()


FEW: dict[str, tuple[Callable[..., Any], tuple[torch.Tensor, ...]]] = {
    "coordinates": (cloud, (LEFT, RIGHT)),
    "channels": (edges, (IMAGE,)),
    "product": (lambda x: (1 - x * 0.1).prod(1).sum(), (IMAGE,)),
    "extremes": (lambda x: ((x * 2).amax(1) - (x + 1).amin(1)).square().mean(), (IMAGE,)),
    "across memory": (lambda x: (x.exp().mean(1) + 1).log(), (IMAGE,)),
    "doubles": (lambda x, y: cloud(x.double(), y.double()), (LEFT, RIGHT)),
}


def test_values_are_those_of_pytorch() -> None:
    """On a CPU, where the recipe is not offered."""
    made = []
    for name, (function, args) in FEW.items():
        captured = capture(function, *args)
        rewritten = unrolled.rewrite(captured.graph)
        assert rewritten is not None, name
        made.append(
            (
                name,
                Program(function, *args, captured=captured.model_copy(update={"graph": rewritten})),
            )
        )
    check(made)


def test_nothing_is_written_between_the_two_reductions() -> None:
    captured = capture(cloud, LEFT, RIGHT)
    recipes = tuple(applicable(captured.graph, "cuda", "triton"))
    assert "unroll_reductions" in recipes
    (kernel,) = fuse(TASK.model_copy(update={"device": "cuda"}), captured, recipes).ordered
    assert kernel.num_bytes == LEFT.nbytes + RIGHT.nbytes + 40 * 4
    assert "unroll_reductions" not in applicable(captured.graph, "cpu", "cpp")


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x * 2)[..., :5].sum(-1),  # along memory, and nothing reduces its result
        lambda x: (x.softmax(1) * x).sum(1),  # in the softmax's kernel
        lambda x: x.exp() / x.exp().sum(1, keepdim=True),
        lambda x: torch.softmax(x.square(), 1).sum(),
        lambda x: x.sum(1).square().sum(),  # in memory already
        lambda x: x.square().sum(2).sqrt().sum(),  # nine rows
        lambda x: (x.half() * 2).sum(1).square().sum(),
    ],
)
def test_other_reductions_stay(function: Callable[..., Any]) -> None:
    assert unrolled.rewrite(capture(function, IMAGE).graph) is None
