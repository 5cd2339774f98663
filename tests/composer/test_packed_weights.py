"""Library calls with weights packed once: eager's values, weights that stay live, and plain calls where oneDNN is not used."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dvk.composer import applicable
from dvk.composer.rewrites.packed_weights import RECIPE
from dvk.composer.runtime.packed_weights import (
    dvk_packed_convolution,
    dvk_packed_kernel,
    dvk_packed_linear,
    dvk_packed_matrix,
)
from tests.composer.programs import capture, differences, drop_in
from tests.composer.seen_operators import Seen, compiled

randn = torch.randn
needs_onednn = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="this PyTorch has no oneDNN"
)
RECIPES = ("fold_batch_norm", "channels_last", "fuse_pointwise", "inplace_epilogue", RECIPE)
SOURCE = """
import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = {}
        self.w = nn.Parameter(torch.randn(512, 516) / 16)

    def forward(self, x):
        return {}
"""
STACK = SOURCE.format(
    "nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, bias=False), nn.ReLU())",
    "self.f(x)",
)
CONVOLUTIONS = {
    "3x3": ("nn.Conv2d(8, 6, 3, padding=1)", (2, 8, 9, 7)),
    "1x1, no bias": ("nn.Conv2d(8, 6, 1, bias=False)", (2, 8, 9, 7)),
    "strided, dilated": ("nn.Conv2d(3, 6, (3, 2), (2, 1), (1, 0), (1, 2))", (2, 3, 9, 7)),
    "grouped": ("nn.Conv2d(8, 16, 3, groups=2)", (2, 8, 9, 7)),
    "depthwise": ("nn.Conv2d(8, 8, 3, groups=8)", (2, 8, 9, 7)),
    "3d": ("nn.Conv3d(4, 6, (3, 2, 3), (1, 2, 1), (1, 0, 1))", (2, 4, 5, 6, 7)),
}
LINEARS = {
    "linear": ("nn.Linear(512, 516)", "self.f(x)", (3, 512)),
    "no bias, 3d": ("nn.Linear(512, 516, bias=False)", "self.f(x)", (2, 3, 512)),
    "strided rows": ("nn.Linear(512, 516)", "self.f(x[:, ::2])", (4, 1024)),
    "addmm": ("nn.Linear(1, 516)", "torch.addmm(self.f.bias, x, self.w)", (3, 512)),
    "addmm of a view": ("nn.Linear(1, 512)", "torch.addmm(self.f.bias, x, self.w.t())", (3, 516)),
}
CASES = {**{n: (made, "self.f(x)", shape) for n, (made, shape) in CONVOLUTIONS.items()}, **LINEARS}


@needs_onednn
@pytest.mark.parametrize("name", CASES)
@pytest.mark.slow
def test_values_and_layouts_are_those_of_eager(name: str) -> None:
    torch.manual_seed(0)
    made, call, shape = CASES[name]
    module, model, candidate = drop_in(
        SOURCE.format(made, f"torch.relu({call})"), randn(shape), recipes=RECIPES
    )
    assert "= dvk_packed_" in candidate.source
    new = module.ModelNew().eval()
    new.load_state_dict(model.state_dict())
    x = randn(shape)
    x.view(-1)[0] = torch.nan
    with torch.no_grad():
        given, want = new(x), model(x)
        assert given.stride() == want.stride() and bool(want.isnan().any())
        torch.testing.assert_close(given, want, atol=1e-4, rtol=1e-4, equal_nan=True)
        assert any(isinstance(t, torch.Tensor) and t.is_mkldnn for t in new._dvk_made[1].values())


@needs_onednn
@torch.no_grad()
def test_weights_stay_live() -> None:
    torch.manual_seed(0)
    module, model, _ = drop_in(STACK, randn(2, 3, 16, 16), recipes=RECIPES)
    new, x = module.ModelNew().eval(), randn(2, 3, 16, 16)
    new.load_state_dict(model.state_dict())
    assert differences(new(x), model(x)) == []
    for one in (new, model):
        one.f[3].weight.mul_(-2)
    assert differences(new(x), model(x)) == []
    model.f[0].weight.neg_()
    new.load_state_dict(model.state_dict())
    assert differences(new(x), model(x)) == []
    for copied in [copy.deepcopy(new)]:
        copied.f[3].weight.mul_(3)
        assert differences(new(x), model(x)) == []
        assert differences(copied(x), 3 * model(x)) == []


@needs_onednn
@torch.no_grad()
def test_it_is_part_of_compiled_networks_and_pickles() -> None:
    made = Seen(STACK, randn(2, 3, 16, 16), recipes=RECIPES)
    x = randn(2, 3, 16, 16)
    torch._dynamo.reset()
    assert made.ran(made.new, x) == 0  # in eager the program itself runs
    assert made.ran(compiled(made.new), x) == 1
    torch.library.opcheck(made.operator, made.calls[-1])
    made.reference.f[0].weight.neg_()
    made.new.f[0].weight.neg_()
    assert made.ran(compiled(made.new), x) == 1
    again = pickle.loads(pickle.dumps(made.new))
    assert differences(again(x), made.reference(x)) == []
    torch._dynamo.reset()


def test_without_onednn_the_calls_are_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    w, m, x = randn(6, 4, 3, 3), randn(5, 7), randn(2, 4, 9, 8)
    kernel = dvk_packed_kernel(w, [2, 4, 9, 8], [1, 2], [0, 1], [1, 1], 1)
    assert kernel is w and dvk_packed_matrix(m, 3) is m
    given = dvk_packed_convolution(x, kernel, None, [1, 2], [0, 1], [1, 1], 1)
    torch.testing.assert_close(given, F.conv2d(x, w, None, (1, 2), (0, 1)))
    rows, bias = randn(3, 7), randn(5)
    torch.testing.assert_close(dvk_packed_linear(rows, m, bias), F.linear(rows, m, bias))


class Given(nn.Module):
    """A linear whose weight is computed, or written by the module itself."""

    def __init__(self, writes: bool):
        super().__init__()
        self.writes, self.w = writes, nn.Buffer(randn(512, 512))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x, self.w.mul_(2) if self.writes else self.w * 2).relu()


def test_where_it_applies() -> None:
    def applies(model: object, *args: torch.Tensor, device: str = "cpu") -> bool:
        graph = capture(model, *args).graph  # type: ignore[arg-type]
        return RECIPE in applicable(graph, device, "cpp" if device == "cpu" else "triton")

    assert applies(nn.Conv2d(4, 4, 3).eval(), randn(1, 4, 8, 8))
    assert not applies(nn.Conv2d(4, 4, 3).eval(), randn(1, 4, 8, 8), device="cuda")
    assert not applies(nn.Conv2d(4, 4, 3).double().eval(), randn(1, 4, 8, 8).double())
    assert not applies(F.conv2d, randn(1, 4, 8, 8), randn(4, 4, 3, 3))
    assert not applies(nn.ConvTranspose2d(4, 4, 3).eval(), randn(1, 4, 8, 8))
    assert applies(nn.Linear(512, 512).eval(), randn(2, 512))
    assert not applies(nn.Linear(512, 512).eval(), randn(1, 512))  # eager's product of one row
    assert not applies(nn.Linear(256, 256).eval(), randn(64, 256))
    assert not applies(Given(False), randn(2, 512)) and not applies(Given(True), randn(2, 512))
