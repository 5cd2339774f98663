"""Recipes: exact where they are proposed, not proposed where they would not be, and weights stay live."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dvk.composer import RECIPES, applicable
from dvk.composer.ir.effects import draws
from dvk.records import Node
from tests.composer.programs import Program, capture, compiled, differences
from tests.composer.proposals import proposed

DEAD: list[Callable[[torch.Tensor], object]] = [
    lambda x: F.relu(F.relu(x)) + 1,
    lambda x: (x * 1 + 0) / 2,
    lambda x: F.dropout(x * 2, 0.5, training=False).sin(),
    lambda x: F.relu(torch.sigmoid(x)) * 3,
    lambda x: torch.abs(torch.exp(x)) - 1,
    lambda x: (x - 0).sum(0),
    lambda x: (x**1).exp(),
    lambda x: x.to(torch.float32).cos(),
    lambda x: F.dropout(x, 0.0, training=True) * 2,
    lambda x: x.double().float().exp(),
    lambda x: (x > 0).float().bool().cumsum(0),
    lambda x: F.relu(x).clamp_min(0) + 1,
    lambda x: x.clamp(-1, 2).clamp(-1, 3) + 1,
    lambda x: F.relu6(F.hardtanh(x, 0.5, 4.0)) + 1,
    lambda x: x.sigmoid().clamp(0, 1) + 1,
    lambda x: x.clamp(min=3, max=1).clamp_max(1) + 1,
    lambda x: x.square().clip(min=0).abs() + 1,
]


def test_dead_operators_go_and_nothing_changes() -> None:
    x = torch.tensor([[-2.0, -0.0, 0.0, 1.5], [float("inf"), float("-inf"), float("nan"), 1e-40]])
    programs = compiled(Program(f, x) for f in DEAD)
    for program in programs:
        assert "dead_code" in program.recipes
        assert len(program.composition.graph.nodes) < len(program.graph.nodes)
        assert differences(program.run(), program.eager()) == []


@pytest.mark.parametrize(
    "function, x",
    [
        (lambda x: x.round(decimals=1).round() + 1, torch.tensor([0.24, 1.26])),
        (
            lambda x: x.clamp(0, 100).clamp(min=-1) + 1,
            torch.tensor([0, 50, 255], dtype=torch.uint8),
        ),
        (
            lambda x: x.clamp(min=2**53).clamp(min=2**53 + 1) + 1,
            torch.tensor([5, 2**53, 2**53 + 2]),
        ),
    ],
)
def test_apparent_repetitions_stay(
    function: Callable[[torch.Tensor], object], x: torch.Tensor
) -> None:
    program = Program(function, x)
    assert differences(program.run(), program.eager()) == []


def test_a_cast_there_and_back_between_two_calls_costs_no_kernel() -> None:
    program = Program(
        lambda x, w: F.linear(F.linear(x, w).float().bfloat16(), w),
        *(torch.randn(4, 4).bfloat16() for _ in range(2)),
    )
    assert "dead_code" in program.recipes and not program.kernels and len(program.externs) == 2
    assert differences(program.run(), program.eager()) == []


def aliased(x: torch.Tensor) -> torch.Tensor:
    return (x * 1).view(-1)


def written(x: torch.Tensor) -> torch.Tensor:
    y = x * 1
    y.view(-1).add_(1)
    return y * 2


def written_after(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    wide = y.double()
    before = wide.float()
    y.view(-1).add_(1)
    return before * y


def returned_twice(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    a = F.relu(x)
    return a, F.relu(a).view(-1)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * 1,
        lambda x: x.double().float(),
        aliased,
        written,
        written_after,
        returned_twice,
    ],
)
def test_dead_code_never_makes_an_alias_or_writes_an_input(
    function: Callable[[torch.Tensor], object],
) -> None:
    x = torch.randn(3, 4)
    program = Program(function, x, recipes=("dead_code", "fuse_pointwise"))
    kept = x.clone()
    want = program.eager()
    assert torch.equal(x, kept)
    got = program.run()
    assert torch.equal(x, kept) and differences(got, want) == []
    tensors = [t for t in torch.utils._pytree.tree_leaves(got)]
    addresses = [x.data_ptr(), *(t.data_ptr() for t in tensors)]
    assert len(set(addresses)) == len(addresses)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * 1.5,
        lambda x: x + 1,
        lambda x: F.dropout(x, 0.5),
        lambda x: F.relu(-x),
        lambda x: x / x,
        lambda x: torch.abs(x.sin()),
        lambda x: x * torch.ones(3, 1),
        lambda x: x.to(torch.float64),
        lambda x: x.half().float(),
        lambda x: x.long().int().double().float(),
        lambda x: x.clamp(-1, 2).clamp(-1, 1.5),
        lambda x: x.clamp(min=3, max=1).clamp_min(2),
        lambda x: x.clamp(x.amin(), 2).clamp_max(1),
        lambda x: F.relu(x).clamp_min(1),
        lambda x: x.int().square().clamp_min(0),
        lambda x: x.int().abs().relu(),
        lambda x: x.tanh().clamp_min(-0.5),
    ],
)
def test_operators_with_an_effect_are_not_dead(
    function: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    assert "dead_code" not in proposed(lambda x: function(x).sum(), torch.randn(4))


REPEATED: list[tuple[Callable[..., object], int]] = [
    (lambda x: torch.sigmoid(x).cumsum(0) + torch.sigmoid(x).cumsum(0) * 2, 2),
    (lambda x: x.t().sort(0)[0].sum() + x.t().sort(0)[1].sum(), 4),
    (lambda x: (x.cumsum(0), torch.relu(x.cumsum(0))), 1),
    (lambda x: torch.relu(x.cumsum(0)) + (x.cumsum(1) + x.cumsum(1, dtype=torch.float64)), 0),
    (lambda x: (F.layer_norm(x, (4,)) + F.layer_norm(x, (4,), eps=1e-3)).cumsum(0), 0),
]
"""With the number of operators that are one too many."""


def test_repeated_operators_run_once_and_nothing_changes() -> None:
    x = torch.tensor([[-2.0, -0.0, 0.0, 1.5], [float("inf"), float("-inf"), float("nan"), 1e-40]])
    programs = compiled(Program(f, x) for f, _ in REPEATED)
    for program, (_, spared) in zip(programs, REPEATED, strict=True):
        assert ("common_subexpressions" in program.recipes) == bool(spared)
        assert len(program.graph.nodes) - len(program.composition.graph.nodes) == spared
        assert differences(program.run(), program.eager()) == []


def same_twice(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x.cumsum(0), x.cumsum(0), x.cumsum(0).view(-1), x.cumsum(0) * 2


def written_between(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    before = y.view(-1).sin()
    y.view(-1).add_(1)
    return before + y.view(-1).sin()


@pytest.mark.parametrize("function", [same_twice, written_between])
def test_repetitions_never_become_one_tensor_or_cross_a_write(
    function: Callable[[torch.Tensor], object],
) -> None:
    x = torch.randn(3, 4)
    program = Program(function, x, recipes=("common_subexpressions", "fuse_pointwise"))
    want, got = program.eager(), program.run()
    assert differences(got, want) == []
    addresses = [x.data_ptr(), *(t.data_ptr() for t in torch.utils._pytree.tree_leaves(got))]
    assert len(set(addresses)) == len(addresses)


def test_random_numbers_are_drawn_as_often_as_before() -> None:
    assert "common_subexpressions" not in proposed(
        lambda x: F.dropout(x, 0.5) + F.dropout(x, 0.5) * 2, torch.randn(4)
    )

    def repeated(draw: Callable[[torch.Tensor], torch.Tensor]) -> bool:
        return "common_subexpressions" in proposed(
            lambda x: draw(x) + draw(x) * 2, torch.ones(1, 4, 8)
        )

    for draw in (
        torch.rand_like,
        lambda x: torch.normal(x, 1.0),
        lambda x: torch.binomial(x, x),
        torch._standard_gamma,
    ):
        assert not repeated(draw)
    assert repeated(lambda x: F.scaled_dot_product_attention(x, x, x))
    assert not repeated(lambda x: F.scaled_dot_product_attention(x, x, x, dropout_p=0.5))


DROPPING = {
    "scaled_dot_product_attention",
    "rrelu_with_noise",
    "rrelu_with_noise_",
    "rrelu_with_noise_functional",
    "miopen_rnn",
}
"""Operators that draw where they are given a probability or train."""


def test_modules_that_draw_random_numbers_are_detected() -> None:
    seeded = set()
    for schema in torch._C._jit_get_all_schemas():
        name = schema.name.removeprefix("aten::")
        packet = (
            getattr(torch.ops.aten, name, None)
            if name != schema.name and not name.startswith("_")
            else None
        )
        operator = getattr(packet, schema.overload_name or "default", None)
        if operator is not None and torch.Tag.nondeterministic_seeded in operator.tags:
            seeded.add(name)
    assert len(seeded) > 40
    assert {name for name in seeded if not draws(Node(name="v0", op=f"aten.{name}.default"))} <= {
        "rrelu",
        "rrelu_",
        *DROPPING,
    }


def test_a_random_operator_runs_even_when_its_result_is_unused() -> None:
    def draws(x: torch.Tensor) -> torch.Tensor:
        torch.normal(x, 1.0)
        return F.dropout(x, 0.5) * 2

    program = Program(draws, torch.randn(64))
    torch.manual_seed(3)
    want = program.eager()
    torch.manual_seed(3)
    assert differences(program.run(), want) == []


@pytest.mark.parametrize(("training", "dropout"), [(False, 0.1), (True, 0.1), (True, 0.0)])
def test_dropout_of_nothing_can_be_replayed(training: bool, dropout: float) -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=dropout, batch_first=True).train(training)
    graph = capture(layer, torch.randn(2, 5, 16)).graph
    assert any("dropout" in node.op for node in graph.nodes)
    assert ("cuda_graph" in applicable(graph, "cuda", "triton")) is not (training and dropout > 0)


class Net(nn.Module):
    def __init__(self, tail: Callable[[torch.Tensor], object]):
        super().__init__()
        self.a, self.b, self.norm, self.tail = (
            nn.Conv2d(3, 8, 3, padding=1),
            nn.Conv2d(8, 6, 1),
            nn.BatchNorm2d(8),
            tail,
        )

    def forward(self, x: torch.Tensor) -> object:
        return self.tail(self.b(F.silu(self.norm(self.a(x)))))


TAILS: dict[str, Callable[[torch.Tensor], object]] = {
    "the convolution itself": lambda y: y,
    "a pointwise result": lambda y: torch.sigmoid(y) + 1,
    "a view of the convolution": lambda y: y.flatten(2),
    "a view of a pointwise result": lambda y: F.relu(y).view(y.shape[0], -1),
    "a transposed view": lambda y: F.relu(y).permute(0, 2, 3, 1),
    "a pool": lambda y: F.max_pool2d(y, 2),
    "a reduction": lambda y: y.mean((2, 3)),
    "several": lambda y: (y, F.relu(y), {"pool": F.avg_pool2d(y, 2)}),
    "a channel slice": lambda y: y[:, :3] * y[:, 3:],
    "a norm": lambda y: F.group_norm(y, 2),
    "a chunk": lambda y: y.chunk(2, 1),
}


@pytest.fixture(scope="module")
def relaid() -> dict[str, Program]:
    torch.manual_seed(0)
    made = {
        name: Program(Net(tail).eval(), torch.randn(2, 3, 5, 7)) for name, tail in TAILS.items()
    }
    compiled(made.values())
    return made


@pytest.mark.parametrize("name", TAILS)
def test_channels_last_keeps_values_and_the_layout_of_results(
    relaid: dict[str, Program], name: str
) -> None:
    program = relaid[name]
    assert {"channels_last", "fold_batch_norm"} <= set(program.recipes)
    assert differences(program.run(), program.eager(), scale=5) == []


@pytest.mark.parametrize(
    "recipes",
    [
        ("channels_last",),
        ("channels_last", "fuse_epilogue"),
        ("fold_batch_norm",),
        ("fuse_rowwise",),
        (),
        ("channels_last", "fuse_epilogue", "inplace_epilogue"),
        ("fuse_pointwise",),
        ("fuse_epilogue",),
    ],
)
def test_any_subset_of_recipes_composes(
    relaid: dict[str, Program], recipes: tuple[str, ...]
) -> None:
    for program in compiled(
        program.under(recipes=recipes) for program in list(relaid.values())[::2]
    ):
        assert differences(program.run(), program.eager(), scale=5) == []


def test_channels_last_input_is_not_copied() -> None:
    x = torch.randn(2, 3, 5, 7).contiguous(memory_format=torch.channels_last)
    program = Program(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), x)
    assert "x0.contiguous" not in program.text and differences(program.run(), program.eager()) == []


def test_channels_last_needs_a_2d_convolution() -> None:
    assert "channels_last" not in proposed(
        nn.Sequential(nn.Conv1d(3, 4, 3), nn.ReLU()), torch.randn(2, 3, 9)
    )
    assert "channels_last" not in proposed(
        nn.Sequential(nn.Linear(3, 4), nn.ReLU()), torch.randn(2, 3)
    )


def test_an_epilogue_overwrites_a_library_result_only_without_other_readers() -> None:
    fc = nn.Linear(6, 6)

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = fc

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y = self.fc(x)
            return F.relu(y) + 1, y.cumsum(0)

    once, twice = compiled(
        [
            Program(nn.Sequential(fc, nn.ReLU()), torch.randn(5, 6)),
            Program(Twice(), torch.randn(5, 6)),
        ]
    )
    assert "dvk_allocate" not in once.text and "dvk_allocate" in twice.text
    for program in (once, twice):
        assert differences(program.run(), program.eager()) == []


def test_every_recipe_says_when_it_is_exact() -> None:
    for name, recipe in RECIPES.items():
        assert (
            recipe.name == name
            and recipe.condition
            and recipe.kind in ("graph", "fusion", "host", "schedule")
        )
