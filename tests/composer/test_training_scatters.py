"""Gradients that add several rows into one: the same bits at every call where `torch.use_deterministic_algorithms` asks for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from tests.composer.training_steps import TrainingDropIn, errors

HEAD = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(37, 16, padding_idx=0)
        self.bag = nn.EmbeddingBag(37, 16, mode="mean")

    def forward(self, places, x):
        return {text}
"""
CASES = {
    "embedding": "torch.tanh(self.table(places)) * x",
    "index": "torch.tanh(self.table.weight[places]) + x",
    "bag": "torch.tanh(self.bag(places)) + x",
    "gather": "x.gather(1, places % 16).exp()",
}


@pytest.fixture
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.slow
@pytest.mark.usefixtures("deterministic")
@pytest.mark.parametrize("name", CASES)
def test_rows_are_added_in_one_order(name: str) -> None:
    torch.manual_seed(0)
    places = torch.randint(0, 37, (30, 50) if name == "bag" else (50, 30))
    shape = {"bag": (30, 16), "gather": (50, 16)}.get(name, (50, 30, 16))
    block = TrainingDropIn(HEAD.replace("{text}", CASES[name]), places, torch.randn(shape))
    first, second = block.gradients(True), block.gradients(True)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert block.runs == {"run": 2, "back": 2}
    found = errors(block)
    assert all(new <= 4 * eager + 1e-6 for eager, new in found.values()), found
