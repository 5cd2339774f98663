"""Training tasks: gradients decide, and a timed call is forward and backward."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from dvk.harness import judge
from dvk.harness.processes.training_step import TrainingStep
from dvk.harness.transport.calls import call, describe
from dvk.records import Candidate, Status
from dvk.tasks import load
from tests.harness.conftest import QUICK

FILE = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(64))
        self.fixed = nn.Parameter(torch.rand(64), requires_grad=False)

    def forward(self, x):
        return torch.tanh(x * self.gain) + self.fixed
"""
CALL = """

def get_inputs():
    return [torch.randn(32, 64)]


def get_init_inputs():
    return []
"""
SLOW_BACKWARD = """
class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        for _ in range(200):
            torch.mm(torch.ones(128, 128), torch.ones(128, 128))
        return grad
"""


def new(result: str) -> str:
    """A candidate's text with another result."""
    text = FILE.replace("class Model(", "class ModelNew(")
    return SLOW_BACKWARD.join(["import torch\n", text]).replace(
        "torch.tanh(x * self.gain) + self.fixed", result
    )


@pytest.mark.slow
def test_gradients_are_compared_and_timed(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(FILE + CALL)
    task = load(str(path), train=True)
    assert task.train and task.id != load(str(path)).id
    results = {
        "right": "torch.tanh(x * self.gain) + self.fixed",
        "no gradient of the weight": "torch.tanh(x * self.gain.detach()) + self.fixed",
        "no gradient of the input": "torch.tanh(x.detach() * self.gain) + self.fixed",
        "slow": "Slow.apply(torch.tanh(x * self.gain) + self.fixed)",
    }
    candidates = [
        Candidate(source=new(text), backend="cpp", proposer="user", title=name)
        for name, text in results.items()
    ]
    verdicts = dict(zip(results, judge(task, candidates, config=QUICK), strict=True))
    assert verdicts["right"].status is Status.OK, verdicts["right"].error
    for name, leaf in (("weight", "weight_grads.gain"), ("input", "input_grads.0")):
        wrong = verdicts[f"no gradient of the {name}"]
        assert wrong.status is Status.MISMATCH and leaf in str(wrong.error)
    slow = verdicts["slow"]
    assert slow.status is Status.OK and slow.timing is not None
    assert slow.timing.speedup.value < 0.5


class Many(nn.Module):
    """Results of several forms: `form` picks one."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.linspace(0.5, 1.5, 4))
        self.form = form

    def forward(self, x: torch.Tensor, ids: torch.Tensor, more: dict[str, torch.Tensor]) -> object:
        y = x * self.gain + ids + more["bias"]
        return {"one": y, "pair": (y, y.sum()), "nested": {"a": [y], "b": ids}, "list": [y, None]}[
            self.form
        ]


@pytest.mark.parametrize("form", ["one", "pair", "nested", "list"])
def test_a_timed_step_answers_as_a_checked_call(form: str) -> None:
    model = Many(form)
    args = [torch.rand(3, 4), torch.arange(4), {"bias": torch.rand(4)}]
    along: list[torch.Tensor] = []
    want = call(model, args, {}, 1, backward=True, along=along)
    got = TrainingStep(model, model, lambda: along)(*args)
    (leaves, text), (others, other) = describe(got), describe(want)
    assert text == other and not any(t.requires_grad for t in leaves if torch.is_tensor(t))
    pairs = zip(leaves, others, strict=True)
    assert all(torch.equal(a, b) if torch.is_tensor(a) else a == b for a, b in pairs)


def test_a_timed_step_adds_few_calls_of_python() -> None:
    """What surrounds forward and backward is on the clock: a walk through PyTorch's trees would be hundreds of calls."""
    model = nn.LayerNorm(8)
    x = torch.randn(2, 8)
    step = TrainingStep(model, model, lambda: [torch.ones(2, 8)])
    step(x)

    def plain(given: torch.Tensor) -> None:
        leaf = given.detach().requires_grad_(True)
        torch.autograd.grad([model(leaf)], [leaf, *model.parameters()], [torch.ones(2, 8)])

    counts = []
    for function in (step, plain):
        function(x)
        calls: list[str] = []
        sys.setprofile(lambda _, event, __, calls=calls: calls.append(event))  # type: ignore[misc]
        try:
            function(x)
        finally:
            sys.setprofile(None)
        counts.append(sum(event == "call" for event in calls))
    assert counts[0] - counts[1] < 40, counts
