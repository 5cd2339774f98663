"""Training drop-ins under torch.compile: both programs are operators, the backward the registered derivative of the forward."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.composer.programs import differences
from tests.composer.training_steps import TrainingDropIn

BLOCK = """
import torch
from torch import nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.up = nn.Linear(16, 24)
        self.gain = nn.Parameter(torch.rand(24), requires_grad=False)

    def forward(self, x, skip):
        y = F.gelu(self.up(self.norm(x))) * self.gain
        return y, skip.tanh(), (x > 0).float()
"""


@pytest.fixture(scope="module")
def block() -> TrainingDropIn:
    torch.manual_seed(0)
    return TrainingDropIn(BLOCK, torch.randn(9, 16), torch.randn(9, 16))


@pytest.fixture(autouse=True)
def fresh(block: TrainingDropIn, monkeypatch: pytest.MonkeyPatch) -> None:
    torch._dynamo.reset()
    monkeypatch.setitem(sys.modules, block.module.__name__, block.module)
    for model in (block.new, block.model):
        model.gain.requires_grad_(False)
    operators(block)[0].calls = operators(block)[1].calls = 0


def operators(block: TrainingDropIn) -> tuple[Any, Any]:
    """The forward's and the backward's operator."""
    known = torch.ops.__dict__["_dvk_operators"]
    forward = vars(block.module)["_dvk_operator_1"]
    return known[forward.name], known[f"{forward.name}_back"]


def stepped(model: nn.Module, run: Callable[..., Any], block: TrainingDropIn) -> list[Any]:
    model.zero_grad(set_to_none=True)
    x, skip = (t.clone().requires_grad_(True) for t in block.args)
    y, z, flags = run(x, skip)
    (y.exp().sum() + z.sum()).backward()
    grads = [weight.grad for weight in model.parameters() if weight.grad is not None]
    return [y, z, flags, x.grad, skip.grad, *grads]


@pytest.mark.slow
def test_a_compiled_step_is_one_graph_with_the_kernels(block: TrainingDropIn) -> None:
    compiled = torch.compile(block.new, backend="aot_eager", fullgraph=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*the original is compiled.*")
        got = stepped(block.new, compiled, block)
    assert differences(got, stepped(block.model, block.model, block)) == []
    assert [one.calls for one in operators(block)] == [1, 1] and not got[2].requires_grad


def test_inside_a_compiled_model(block: TrainingDropIn) -> None:
    def around(inner: nn.Module) -> Callable[..., Any]:
        return lambda x, skip: inner(x.sin(), skip * 2)

    compiled = torch.compile(around(block.new), backend="aot_eager", fullgraph=True)
    got = stepped(block.new, compiled, block)
    assert differences(got, stepped(block.model, around(block.model), block)) == []
    assert [one.calls for one in operators(block)] == [1, 1]


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed(block: TrainingDropIn, reentrant: bool) -> None:
    def run(model: nn.Module) -> list[Any]:
        return stepped(
            model, lambda x, skip: checkpoint(model, x, skip, use_reentrant=reentrant), block
        )

    block.runs.update(run=0, back=0)
    assert differences(run(block.new), run(block.model)) == []
    assert block.runs == {"run": 2, "back": 1}


def test_a_weight_that_was_frozen_compiles_the_original(block: TrainingDropIn) -> None:
    for model in (block.new, block.model):
        model.gain.requires_grad_(True)
    compiled = torch.compile(block.new, backend="aot_eager", fullgraph=True)
    got = stepped(block.new, compiled, block)
    assert differences(got, stepped(block.model, block.model, block)) == []
    assert [one.calls for one in operators(block)] == [0, 0] and block.new.gain.grad is not None


def test_opcheck(block: TrainingDropIn) -> None:
    forward, backward = operators(block)
    for one in (forward, backward):
        given = [
            torch.randn(shape).as_strided(shape, strides).to(dtype).detach()
            for shape, strides, dtype in one.layouts[0]
        ]
        if one is forward:
            given = [t.requires_grad_(True) for t in given]
        space, _, name = one.name.partition("::")
        operator = getattr(getattr(torch.ops, space), name).default
        torch.library.opcheck(operator, tuple(given))


@pytest.mark.slow
def test_a_step_that_writes_buffers_compiles_the_original() -> None:
    torch.manual_seed(0)
    text = BLOCK.replace("nn.LayerNorm(16)", "nn.BatchNorm1d(16)")
    block = TrainingDropIn(text, torch.randn(9, 16), torch.randn(9, 16))
    compiled = torch.compile(block.new, backend="aot_eager", fullgraph=True)
    with pytest.warns(UserWarning, match="it writes arguments or buffers"):
        got = stepped(block.new, compiled, block)
    assert differences(got, stepped(block.model, block.model, block)) == []
