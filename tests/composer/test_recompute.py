"""Values computed twice because they are read in two kernels, the second of which waits for a sum."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dvk.composer.compose import _may_merge, fuse_graph
from dvk.composer.fusion.allowed import allowed
from dvk.composer.fusion.partition import partition
from dvk.composer.fusion.recompute import recomputed
from dvk.composer.lowering import lower
from dvk.records import Graph
from tests.composer.programs import Program, capture, differences, usual

IMAGES, GATE = torch.randn(2, 6, 9, 10), torch.randn(6, 6)


def twice(graph: Graph) -> Graph | None:
    names = usual(graph)
    prims = lower(graph, allowed(graph, names), names.__contains__)
    return recomputed(graph, prims, partition(prims, partial(_may_merge, names, "cpu")))


class Excite(nn.Module):
    """A convolution, an activation, and a gate by channel from the mean of the plane."""

    def __init__(self, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.conv, self.activation = nn.Conv2d(6, 6, 3, padding=1), activation

    def forward(self, x: Tensor) -> Tensor:
        x = self.activation(self.conv(x) + 0.5)
        return x * torch.sigmoid(F.linear(x.mean((2, 3)), GATE))[:, :, None, None]


def weighted(x: Tensor, w: Tensor) -> Tensor:
    """The value is read through a view, and what scales it by rows comes from a product."""
    y = torch.tanh(x * 2)
    score = F.linear(y.mean((2, 3)), w)
    return y.flatten(2) - score.unsqueeze(2)


MODELS = {
    "softsign": (Excite(F.softsign), (IMAGES,)),
    "silu": (Excite(F.silu), (IMAGES,)),
    "through a view": (weighted, (IMAGES, GATE)),
}


@pytest.mark.parametrize("name", MODELS)
def test_it_is_computed_where_it_is_read(name: str) -> None:
    model, args = MODELS[name]
    once = Program(model, *args)
    graph = twice(once.graph)
    assert graph is not None
    again = Program(
        model,
        *args,
        captured=once.captured.model_copy(update={"graph": graph}),
        recipes=once.recipes,
    )
    assert differences(again.run(), again.eager()) == []
    moved = [sum(k.num_bytes for k in program.kernels) for program in (once, again)]
    assert moved[0] - moved[1] >= IMAGES.nbytes - 100
    made = fuse_graph(once.graph, once.recipes, "cuda")
    assert [k.num_bytes for k in made.ordered] == [k.num_bytes for k in again.kernels]


def returned(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    y = torch.tanh(x)
    return y, y * F.linear(y.mean((2, 3)), w)[:, :, None, None]


def normed(x: Tensor, w: Tensor) -> Tensor:
    """What is read later comes from a sum itself."""
    y = x - x.mean((2, 3), keepdim=True)
    return y * F.linear(y.square().mean((2, 3)), w)[:, :, None, None]


def of_many(x: Tensor, w: Tensor) -> Tensor:
    y = torch.tanh(x) * x.flip(0).exp() + x.roll(1, 0)
    return y * F.linear(y.mean((2, 3)), w)[:, :, None, None]


@pytest.mark.parametrize("function", [returned, normed, of_many])
def test_it_is_stored_where_that_costs_less_or_it_is_needed(
    function: Callable[..., Tensor],
) -> None:
    graph = capture(function, IMAGES, GATE).graph
    program = Program(function, IMAGES, GATE)
    assert differences(program.run(), program.eager()) == []
    assert twice(graph) is None
