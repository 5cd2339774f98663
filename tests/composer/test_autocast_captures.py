"""Modules captured under torch.autocast: casts are part of the graph, and the kernels run under that autocast alone."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from dvk.composer.capture.export import trace_module
from tests.composer.autocast_files import outcome
from tests.composer.dropins import Counting, agree, importable, module_text
from tests.composer.programs import run_source
from tests.composer.training_steps import TrainingDropIn

FILES = Path(__file__).resolve().parents[2] / "data" / "tasks"
HEAD = "import torch.nn.functional as F\n"
MLP = "self.n = nn.LayerNorm(16)\nself.a = nn.Linear(16, 32)\nself.b = nn.Linear(32, 16)"
CASES = {
    "gated product and norm": ("return x + self.b(F.gelu(self.a(self.n(x))))", MLP),
    "types that are promoted": (
        "y = self.a(x)\nreturn torch.softmax(y, -1), y.pow(2).mean(-1) + x.sum(-1), torch.cat([y, x], -1)",
        "self.a = nn.Linear(16, 16, bias=False)",
    ),
    "a part without autocast": (
        "with torch.autocast('cpu', enabled=False):\n    s = x @ x.transpose(-1, -2)\nreturn F.silu(self.a(s @ x)) * s.mean()",
        "self.a = nn.Linear(16, 16)",
    ),
    "a part in another type": (
        "y = F.relu(self.a(x))\nwith torch.autocast('cpu', torch.float16):\n    z = self.b(x) * 2\nreturn y + z",
        "self.a = nn.Linear(16, 16)\nself.b = nn.Linear(16, 16)",
    ),
    "convolution": (
        "return F.relu(self.n(self.c(x[None, None])))",
        "self.c = nn.Conv2d(1, 4, 3)\nself.n = nn.BatchNorm2d(4)",
    ),
    "attention": (
        "q, k, v = self.a(x)[None].chunk(3, -1)\nreturn F.scaled_dot_product_attention(q, k, v) * 2 + x",
        "self.a = nn.Linear(16, 48)",
    ),
}
NORMED = "self.n = nn.LayerNorm(16)\nself.a = nn.Linear(16, 32)"
LOSS = "return F.cross_entropy(self.a(self.n(x)), x.argmax(-1))"


def as_good(got: Any, same: Any, truth: Any) -> bool:
    """Whether results err at most twice as much as the original's against double precision, beside one rounding to bfloat16."""
    kinds = [[t for t in tree_leaves(r) if isinstance(t, torch.Tensor)] for r in (got, same, truth)]
    assert [(t.shape, t.dtype) for t in kinds[0]] == [(t.shape, t.dtype) for t in kinds[1]]
    for mine, theirs, exact in zip(*kinds, strict=True):
        scale = float(exact.abs().max()) or 1.0
        ours, own = (float((t.double() - exact).abs().max()) / scale for t in (mine, theirs))
        assert ours <= 2 * own + 2**-8, (ours, own)
    return True


def wide(model: nn.Module) -> nn.Module:
    """The model in double precision, which autocast casts nothing of."""
    return copy.deepcopy(model).double()


def text(name: str) -> str:
    body, init = CASES[name]
    return HEAD + module_text(body, init=init)


@torch.no_grad()
@pytest.mark.parametrize("name", CASES)
@pytest.mark.slow
def test_a_capture_under_autocast_holds_its_casts(name: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(12, 16)
    with torch.autocast("cpu", torch.bfloat16):
        made = Counting(text(name), x)
        fused, got = made.fused(x)
        assert fused and as_good(got, made.reference(x), wide(made.reference)(x.double()))
        with torch.autocast("cpu", enabled=False):
            agree(made, x, fused=False)
        assert torch.is_autocast_enabled("cpu")
    agree(made, x, fused=False)
    assert "not under autocast; kernels exist for calls under autocast to bfloat16" in made.new.why(
        x
    )
    with torch.autocast("cpu", torch.float16):
        agree(made, x, fused=False)
        assert "under autocast to float16; kernels exist" in made.new.why(x)


GATE = """

class Gate(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(16, 16)

    def forward(self, x):
        return self.l(x) if float(x.sum()) > -1e9 else x
"""


@torch.no_grad()
def test_what_is_left_to_pytorch_runs_under_autocast() -> None:
    body = "y = F.silu(self.a(x)) * 2\nreturn F.gelu(self.g(y + 1)) + x"
    source = HEAD + module_text(body, init="self.a = nn.Linear(16, 16)\nself.g = Gate()") + GATE
    torch.manual_seed(0)
    x = torch.randn(12, 16)
    with torch.autocast("cpu", torch.bfloat16):
        made = Counting(source, x)
        fused, got = made.fused(x)
        assert fused and as_good(got, made.reference(x), wide(made.reference)(x.double()))


@pytest.mark.parametrize("name", [*(n for n in CASES if n != "a part in another type"), "loss"])
@pytest.mark.slow
def test_training_steps_are_captured_under_autocast(name: str) -> None:
    source = HEAD + module_text(LOSS, init=NORMED) if name == "loss" else text(name)
    torch.manual_seed(0)
    with torch.autocast("cpu", torch.bfloat16):
        made = TrainingDropIn(source, torch.randn(12, 16))
    found = []
    for model in (made.new, made.model, wide(made.model)):
        x = made.args[0].to(next(model.parameters()).dtype).requires_grad_(True)
        with torch.autocast("cpu", torch.bfloat16):
            result = model(x)
        leaves = result if isinstance(result, tuple) else [result]
        grads = torch.autograd.grad(
            leaves, [x, *model.parameters()], [torch.ones_like(t) for t in leaves]
        )
        found.append([*leaves, *grads])
    assert as_good(*found)
    assert made.runs == {"run": 1, "back": 1}
    made.new(made.args[0])
    assert made.runs == {"run": 1, "back": 1} and "not under autocast" in made.new.why(*made.args)


def test_a_gradient_of_a_gradient_is_that_of_the_original_under_autocast() -> None:
    torch.manual_seed(0)
    with torch.autocast("cpu", torch.bfloat16):
        made = TrainingDropIn(text("gated product and norm"), torch.randn(12, 16))
    found = []
    for model in (made.new, made.model, wide(made.model)):
        x = made.args[0].to(next(model.parameters()).dtype).requires_grad_(True)
        with torch.autocast("cpu", torch.bfloat16):
            result = model(x)
        (first,) = torch.autograd.grad(result, x, torch.ones_like(result), create_graph=True)
        found.append(torch.autograd.grad(first.square().sum(), x))
    assert as_good(*found)


def test_the_capture_of_one_device_says_nothing_of_another() -> None:
    model = run_source(text("gated product and norm")).Model().eval()
    x = torch.randn(12, 16)
    with torch.autocast("cuda", torch.bfloat16, enabled=torch.cuda.is_available()):
        assert trace_module(model, [x], ["x"]).under is None
    with torch.autocast("cpu", torch.bfloat16):
        captured = trace_module(model, [x], ["x"])
    assert captured.under == "bfloat16" and captured.autocast == ()


def calls_of_operators() -> int:
    known = torch.ops.__dict__.get("_dvk_operators", {})
    return sum(one.calls for one in known.values())


@torch.no_grad()
def test_a_compiler_around_it_keeps_the_kernels() -> None:
    torch.manual_seed(0)
    x = torch.randn(12, 16)
    with torch.autocast("cpu", torch.bfloat16):
        made = Counting(text("a part without autocast"), x)
    importable(made.module)
    compiled = torch.compile(made.new, backend="aot_eager", fullgraph=True)
    for on in (True, False):
        before = calls_of_operators()
        with torch.autocast("cpu", torch.bfloat16, enabled=on):
            got, same = compiled(x), made.reference(x)
        assert as_good(got, same, wide(made.reference)(x.double()))
        assert calls_of_operators() - before == int(on)


@pytest.mark.parametrize("backward_too", [True, False])
@pytest.mark.slow
def test_a_compiled_training_step_keeps_the_kernels(backward_too: bool) -> None:
    torch.manual_seed(0)
    with torch.autocast("cpu", torch.bfloat16):
        made = TrainingDropIn(text("a part without autocast"), torch.randn(12, 16))
    importable(made.module)
    found, before = [], calls_of_operators()
    arms = (torch.compile(made.new, backend="aot_eager", fullgraph=True), made.model)
    for model in (*arms, wide(made.model)):
        x = made.args[0].to(next(model.parameters()).dtype).requires_grad_(True)
        with torch.autocast("cpu", torch.bfloat16):
            result = model(x)
            with torch.autocast("cpu", torch.bfloat16, enabled=backward_too):
                wanted = [x, *model.parameters()]
                found.append(
                    [result, *torch.autograd.grad(result, wanted, torch.ones_like(result))]
                )
    assert as_good(*found) and calls_of_operators() - before == 2


@pytest.mark.slow
@pytest.mark.parametrize(("folder", "train"), [("examples", False), ("train/development", True)])
def test_files_of_modules_are_right_under_autocast(folder: str, train: bool) -> None:
    paths = sorted((FILES / folder).glob("*.py"))
    found = {path.stem: outcome(path, train=train) for path in paths}
    assert len(found) >= 12 and set(found.values()) == {"ok"}, found


@pytest.mark.gpu
@pytest.mark.parametrize("backend", ["triton", "cuda"])
@pytest.mark.parametrize(
    "name", ["layer_norm_gelu", "swiglu_gate", "cross_entropy_vocabulary", "attention_block"]
)
@pytest.mark.parametrize("train", [False, True])
def test_files_are_right_under_autocast_on_a_gpu(name: str, backend: str, train: bool) -> None:
    path = FILES / "train" / "development" / f"{name}.py"
    assert outcome(path, train=train, device="cuda", backend=backend) == "ok"
