"""Linear and cross-entropy in chunks of rows: values, gradients, memory."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from dvk.composer import Plan, compose
from dvk.composer.capture import chunked_loss
from dvk.composer.capture.export import trace_module
from dvk.composer.capture.joint import with_backward
from dvk.composer.runtime.chunked_loss import dvk_chunked_loss
from dvk.records import Task
from tests.composer.programs import run_source
from tests.composer.training_steps import TrainingDropIn, errors

HEAD = """
import torch
from torch import nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(12, 29, bias={bias})

    def forward(self, x, target):
        logits = self.head(x)
        return {text}
"""
CASES: dict[str, tuple[str, bool]] = {
    "mean": ("F.cross_entropy(logits, target)", False),
    "sum with bias": ("F.cross_entropy(logits, target, reduction='sum')", True),
    "smoothed": ("F.cross_entropy(logits, target, label_smoothing=0.2, ignore_index=3)", True),
    "tokens": ("F.cross_entropy(logits.view(-1, 29), target.reshape(-1), ignore_index=-1)", False),
    "scaled": ("F.cross_entropy(logits, target).exp() * 0.5 + x.mean()", True),
}


def made(text: str, bias: bool, monkeypatch: pytest.MonkeyPatch) -> TrainingDropIn:
    """A drop-in whose chunks have 16 of its 70 rows."""
    monkeypatch.setattr(chunked_loss, "LARGE", 0)
    monkeypatch.setattr(chunked_loss, "CHUNK", 16 * 29 * 4)
    torch.manual_seed(0)
    shape = (7, 10) if "view" in text else (70,)
    target = torch.randint(0, 29, shape)
    if "-1)" in text:
        target[2:4, :7] = -1
    return TrainingDropIn(HEAD.format(text=text, bias=bias), 3 * torch.randn(*shape, 12), target)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.slow
def test_gradients_are_as_exact_as_eager(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    block = made(*CASES[name], monkeypatch)
    assert "dvk_chunked_loss(" in block.candidate.source
    found = errors(block)
    assert all(new <= 4 * eager + 1e-6 for eager, new in found.values()), found
    assert block.runs == {"run": 1, "back": 1}


@pytest.mark.parametrize(
    "text",
    [
        "F.cross_entropy(logits, target, reduction='none')",
        "(F.cross_entropy(logits, target), logits)",
        "F.cross_entropy(logits, target, weight=self.head.weight[:, 0].abs().detach())",
    ],
)
@pytest.mark.slow
def test_what_needs_all_logits_keeps_them(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    block = made(text, False, monkeypatch)
    assert "dvk_chunked_loss(" not in block.candidate.source
    found = errors(block)
    assert all(new <= 4 * eager + 1e-6 for eager, new in found.values()), found


def test_every_target_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    block = made(CASES["smoothed"][0], True, monkeypatch)
    block.args[1].fill_(3)
    got, want = block.gradients(True), block.gradients(False)
    assert all(torch.equal(a.isnan(), b.isnan()) for a, b in zip(got, want, strict=True))


def test_the_module_as_it_is_stays_a_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    """The floor of a training search: no plan, no chunks."""
    monkeypatch.setattr(chunked_loss, "LARGE", 0)
    text = HEAD.format(text="F.cross_entropy(logits, target)", bias=False)
    model = run_source(text).Model()
    traced = trace_module(
        model, [torch.randn(70, 12), torch.randint(0, 29, (70,))], ["x", "target"]
    )
    task = Task(id="test", name="test", source=text, entry="Model", kind="module", train=True)
    made = compose(task, with_backward(traced, model), Plan(()), "cpp")
    assert made.title == "as it is" and "dvk_chunked_loss" not in made.source


@pytest.mark.parametrize("mean", [True, False])
def test_gradients_of_half_types_keep_small_probabilities(mean: bool) -> None:
    """A probability times its row's share of the mean, 5e-7 here, has four bits left in float16."""
    torch.manual_seed(0)
    x, weight = torch.randn(600, 16).half(), (torch.randn(3000, 16) / 16).half()
    target = torch.randint(0, 100, (600,))
    target[::5] = -100
    _, *got, _ = dvk_chunked_loss(x, weight, None, target, mean, -100, 0.0, 128)
    wide = [t.double().requires_grad_() for t in (x, weight)]
    loss = F.cross_entropy(F.linear(*wide), target, reduction="mean" if mean else "sum")
    to_x, to_weight = torch.autograd.grad(loss, wide)
    assert torch.allclose(got[0].double(), to_x, rtol=2e-3, atol=2e-3 * float(to_x.abs().max()))
    never = got[1][100:].double()  # classes that are no target
    assert (never - to_weight[100:]).norm() < 4e-3 * to_weight[100:].norm()


def test_logits_of_a_chunk_are_held_once() -> None:
    """Products of float32 and their softmax share memory: no operator makes another tensor of a chunk's size."""
    x, weight, target = torch.randn(64, 8), torch.randn(500, 8), torch.randint(0, 500, (64,))
    with Sizes() as seen:
        dvk_chunked_loss(x, weight, None, target, True, -100, 0.0, 16)
    assert seen.made.count(16 * 500) == 4, "one for each chunk"


class Sizes(TorchDispatchMode):
    """Elements of the tensors that operators make."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {t.data_ptr() for t in [*args, *(kwargs or {}).values()] if torch.is_tensor(t)}
        result = func(*args, **(kwargs or {}))
        if torch.is_tensor(result) and result.data_ptr() not in given:
            self.made.append(result.numel())
        return result


MEASURED = """
import sys, torch
from tests.composer.programs import run_source
from tests.composer.test_chunked_loss import HEAD
from tests.composer.training_steps import TrainingDropIn
torch.set_num_threads(1)
text = HEAD.replace("29", "32000").replace("12,", "64,").format(bias=False, text="F.cross_entropy(logits, target)")
args = torch.randn(1100, 64), torch.randint(0, 32000, (1100,))
model = run_source(text).Model() if sys.argv[1] == "eager" else TrainingDropIn(text, *args).new
if sys.argv[1] == "dvk":
    assert model._dvk_load()
open("/proc/self/clear_refs", "w").write("5")  # the peak of the resident set starts here
def kilobytes(name):
    (line,) = [line for line in open("/proc/self/status") if line.startswith(name)]
    return int(line.split()[1])
before = kilobytes("VmRSS")
model(*args).backward()
print(kilobytes("VmHWM") - before)
"""


@pytest.mark.slow
def test_peak_memory_on_a_cpu() -> None:
    """1100 × 32,000 logits are 141 MB; eager holds them, their log-softmax and a gradient."""
    peaks = {}
    for how in ("eager", "dvk"):
        done = subprocess.run(
            [sys.executable, "-c", MEASURED, how], capture_output=True, text=True, check=True
        )
        peaks[how] = int(done.stdout.split()[-1]) / 1024
    print(peaks)
    assert peaks["dvk"] < 0.7 * peaks["eager"], peaks


@pytest.mark.gpu
def test_peak_memory_on_a_gpu() -> None:
    text = HEAD.replace("29", "32000").replace("12,", "1024,")
    text = text.format(bias=False, text="F.cross_entropy(logits, target)")
    args: list[Any] = [torch.randn(4096, 1024), torch.randint(0, 32000, (4096,))]
    block = TrainingDropIn(text, *args)
    peaks = []
    for model in (block.model.cuda(), block.new.cuda()):
        given = [t.cuda() for t in args]
        given[0].requires_grad_(True)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run = chunked_loss.dvk_chunked_loss
        if model is block.new:
            run(given[0].detach(), model.head.weight.detach(), None, given[1], True, -100, 0.0, 512)
        else:
            model(*given).backward()
        peaks.append(torch.cuda.max_memory_allocated() - before)
        model.zero_grad(set_to_none=True)
    assert peaks[1] < 0.5 * peaks[0], peaks
