"""PyTorch's own ways to run a module, as drop-ins: right for calls like the measured one, the original for all others."""

from __future__ import annotations

import copy
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from dvk import tasks
from dvk.composer.dropin.lines import Line, write
from dvk.config import Limits
from dvk.tasks.sourcefile import execute

NETWORK = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.norm = nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, width, 3, bias=False)
    def forward(self, x):
        y = torch.relu(self.norm(self.first(x)))
        return {"image": self.second(y), "mean": y.mean((2, 3))}
def get_inputs():
    return [torch.randn(2, 3, 8, 8)]
def get_init_inputs():
    return []
"""

PERCEPTRON = """
import torch
from torch import nn
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 4)
    def forward(self, x, scale=1.0):
        return self.second(torch.relu(self.first(x))) * scale
def get_inputs():
    return [torch.randn(8, 16)]
def get_init_inputs():
    return []
"""

FUNCTION = """
import torch
def energy(x, y):
    return (x * y).sum(-1), x
def get_inputs():
    return [torch.randn(8, 16), torch.randn(8, 16)]
"""

HOST = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.tensor(3.0)  # stays on the CPU
        self.drop = nn.Dropout(0.5)
    def forward(self, x):
        return self.drop(x) * self.scale + x * self.scale.to(x.device) + torch.tensor(0.5, device=x.device)
def get_inputs():
    return [torch.randn(64, 64)]
def get_init_inputs():
    return []
"""

REFUSED = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
    def forward(self, x):
        BODY
def get_inputs():
    return [torch.randn(8, 16)]
def get_init_inputs():
    return []
"""


def dropin(
    folder: Path, text: str, line: Line, entry: str = "", device: str = "cpu", train: bool = False
) -> tuple[ModuleType, Any]:
    """The drop-in of a file, executed, and its task."""
    path = folder / "model.py"
    path.write_text(text)
    task = tasks.load(f"{path}{entry}", device=device, limits=Limits(), train=train)
    return execute(write(task, line), role="candidate"), task


def both(made: ModuleType, task: Any) -> tuple[Any, Any]:
    """The original and the drop-in with equal weights."""
    owner = "dvk_original" if task.entry == "ModelNew" else task.entry
    old = getattr(made, owner)().to(task.device)
    new = made.ModelNew().to(task.device)
    new.load_state_dict(old.state_dict())
    return old, new


def layouts(result: Any) -> Any:
    return {k: (v.shape, v.stride(), v.dtype) for k, v in result.items()}


@torch.no_grad()
def test_channels_last_follows_every_change_of_weights(tmp_path):
    made, task = dropin(tmp_path, NETWORK, Line(channels_last=True))
    old, new = both(made, task)
    (x,) = made.get_inputs()
    for change in (
        lambda m: None,
        lambda m: m.first.weight.mul_(1.5),
        lambda m: setattr(m.second.weight, "data", m.second.weight.data * 2),
        lambda m: setattr(m, "second", copy.deepcopy(m.second).requires_grad_(False)),
        lambda m: m.norm.weight.fill_(0.7),
        lambda m: m.eval(),
        lambda m: m.to(torch.float64).to(torch.float32),
    ):
        change(old), change(new)
        expected, found = old(x), new(x)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        assert layouts(found) == layouts(expected), "strides are the original's"
        for mine, theirs in zip(new.buffers(), old.buffers()):
            torch.testing.assert_close(mine, theirs)
    assert "dvk_reason" not in new.__dict__
    assert new._dvk_line.call(x)["image"].shape == expected["image"].shape


@pytest.mark.parametrize("line", [Line(), Line(channels_last=True)], ids=["eager", "channels_last"])
@pytest.mark.slow
def test_other_calls_run_the_original_and_say_why(tmp_path, line):
    made, task = dropin(tmp_path, PERCEPTRON, line, ":ModelNew")
    old, new = both(made, task)
    (x,) = made.get_inputs()
    with torch.no_grad():
        torch.testing.assert_close(new(x, scale=2.0), old(x, scale=2.0))
        assert torch.equal(new(x[:3]), old(x[:3])) and "shapes" in new.dvk_reason
        assert torch.equal(new(x.T.contiguous().T), old(x.T.contiguous().T))
        with torch.autocast("cpu", torch.bfloat16):
            assert new(x).dtype == old(x).dtype and "autocast" in new.dvk_reason
    new(x).sum().backward()
    assert new.first.weight.grad is not None and "gradients" in new.dvk_reason
    live = torch.nn.Sequential(made.dvk_original())
    assert type(made.replace(live)[0]) is made.ModelNew


def test_a_function_has_its_name_and_a_module(tmp_path):
    made, _ = dropin(tmp_path, FUNCTION, Line(), ":energy")
    x, y = made.get_inputs()
    for found in (made.energy_new(x, y), made.ModelNew()(x, y)):
        assert torch.equal(found[0], made.energy(x, y)[0]) and found[1] is x


@pytest.mark.slow
@torch.no_grad()
def test_torch_compile_computes_once_a_call_what_the_original_does(tmp_path, monkeypatch):
    monkeypatch.setenv("DVK_STRICT", "1")
    made, task = dropin(tmp_path, NETWORK, Line("compile"))
    old, new = both(made, task)
    (x,) = made.get_inputs()
    for _ in range(2):
        torch.testing.assert_close(new(x), old(x), rtol=1e-4, atol=1e-5)
        assert int(new.norm.num_batches_tracked) == int(old.norm.num_batches_tracked)
        torch.testing.assert_close(new.norm.running_var, old.norm.running_var)
    assert "dvk_reason" not in new.__dict__ and type(new._dvk_line).__name__ == "dvk_way"
    assert torch.equal(new(x[:1])["mean"], old(x[:1])["mean"]) and "shapes" in new.dvk_reason


@pytest.mark.slow
def test_torch_compile_trains_where_it_was_measured_with_a_backward(tmp_path, monkeypatch):
    monkeypatch.setenv("DVK_STRICT", "1")
    made, task = dropin(tmp_path, NETWORK, Line("compile"), train=True)
    old, new = both(made, task)
    (x,) = made.get_inputs()
    for _ in range(2):
        grads = []
        for model in (new, old):
            result = model(x)
            loss = result["image"].square().mean() + result["mean"].sum()
            grads.append(torch.autograd.grad(loss, list(model.parameters())))
        torch.testing.assert_close(*grads, rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(new.norm.running_var, old.norm.running_var)
    assert new.dvk_calls == {"line": 2} and type(new._dvk_line).__name__ == "dvk_way"
    with torch.no_grad():
        torch.testing.assert_close(new(x)["mean"], old(x)["mean"], rtol=1e-3, atol=1e-4)


# ---------------------------------------------------------------- replay, on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("last", [False, True], ids=["plain", "channels_last"])
@torch.no_grad()
def test_a_graph_advances_statistics_once_a_call(tmp_path, monkeypatch, last):
    monkeypatch.setenv("DVK_STRICT", "1")
    # In TF32, layouts round differently.
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    made, task = dropin(tmp_path, NETWORK, Line("graph", channels_last=last), device="cuda")
    old, new = both(made, task)
    first = None
    for step in range(4):
        x = made.get_inputs()[0].cuda()
        expected, found = old(x), new(x)
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
        assert layouts(found) == layouts(expected)
        assert int(new.norm.num_batches_tracked) == step + 1
        torch.testing.assert_close(new.norm.running_mean, old.norm.running_mean)
        first = first or (found, {k: v.clone() for k, v in found.items()})
        old.first.weight.mul_(1.1), new.first.weight.mul_(1.1)
    torch.testing.assert_close(*first, rtol=0, atol=0)  # later calls leave earlier results alone
    old.eval(), new.eval()
    torch.testing.assert_close(new(x), old(x), rtol=1e-3, atol=1e-4)
    assert "dvk_reason" not in new.__dict__


@pytest.mark.gpu
@torch.no_grad()
def test_a_graph_draws_as_eager_does_and_holds_values_of_the_host(tmp_path, monkeypatch):
    monkeypatch.setenv("DVK_STRICT", "1")
    made, task = dropin(tmp_path, HOST, Line("graph"), device="cuda")
    old, new = both(made, task)
    x = made.get_inputs()[0].cuda()
    for seed in (1, 2):
        results = []
        for model in (old, new):
            torch.manual_seed(seed)
            results.append([model(x) for _ in range(3)])
        torch.testing.assert_close(*results, rtol=1e-6, atol=1e-6)
    assert "dvk_reason" not in new.__dict__
    old.scale.fill_(5.0), new.scale.fill_(5.0)
    old.eval(), new.eval()
    torch.testing.assert_close(new(x), old(x))
    old.scale.fill_(7.0), new.scale.fill_(7.0)
    torch.testing.assert_close(new(x), old(x))


@pytest.mark.gpu
@pytest.mark.parametrize(
    "body",
    [
        "return x * x.sum().item()",
        "return x[x.sum(-1) > 0]",
        "self.calls += 1; return x * 2",
        "return x * torch.rand(()).item()",
        "return x.view(16, 8)",
    ],
)
@torch.no_grad()
def test_a_graph_is_refused_where_the_host_decides(tmp_path, monkeypatch, body):
    monkeypatch.delenv("DVK_STRICT", raising=False)
    made, task = dropin(tmp_path, REFUSED.replace("BODY", body), Line("graph"), device="cuda")
    old, new = both(made, task)
    x = made.get_inputs()[0].cuda()
    for _ in range(2):
        torch.manual_seed(0)
        expected = old(x)
        torch.manual_seed(0)
        with pytest.warns(UserWarning) if "dvk_reason" not in new.__dict__ else _nothing():
            assert torch.equal(new(x), expected)
    assert new.dvk_reason


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize("mode", [None, "reduce-overhead", "max-autotune"])
@torch.no_grad()
def test_compiled_results_are_new_tensors(tmp_path, monkeypatch, mode):
    monkeypatch.setenv("DVK_STRICT", "1")
    made, task = dropin(tmp_path, NETWORK, Line("compile", mode), device="cuda")
    old, new = both(made, task)
    kept = []
    for _ in range(4):
        x = made.get_inputs()[0].cuda()
        kept.append((old(x), new(x)))
    for expected, found in kept:
        torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-3)
    assert "dvk_reason" not in new.__dict__


def _nothing() -> Any:
    from contextlib import nullcontext

    return nullcontext()
