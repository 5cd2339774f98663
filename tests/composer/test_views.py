"""Views in drop-ins: one call where the layout in memory is known, and none that the forward makes only to save it."""

from __future__ import annotations

import re

import pytest
import torch

from dvk.composer.ir.nodes import IRNode, View
from tests.composer.programs import drop_in, leaves
from tests.composer.training_steps import TrainingDropIn, errors

CHAINS: dict[str, list[tuple[str, tuple[object, ...], tuple[int, ...]]]] = {
    "heads of a packed projection": [
        ("slice", (2, 8, 1), (2, 5, 8)),
        ("reshape", (2, 5, 2, 4), (2, 5, 2, 4)),
        ("permute", (0, 2, 1, 3), (2, 2, 5, 4)),
    ],
    "every second row": [("slice", (1, 1, 2), (2, 2, 24)), ("select", (0, 1), (2, 24))],
    "merged": [("reshape", (10, 24), (10, 24)), ("permute", (1, 0), (24, 10))],
    "merged across a permutation": [
        ("permute", (1, 0, 2), (5, 2, 24)),
        ("reshape", (10, 24), (10, 24)),
    ],
    "split, and dimensions of size 1": [
        ("reshape", (2, 1, 5, 6, 1, 4), (2, 1, 5, 6, 1, 4)),
        ("select", (2, 3), (2, 1, 6, 1, 4)),
    ],
    "repeated": [("slice", (1, 2, 1), (2, 1, 24)), ("expand", (3, 2, 7, 24), (3, 2, 7, 24))],
    "reversed": [("flip", (1,), (2, 5, 24))],
}


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("strides", [(120, 24, 1), (24, 48, 1), (1, 2, 10), (0, 24, 1)])
def test_the_layout_of_a_chain_is_pytorchs(name: str, strides: tuple[int, ...]) -> None:
    """The same elements in the same memory, or no layout where PyTorch copies."""
    base = torch.as_strided(torch.arange(400.0), (2, 5, 24), strides, 7)
    view, expected = View(IRNode("source", "input", (2, 5, 24), "float32")), base
    for method, args, after in CHAINS[name]:
        view = view.then(method, args, after)
    expected = eval(view.call("expected"), {"torch": torch, "expected": expected})
    found = view.layout(strides)
    if expected.untyped_storage().data_ptr() != base.untyped_storage().data_ptr():
        assert found is None
        return
    assert found is not None
    made = torch.as_strided(base, view.shape, found[0], base.storage_offset() + found[1])
    assert made.equal(expected)
    assert made.storage_offset() == expected.storage_offset()
    # Those of dimensions of size 1 too: a (2, 1, 8, 8) image with other strides would count as channels-last.
    assert made.stride() == expected.stride()


ATTENTION = """
import torch
from torch import nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(8, 24)
        self.out = nn.Linear(8, 8)

    def forward(self, x):
        q, k, v = (t.view(2, 5, 2, 4).transpose(1, 2) for t in self.line(x.tanh()).split(8, -1))
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(2, 5, 8)
        return self.out(y) * 2
"""


def test_a_step_saves_the_bases_of_its_views() -> None:
    """The packed projection once, for the three views that the backward reads, and the weights themselves."""
    made = TrainingDropIn(ATTENTION, torch.randn(2, 5, 8))
    assert all(new <= 4 * eager + 1e-6 for eager, new in errors(made).values()), errors(made)
    forward, _, backward = made.candidate.source.partition("def _dvk_back")
    saved = re.search(r"\n        return \(\(.*?,\), \((.*)\)\)\n", forward)
    assert saved is not None and "(" not in saved[1] and "[" not in saved[1], saved
    assert forward.count("dvk_view(_t") >= 3 and backward.count("dvk_view(saved_") >= 3


WRITES = """
import torch


def called(x, y):
    x[:, 1:3].transpose(0, 1).copy_(torch.linalg.cholesky(y)[:2].exp())
    return torch.linalg.cholesky(y[:3, :3]) + 1
"""


def test_writes_through_a_view_count_in_the_version_of_its_base() -> None:
    """Autograd compares versions: a write that it cannot see gives wrong gradients without a word."""
    y = torch.eye(4) * 4
    module, model, candidate = drop_in(WRITES, torch.zeros(4, 6), y, entry="called")
    ours, theirs = torch.zeros(4, 6), torch.zeros(4, 6)
    new = module.ModelNew()
    for a, b in zip(leaves(new(ours, y)), leaves(model(theirs, y)), strict=True):
        torch.testing.assert_close(a, b)
    assert new.dvk_calls == {"kernels": 1}
    torch.testing.assert_close(ours, theirs)
    assert ours._version > 0
    assert "dvk_view(y" in candidate.source and "dvk_view(x" not in candidate.source


PASSES_ON = """
import torch


def called(x, y):
    return x[1:].diagonal(), torch.linalg.cholesky(y[:3, :3]) + 1
"""


def test_a_view_that_an_operator_passes_on_shares_the_version_of_its_base() -> None:
    """The caller may write to the result, which is memory of an argument."""
    y = torch.eye(4) * 4
    module, _, candidate = drop_in(PASSES_ON, torch.zeros(4, 6), y, entry="called")
    x = torch.zeros(4, 6)
    diagonal, _ = module.ModelNew()(x, y)
    diagonal.add_(1)
    assert x._version == 1 and x.sum() == 3
    assert "dvk_view(y" in candidate.source


COPIED = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(4, 4, 4))

    def forward(self, x):
        return torch.linalg.matrix_exp(self.weight.transpose(0, 1).reshape(4, 16)[:, :4]) + x.exp()
"""


def test_a_weight_that_is_copied_may_have_any_layout() -> None:
    module, model, _ = drop_in(COPIED, torch.rand(4, 4))
    new, x = module.ModelNew(), torch.rand(4, 4)
    for one in (new, model):
        one.weight.data = model.weight.detach().clone().mT.contiguous().mT
    with torch.no_grad():
        torch.testing.assert_close(new(x), model(x))
    assert new.dvk_calls == {"kernels": 1}
