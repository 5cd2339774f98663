"""float16 between fused operators: infinite and NaN where PyTorch's memory holds infinities, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from dvk.composer import applicable
from dvk.composer.ir.nodes import View
from dvk.composer.lowering.magnitude import magnitude_bound
from dvk.composer.lowering.whole_graph import lower
from dvk.records import Graph
from tests.composer.programs import Program, capture, compiled, leaves

HALF = torch.float16
VALUES = torch.tensor([1, 200, 300, -300, 6e4, -6e4, 5, 12, 0, -2, 255.9, 30.5], dtype=HALF).expand(
    3, 12
) * torch.tensor([[1.0], [0.25], [0.01]], dtype=HALF)
ODD = VALUES.index_fill(1, torch.tensor([4]), torch.inf).index_fill(1, torch.tensor([7]), torch.nan)
GROWING: dict[str, Callable[[torch.Tensor], Any]] = {
    "product": lambda x: (x * x) * 1e-3,
    "difference": lambda x: (x * x) - (x * x),
    "sum": lambda x: (x + x) - x,
    "quotient": lambda x: (x / 0.001) * 0.001,
    "exp": lambda x: torch.exp(x) * 1e-3,
    "square root of a square": lambda x: torch.sqrt(x.square()),
    "power": lambda x: x**3 / 1000,
    "cosh": lambda x: torch.cosh(x).log(),
    "softplus": lambda x: F.softplus(x) * 3,
    "silu": lambda x: F.silu(x) * 2 / 2,
    "addcmul": lambda x: torch.addcmul(x, x, x) * 0.001,
    "hypot": lambda x: torch.hypot(x, x) * 0.1,
    "cast": lambda x: (x.float() * 100).half() * 0.01,
    "choice": lambda x: torch.where(x > 0, x * x, x) * 0.01,
    "rms norm by hand": lambda x: x / torch.sqrt((x * x).mean(1, keepdim=True)),
    "row sum": lambda x: x.abs().sum(1, keepdim=True) * 1e-3 + x,
    "row product": lambda x: x[:, :8].prod(1) * 0.01,
    "variance": lambda x: x.var(1) * 0.001,
    "length": lambda x: torch.linalg.vector_norm(x, 2, 1) * 0.01,
    "layer norm": lambda x: F.layer_norm(x * x, (12,)),
    "softmax": lambda x: torch.softmax(x * x, 1),
    "logsumexp": lambda x: torch.logsumexp(x * x, 1),
    "squared error": lambda x: F.mse_loss(x, -x, reduction="none") * 0.001,
    "running sum": lambda x: x.abs().cumsum(1) * 0.01,
    "linear": lambda x: F.linear(x, torch.ones(5, 12, dtype=HALF)) * 0.01,
    "matrix product": lambda x: (x[:, :4] @ torch.full((4, 6), 3.0, dtype=HALF)) * 0.01,
    "pooling": lambda x: F.max_pool1d((x * x)[None], 2) * 0.01,
    "padding": lambda x: F.pad(x * 4, (1, 1)) * 0.25,
    "transposed": lambda x: (x * x).t() * 0.001,
    "gate": lambda x: (lambda a, b: a * F.silu(b) * 0.01)(*(x * x).chunk(2, 1)),
    "joined": lambda x: torch.cat([x * x, x], 1) * 0.01,
    "rolled": lambda x: (x * x).roll(1, 1) * 0.01,
    "returned as well": lambda x: (x * x, (x * x) * 0.001),
}


def every_recipe(graph: Graph) -> tuple[str, ...]:
    return tuple(applicable(graph, "cpu", "cpp"))


def apart(program: Program, x: torch.Tensor) -> list[str]:
    """Elements whose NaN and infinities differ from eager's."""
    found = []
    for number, (got, want) in enumerate(
        zip(leaves(program.run(x)), leaves(program.eager(x)), strict=True)
    ):
        same = (
            (got.isnan() == want.isnan())
            & (got.isinf() == want.isinf())
            & ((got == want) | ~want.isinf())
        )
        found += (
            [f"#{number}: {got[~same][0].item()} instead of {want[~same][0].item()}"]
            if not same.all()
            else []
        )
        torch.testing.assert_close(
            got[want.isfinite() & same], want[want.isfinite() & same], rtol=4e-3, atol=1e-3
        )
    return found


@pytest.mark.slow
def test_overflow_between_operators_is_infinite() -> None:
    every = {name: Program(f, VALUES, recipes=every_recipe) for name, f in GROWING.items()}
    compiled(every.values())
    assert all(program.kernels for program in every.values())
    found = {
        name: text
        for name, program in every.items()
        for x in (VALUES, ODD)
        if (text := apart(program, x))
    }
    assert found == {}


@pytest.mark.parametrize(
    "function",
    [
        F.relu,
        F.gelu,
        torch.tanh,
        lambda x: x * torch.sigmoid(x),
        lambda x: x.amax(1),
        lambda x: x.mean(1),
        lambda x: x * 0.5,
    ],
)
def test_values_that_cannot_overflow_are_not_rounded(
    function: Callable[[torch.Tensor], Any],
) -> None:
    program = Program(lambda x: function(x) * 0.5, VALUES)
    assert not any(i.op == "cast_float16" for kernel in program.kernels for i in kernel.instrs)


def test_other_types_are_not_rounded() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        program = Program(lambda x: torch.exp(x * x) * 0.5, VALUES.to(dtype))
        assert not any(i.op.startswith("cast") for kernel in program.kernels for i in kernel.instrs)


def test_bounds_hold() -> None:
    """The largest values there are never exceed a bound."""
    extreme = torch.tensor([65504.0, -65504.0, 1.0, -1.0, 0.0, 250.0, 6e-8], dtype=HALF)
    functions = [
        f
        for f in (
            F.relu,
            F.gelu,
            F.silu,
            torch.tanh,
            torch.neg,
            torch.sin,
            F.hardtanh,
            F.relu6,
            F.leaky_relu,
            torch.round,
        )
    ]
    for function in functions:
        graph = capture(function, extreme).graph
        value = lower(graph).values[graph.nodes[-1].name]
        assert isinstance(value, View)
        assert function(extreme.double()).abs().max() <= magnitude_bound(value.base, {})


def test_attention_whose_scores_overflow_is_made_as_it_was_written() -> None:
    q, k, v = (
        torch.linspace(-1, 1, 2 * 3 * 8 * 16).roll(n).reshape(2, 3, 8, 16).half()
        for n in (0, 5, 11)
    )
    program = Program(
        lambda q, k, v: torch.softmax(q @ k.transpose(-1, -2) * 0.25, -1) @ v,
        q,
        k,
        v,
        recipes=every_recipe,
    )
    assert "attention" in program.recipes
    for size in (1.0, 200.0):
        got, want = program.run(q * size, k * size, v), program.eager(q * size, k * size, v)
        assert bool(want.isnan().any()) is (size > 1)
        torch.testing.assert_close(got, want, rtol=4e-3, atol=4e-3, equal_nan=True)


def test_layers_that_overflow_are_folded_only_when_asked_for() -> None:
    norm = torch.nn.BatchNorm2d(4)
    norm.weight.data.fill_(0.01)
    convolution = torch.nn.Conv2d(3, 4, 3)
    linear = torch.nn.Linear(12, 5)
    for weight in (convolution.weight, linear.weight):
        weight.data.fill_(1.0)

    class Collapsed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = linear

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x).mean(-1)

    cases = {
        "fold_batch_norm": (torch.nn.Sequential(convolution, norm), torch.full((2, 3, 6, 6), 6e3)),
        "collapse_linear_reduction": (Collapsed(), torch.full((3, 12), 6e3)),
    }
    for name, (module, x) in cases.items():
        assert name in every_recipe(capture(module.float().eval(), x).graph)
        module.half()
        graph = capture(module, x.half()).graph
        assert not {name, f"{name}_finite"} & set(every_recipe(graph))
        assert f"{name}_finite" in applicable(graph, "cpu", "cpp", inexact=True)
        program = Program(module, x.half(), recipes=every_recipe)
        assert program.eager().isinf().all() and apart(program, x.half()) == []
        asked = Program(
            module,
            x.half(),
            recipes=("dead_code", f"{name}_finite", "fuse_pointwise", "fuse_rowwise"),
        )
        torch.testing.assert_close(
            asked.run(x.half() / 100), asked.eager(x.half() / 100), rtol=4e-3, atol=1e-3
        )
