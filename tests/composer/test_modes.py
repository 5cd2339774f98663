"""A graph depends only on the modes that forward reads: a drop-in stays fused if nothing depends on the mode."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from dvk.composer.capture import reads
from dvk.composer.capture.export import trace_module
from dvk.composer.capture.modes import depending
from tests.composer.dropins import Counting

PLAIN = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(8, 8), nn.LayerNorm(8)

    def forward(self, x):
        return torch.sigmoid(self.norm(self.linear(x))) * x
"""
TIED = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))
        self.norm, self.act = nn.LayerNorm(8), nn.ReLU()

    def forward(self, x):
        return torch.sigmoid(self.act(self.norm(self.inner(x)))) * x
"""
OWN = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(torch.sigmoid(x) * x) if self.training else x * 2
"""


class Every(nn.Module):
    """Layers that depend on their mode, and some that might but, as constructed here, do not."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.drop, self.act = nn.BatchNorm1d(8), nn.Dropout(0.1), nn.RReLU()
        self.no_drop, self.recurrent, self.plain = (
            nn.Dropout(0.0),
            nn.GRU(8, 8, batch_first=True),
            nn.LayerNorm(8),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.act(self.no_drop(self.drop(self.norm(self.plain(x)))))
        return y + 1 if self.training else y


@pytest.fixture(autouse=True)
def inference() -> Iterator[None]:
    with torch.no_grad():
        yield


def test_only_modes_that_forward_reads_are_seen() -> None:
    captured = trace_module(Every(), [torch.rand(4, 8)], ["x"])
    assert captured.modes == dict.fromkeys(("", "norm", "drop", "act"), True)
    assert captured.depending == (
        "the module's own forward()",
        "BatchNorm1d `norm`",
        "Dropout `drop`",
        "RReLU `act`",
    )
    assert depending(Every(), {"recurrent": True, "no_drop": True}) == ()
    still = trace_module(Every().eval(), [torch.rand(4, 8)], ["x"])
    assert set(still.modes.values()) == {False} and still.depending == ()
    assert still.facts.keys() == captured.facts.keys()
    assert (
        still.facts["plain"] == captured.facts["plain"] and "training" not in still.facts["plain"]
    )
    assert "__getattribute__" not in vars(nn.Module), "modules are as they were"


def test_modules_of_other_kinds_keep_their_mode_while_reads_are_seen() -> None:
    scripted = torch.jit.script(nn.Sequential(nn.Dropout(0.5)))  # type: ignore[no-untyped-call]
    model = nn.ModuleDict({"scripted": scripted, "plain": nn.Dropout(0.5)})
    with reads.recording(model) as read:
        model.eval()
        assert scripted.training is False and model["plain"].training is False
    assert reads.modes(model, read)["plain"] is False and depending(model, {"plain": False}) == ()
    assert model["plain"].training is False


@pytest.mark.parametrize("training", [True, False])
def test_a_drop_in_whose_graph_rests_on_no_mode_is_fused_in_both(training: bool) -> None:
    x = torch.randn(16, 8)
    block = Counting(PLAIN, x, training=training)
    for mode in (training, not training, training):
        block.new.train(mode)
        ran, found = block.fused(x)
        assert ran and torch.allclose(found, block.reference.train(mode)(x), atol=1e-5)
    block.new.norm.train(not training)
    assert block.fused(x)[0], "nor is a part's mode asked for"


def test_a_drop_in_runs_the_original_where_a_mode_that_counts_is_another() -> None:
    x = torch.randn(16, 8)
    block = Counting(TIED, x)
    assert block.fused(x)[0]
    block.new.act.train()
    assert block.fused(x)[0], "a ReLU has no mode that counts"
    block.new.inner[1].train()
    assert not block.fused(x)[0]
    block.new.inner[1].eval()
    assert block.fused(x)[0]
    assert not block.fused(x, model=block.new.train())[0]
    assert block.fused(x, model=block.new.eval())[0]


def test_a_forward_that_asks_for_its_own_mode_is_held_to_it() -> None:
    x = torch.randn(16, 8)
    block = Counting(OWN, x, training=True)
    assert block.fused(x)[0]
    block.new.training = False  # as train() is not called
    ran, found = block.fused(x)
    assert not ran and torch.equal(found, x * 2)


NONE = """
import torch
from torch import nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.drop, self.p = nn.LayerNorm(8), nn.Dropout(0.0), 0.0

    def forward(self, x):
        y = F.dropout(self.norm(x), self.p if self.training else 0.0)
        return self.drop(torch.tanh(y) * x)
"""


@pytest.mark.parametrize("training", [True, False])
def test_modes_that_are_read_without_effect_are_no_condition(training: bool) -> None:
    x = torch.randn(16, 8)
    block = Counting(NONE, x, training=training)
    for mode in (training, not training):
        ran, found = block.fused(x, model=block.new.train(mode))
        assert ran and torch.allclose(found, block.reference.train(mode)(x), atol=1e-5)
    block.new.p = block.reference.p = 0.5
    assert not block.fused(x, model=block.new)[0]


def test_values_that_differ_between_modes_are_an_effect() -> None:
    text = OWN.replace("else x * 2", "else torch.tanh(torch.sigmoid(x) * x) * torch.tensor(0.5)")
    text = text.replace("* x) if", "* x) * torch.tensor(0.25) if")
    block = Counting(text, torch.randn(16, 8), training=True)
    x = torch.randn(16, 8)
    assert block.fused(x)[0]
    ran, found = block.fused(x, model=block.new.eval())
    assert not ran and torch.allclose(found, block.reference.eval()(x))
