"""Non-finite convolution weights: at padded edges a drop-in gives PyTorch's result for each type and size."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dvk.composer import applicable
from dvk.composer.lowering.dispatch import FINITE
from tests.composer.programs import Program, capture, compiled, drop_in

LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], str]] = {
    "depthwise": (lambda: nn.Conv2d(3, 3, 3, padding=1, groups=3), (2, 3, 7, 6), "own_depthwise"),
    "depthwise 1d": (
        lambda: nn.Conv1d(4, 4, 5, padding="same", groups=4, dilation=2),
        (2, 4, 19),
        "own_depthwise",
    ),
    "few channels": (
        lambda: nn.Conv2d(3, 5, 3, padding=1, stride=2),
        (2, 3, 8, 7),
        "own_few_channels",
    ),
    "few channels 3d": (lambda: nn.Conv3d(2, 3, 3, padding=1), (1, 2, 4, 5, 5), "own_few_channels"),
    "transposed": (
        lambda: nn.ConvTranspose2d(3, 4, 4, stride=2, padding=1),
        (2, 3, 5, 6),
        "own_transposed",
    ),
}
BAD = (torch.inf, -torch.inf, torch.nan)


def own(graph: object) -> tuple[str, ...]:
    return tuple(applicable(graph, "cpu", "cpp"))  # type: ignore[arg-type]


def looks(program: Program) -> int:
    return sum(p.op == FINITE for p in program.composition.part.users)


def agree(program: Program, x: torch.Tensor) -> None:
    rtol = 2e-2 if x.dtype is torch.bfloat16 else 1e-4
    torch.testing.assert_close(
        program.run(x), program.eager(x), rtol=rtol, atol=1e-2, equal_nan=True
    )


@pytest.mark.parametrize(
    "dtype", [torch.float32, pytest.param(torch.bfloat16, marks=pytest.mark.slow)]
)
def test_a_non_finite_weight_matches_pytorch(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    made = {}
    for name, (layer, shape, recipe) in LAYERS.items():
        model = nn.Sequential(layer(), nn.ReLU()).to(dtype).eval()
        made[name] = Program(model, torch.randn(shape).to(dtype), recipes=own)
        assert recipe in made[name].recipes and looks(made[name]) == 1
    compiled(made.values())
    for program in made.values():
        (x,), weight = program.args, program.module[0].weight  # type: ignore[index, union-attr]
        agree(program, x)
        with torch.no_grad():
            for value in BAD:
                before = weight.detach().clone()
                weight.view(-1)[0], weight.view(-1)[-1] = value, value
                agree(program, x)
                weight.copy_(before)
                agree(program, x)


def test_weights_that_are_given_are_looked_at_in_every_call() -> None:
    x, weight = torch.randn(2, 3, 7, 6), torch.randn(3, 1, 3, 3)
    program = Program(
        lambda x, w: F.conv2d(x, w, padding=1, groups=3).relu(), x, weight, recipes=own
    )
    assert looks(program) == 1
    bad = weight.clone()
    bad[1, 0, 0, 2] = -torch.inf
    for w in (weight, bad, weight):
        torch.testing.assert_close(
            program.run(x, w), program.eager(x, w), rtol=1e-4, atol=1e-4, equal_nan=True
        )


def test_without_padding_there_is_nothing_to_look_at() -> None:
    program = Program(
        nn.Sequential(nn.Conv2d(3, 3, 3, groups=3), nn.ReLU()), torch.randn(2, 3, 7, 6), recipes=own
    )
    assert "own_depthwise" in program.recipes and not looks(program)


def test_a_program_that_draws_numbers_leaves_padded_convolutions_to_pytorch() -> None:
    layer = nn.Conv2d(3, 3, 3, padding=1, groups=3)
    graph = capture(lambda x: layer(F.dropout(x, 0.5, True)).relu(), torch.randn(2, 3, 7, 6)).graph
    assert "own_depthwise" not in own(graph)


SOURCE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1, groups=3)

    def forward(self, x):
        return self.conv(x).relu() * 2
"""


def test_a_drop_in_runs_the_original_until_the_weight_is_finite_again() -> None:
    x = torch.randn(2, 3, 7, 6)
    found, model, _ = drop_in(
        SOURCE, x, recipes=("own_depthwise", "fuse_pointwise", "fuse_rowwise")
    )
    new = found.ModelNew()
    new.load_state_dict(model.state_dict())
    for value in (0.5, torch.inf, 0.25, torch.nan):
        with torch.no_grad():
            for module in (model, new):
                module.conv.weight[0, 0, 0, 0] = value
            torch.testing.assert_close(new(x), model(x), rtol=1e-4, atol=1e-4, equal_nan=True)
