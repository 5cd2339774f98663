"""Drop-ins called under torch.autocast: kernels where it changes nothing, else the original with the reason."""

from __future__ import annotations

import pytest
import torch

from tests.composer.dropins import Counting, agree, module_text
from tests.composer.programs import differences
from tests.composer.training_steps import TrainingDropIn

HEAD = "import torch.nn.functional as F\n"
NORM = HEAD + module_text("return F.gelu(self.n(x)) + x", init="self.n = nn.LayerNorm(16)")
PRODUCT = HEAD + module_text(
    "return F.silu(self.l(x)) + x", init="self.l = nn.Linear(16, 16, dtype=torch.bfloat16)"
)
INSIDE = HEAD + module_text(
    "with torch.autocast('cpu', torch.bfloat16):\n    y = self.l(x)\nreturn F.relu(y) * x",
    init="self.l = nn.Linear(16, 16)",
)
WIDE = HEAD + module_text("return F.silu(self.l(x)) + x", init="self.l = nn.Linear(16, 16)")
CASES = {
    "norm and activation": (NORM, torch.float32, ("bfloat16", "float16")),
    "product of bfloat16": (PRODUCT, torch.bfloat16, ("bfloat16",)),
    "autocast inside": (INSIDE, torch.float32, ("bfloat16",)),
    "product of float32": (WIDE, torch.float32, ()),
}


@torch.no_grad()
@pytest.mark.parametrize("name", CASES)
@pytest.mark.slow
def test_kernels_run_where_autocast_casts_nothing(name: str) -> None:
    source, dtype, same = CASES[name]
    torch.manual_seed(0)
    x = torch.randn(9, 16).to(dtype)
    made = Counting(source, x)
    for kind in ("bfloat16", "float16"):
        with torch.autocast("cpu", getattr(torch, kind)):
            agree(made, x, fused=kind in same)
            told = made.new.why(x)
            assert (f"autocast to {kind}" in told) is (kind not in same), told
    agree(made, x, fused=True)


@pytest.mark.parametrize("name", ["norm and activation", "autocast inside", "product of float32"])
@pytest.mark.parametrize("backward_too", [True, False])
@pytest.mark.slow
def test_training_steps_run_where_autocast_casts_nothing(name: str, backward_too: bool) -> None:
    source, dtype, same = CASES[name]
    torch.manual_seed(0)
    made = TrainingDropIn(source, torch.randn(9, 16).to(dtype))
    found = []
    for model in (made.new, made.model):
        x = made.args[0].clone().requires_grad_(True)
        with torch.autocast("cpu", torch.bfloat16):
            total = model(x).float().square().sum()
            if backward_too:
                total.backward()
        if not backward_too:
            total.backward()
        found.append([total.detach(), x.grad, *(w.grad for w in model.parameters())])
    assert differences(*found, scale=8) == []
    assert made.runs == dict.fromkeys(("run", "back"), int("bfloat16" in same))
