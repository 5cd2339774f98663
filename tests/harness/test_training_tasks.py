"""Training tasks: gradients decide, and a timed call is forward and backward."""

from __future__ import annotations

from pathlib import Path

import pytest

from dvk.harness import judge
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
