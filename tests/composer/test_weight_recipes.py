"""Recipes that change weights: norms folded into linear layers, products collapsed, factors moved."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.composer.programs import Program, compiled, differences
from tests.composer.proposals import proposed


def normed(first: nn.Module, norm: nn.Module, *rest: nn.Module) -> nn.Module:
    """The chain in eval mode, with statistics that are not the initial ones."""
    torch.manual_seed(3)
    model = nn.Sequential(first, norm, *rest).eval()
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if tensor.is_floating_point():
            nn.init.uniform_(tensor, 0.5, 2.0) if "var" in name else nn.init.normal_(tensor)
    return model


FOLDABLE = {
    "conv2d": (lambda: normed(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.ReLU()), (2, 3, 7, 5)),
    "conv2d without bias": (
        lambda: normed(nn.Conv2d(3, 5, 1, bias=False), nn.BatchNorm2d(5)),
        (1, 3, 1, 1),
    ),
    "conv2d same padding": (
        lambda: normed(nn.Conv2d(4, 4, 3, padding="same", groups=2), nn.BatchNorm2d(4)),
        (2, 4, 5, 3),
    ),
    "conv1d": (
        lambda: normed(nn.Conv1d(3, 5, 2, stride=2), nn.BatchNorm1d(5, affine=False)),
        (2, 3, 9),
    ),
    "conv3d": (lambda: normed(nn.Conv3d(2, 3, 2), nn.BatchNorm3d(3, eps=0.1)), (1, 2, 3, 4, 3)),
    "linear": (lambda: normed(nn.Linear(7, 5), nn.BatchNorm1d(5), nn.GELU()), (3, 7)),
    "linear without bias": (lambda: normed(nn.Linear(1, 1, bias=False), nn.BatchNorm1d(1)), (1, 1)),
}


@pytest.fixture(scope="module")
def folded() -> dict[str, Program]:
    made = {name: Program(make(), torch.randn(shape)) for name, (make, shape) in FOLDABLE.items()}
    compiled(made.values())
    return made


@pytest.mark.parametrize("name", FOLDABLE)
def test_folding_is_exact_and_removes_the_norm(folded: dict[str, Program], name: str) -> None:
    program = folded[name]
    assert "fold_batch_norm" in program.recipes
    assert not any("batch_norm" in op for op in program.externs)
    assert differences(program.run(), program.eager(), scale=5) == []


def test_folded_weights_follow_every_kind_of_update(folded: dict[str, Program]) -> None:
    program = folded["conv2d"]
    conv, norm = program.module[0], program.module[1]
    updates: list[Callable[[], object]] = [
        lambda: conv.weight.mul_(1.5),
        lambda: norm.running_var.add_(0.5),
        lambda: norm.bias.fill_(0.25),
        lambda: program.module.load_state_dict(
            {k: v * 0.5 for k, v in program.module.state_dict().items()}
        ),
        lambda: setattr(conv, "weight", nn.Parameter(torch.randn_like(conv.weight))),
        lambda: setattr(conv, "weight", nn.Parameter(torch.randn_like(conv.weight))),
        lambda: setattr(conv.bias, "data", torch.randn_like(conv.bias)),
        lambda: program.module.load_state_dict(
            {
                k: torch.rand_like(v.float()).to(v.dtype)
                for k, v in program.module.state_dict().items()
            },
            assign=True,
        ),
    ]
    for update in updates:
        before = program.run()
        with torch.no_grad():
            update()
        assert differences(program.run(), program.eager(), scale=5) == []
        assert differences(program.run(), before) != []


def test_folding_declines_if_it_would_be_wrong() -> None:
    x = torch.randn(2, 3, 5, 5)
    chain = normed(nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3))
    assert "fold_batch_norm" in proposed(chain, x)
    assert "fold_batch_norm" not in proposed(
        normed(nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3)).train(), x
    )
    assert "fold_batch_norm" not in proposed(
        normed(nn.Conv2d(3, 3, 3), nn.BatchNorm2d(3, track_running_stats=False)), x
    )
    assert "fold_batch_norm" not in proposed(
        normed(nn.Conv2d(3, 3, 3), nn.ReLU(), nn.BatchNorm2d(3)), x
    )
    assert "fold_batch_norm" not in proposed(normed(nn.Linear(5, 5), nn.BatchNorm2d(3)), x)

    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = chain[0], chain[1]

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = self.conv(x)
            return y, self.norm(y)

    assert "fold_batch_norm" not in proposed(Shared().eval(), x)


COLLAPSIBLE: dict[
    str, tuple[Callable[[torch.Tensor, nn.Linear], torch.Tensor], tuple[int, ...]]
] = {
    "sum": (lambda x, f: f(x).sum(1), (4, 6)),
    "sum keepdim": (lambda x, f: f(x).sum(-1, keepdim=True), (4, 6)),
    "mean": (lambda x, f: f(x).mean(1, keepdim=True) * 2, (1, 6)),
    "mean of 3-D": (lambda x, f: torch.sigmoid(f(x).mean(-1)), (2, 3, 6)),
    "vector": (lambda x, f: f(x).sum(0), (6,)),
    "transposed operand": (lambda x, f: f(x.transpose(0, 1)).sum(-1), (3, 2, 6)),
}


class Collapse(nn.Module):
    def __init__(self, function: Callable[..., torch.Tensor], bias: bool):
        super().__init__()
        self.fc, self.function = nn.Linear(6, 5, bias=bias), function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x, self.fc)


@pytest.fixture(scope="module")
def collapsed() -> dict[tuple[str, bool], Program]:
    made = {
        (name, bias): Program(Collapse(function, bias), torch.randn(shape))
        for (name, (function, shape)), bias in itertools.product(COLLAPSIBLE.items(), (False, True))
    }
    compiled(made.values())
    return made


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", COLLAPSIBLE)
@pytest.mark.slow
def test_collapsing_is_exact_and_removes_the_product(
    collapsed: dict[tuple[str, bool], Program], name: str, bias: bool
) -> None:
    program = collapsed[name, bias]
    assert "collapse_linear_reduction" in program.recipes and program.externs == []
    assert differences(program.run(), program.eager()) == []
    with torch.no_grad():
        program.module.fc.weight.mul_(-1.5)
    assert differences(program.run(), program.eager()) == []


@pytest.mark.parametrize(
    "function",
    [
        lambda x, f: f(x).sum(0),
        lambda x, f: f(x).sum(),
        lambda x, f: f(x).amax(1),
        lambda x, f: F.relu(f(x)).sum(1),
        lambda x, f: (f(x), f(x).sum(1)),
        lambda x, f: (lambda y: y + y.sum(1, keepdim=True))(f(x)),
        lambda x, f: f(x).sum(1, dtype=torch.float64),
        lambda x, f: F.linear(x, f.weight * 2).sum(1),
        lambda x, f: F.linear(x, f.weight, f.bias * 2).sum(1),
    ],
)
def test_collapsing_keeps_away(function: Callable[..., torch.Tensor]) -> None:
    model = Collapse(function, True)
    x = torch.randn(4, 6)
    found = proposed(model, x)
    if (
        "collapse_linear_reduction" in found
    ):  # the branch that is read twice may still leave one that is not
        program = Program(model, x)
        assert differences(program.run(), program.eager()) == []
        assert any("linear" in op for op in program.externs)


SCALED: dict[
    str, tuple[Callable[[], nn.Module], Callable[[torch.Tensor], torch.Tensor], tuple[int, ...]]
] = {
    "linear": (lambda: nn.Linear(6, 5), lambda y: y * 0.125, (4, 6)),
    "linear without bias, twice": (
        lambda: nn.Linear(6, 5, bias=False),
        lambda y: F.relu(y / 3 * -2),
        (2, 3, 6),
    ),
    "conv2d": (
        lambda: nn.Conv2d(4, 6, 3, padding=1, groups=2),
        lambda y: (y * 3).sin(),
        (2, 4, 5, 3),
    ),
    "conv1d in float64": (lambda: nn.Conv1d(3, 4, 2).double(), lambda y: y / 7.0, (1, 3, 9)),
}


class Scaled(nn.Module):
    def __init__(self, first: nn.Module, function: Callable[[torch.Tensor], object]):
        super().__init__()
        self.first, self.function = first, function

    def forward(self, x: torch.Tensor) -> object:
        return self.function(self.first(x))


@pytest.fixture(scope="module")
def scaled() -> dict[str, Program]:
    torch.manual_seed(0)
    found = {}
    for name, (make, function, shape) in SCALED.items():
        first = make()
        found[name] = Program(
            Scaled(first, function), torch.randn(shape, dtype=next(first.parameters()).dtype)
        )
    compiled(found.values())
    return found


@pytest.mark.parametrize("name", SCALED)
def test_factors_go_into_the_weights_and_follow_them(scaled: dict[str, Program], name: str) -> None:
    program = scaled[name]
    assert "fold_scale" in program.recipes
    assert not {"mul", "div"} & {
        node.op.split(".")[1] for node in program.composition.graph.nodes if "." in node.op
    }
    assert differences(program.run(), program.eager(), scale=5) == []
    before = program.run()
    with torch.no_grad():
        program.module.first.weight.mul_(-1.5)
    assert (
        differences(program.run(), program.eager(), scale=5) == []
        and differences(program.run(), before) != []
    )


@pytest.mark.parametrize(
    "function",
    [
        lambda y: y * 1e9,
        lambda y: y / 0,
        lambda y: y * y,
        lambda y: y + 2,
        lambda y: (y, y * 2),
        lambda y: 2 / y,
        lambda y: torch.div(y, 3, rounding_mode="floor"),
        lambda y: y * torch.ones(5),
        lambda y: F.relu(y) * 2,
        lambda y: y * 5e3 * 5e3,
        lambda y: y / 5e3 / 5e3,
    ],
)
def test_other_factors_stay(function: Callable[[torch.Tensor], object]) -> None:
    assert "fold_scale" not in proposed(Scaled(nn.Linear(6, 5), function), torch.randn(4, 6))


def test_factors_of_half_types_and_of_made_weights_stay() -> None:
    half = Scaled(nn.Linear(6, 5).bfloat16(), lambda y: y * 2)
    assert "fold_scale" not in proposed(half, torch.randn(4, 6, dtype=torch.bfloat16))
    made = Collapse(lambda x, f: F.linear(x, f.weight.sin()) * 2, True)
    assert "fold_scale" not in proposed(made, torch.randn(4, 6))
