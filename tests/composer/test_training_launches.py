"""How many kernels and calls a training step is made of, and that fewer of them compute the same."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import weakref

import pytest
import torch

from dvk.composer.capture.chunked_loss import rows_of_chunk
from tests.composer.programs import differences
from tests.composer.training_steps import TrainingDropIn, errors

HEAD = """
import torch
from torch import nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x):
        return {text}
"""
CASES = {
    # init, text, shape of x, kernels ahead and back
    "group norm": ("self.n = nn.GroupNorm(4, 8)", "F.silu(self.n(x))", (2, 8, 6, 5), (1, 4)),
    "group norm of a sequence": (
        "self.n = nn.GroupNorm(3, 12)",
        "self.n(x) + x",
        (5, 12, 7),
        (1, 4),
    ),
    "batch norm": ("self.n = nn.BatchNorm2d(6)", "F.relu(self.n(x))", (4, 6, 5, 5), (1, 1)),
    "two biases": (
        "self.a, self.b = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(3, 1))",
        "(x.exp() * self.a + self.b).tanh()",
        (7, 3, 4),
        (1, 2),
    ),
    "layer norm": ("self.n = nn.LayerNorm(24)", "F.gelu(self.n(x))", (150, 24), (1, 2)),
}


def made(name: str, backend: str = "cpp") -> TrainingDropIn:
    torch.manual_seed(0)
    init, text, shape, _ = CASES[name]
    return TrainingDropIn(
        HEAD.format(init=init, text=text), torch.randn(shape) + 0.5, backend=backend
    )


@pytest.mark.parametrize("name", CASES)
@pytest.mark.slow
def test_few_kernels_with_exact_gradients(name: str) -> None:
    block = made(name)
    source = block.candidate.source
    ahead, back = (
        len(
            set(
                re.findall(
                    r"_dvk_k(\d+)\(", source.partition(f"def {part}(")[2].partition("    def ")[0]
                )
            )
        )
        for part in ("_dvk_run", "_dvk_back")
    )
    assert (ahead, back) == CASES[name][3]
    assert ".contiguous()" not in source.partition("dvk_fused = ")[0]
    found = errors(block)
    assert all(new <= 4 * eager + 1e-6 for eager, new in found.values()), found


NORMS = ("BatchNorm2d(6", "BatchNorm1d(6", "BatchNorm2d(40", "BatchNorm2d(6, affine=False")


def statistics_follow(norm: str, momentum: float, backend: str) -> None:
    """Check the running statistics after three steps, and that no separate call writes them."""
    shape = (4, 40, 3, 3) if "40" in norm else (40, 6, 9, 10)
    shape = shape[:2] if "1d" in norm else shape
    torch.manual_seed(0)
    init = f"self.n = nn.{norm}, momentum={momentum})"
    block = TrainingDropIn(
        HEAD.format(init=init, text="F.relu(self.n(x)) * 2"), torch.randn(shape), backend=backend
    )
    program = block.candidate.source.partition("dvk_fused = ")[0]
    assert "_foreach_lerp_" not in program and "_foreach_add_" in program and "clone" not in program
    for model in (block.new, block.model):
        for number in range(3):
            x = (block.args[0] * (1 + number)).requires_grad_()
            model(x).sum().backward()
    # Means near 0 of values near 3.
    torch.testing.assert_close(
        block.new.state_dict(), block.model.state_dict(), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("momentum", [0.1, 0.9])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.slow
def test_running_statistics_are_written_by_the_kernel(norm: str, momentum: float) -> None:
    statistics_follow(norm, momentum, "cpp")


@pytest.mark.slow
def test_running_statistics_are_written_by_triton_kernels() -> None:
    """In another process: Triton reads TRITON_INTERPRET when it is imported."""
    calls = "; ".join(f"check({norm!r}, 0.1, 'triton')" for norm in NORMS)
    done = subprocess.run(
        [sys.executable, "-c", f"from {__name__} import statistics_follow as check; {calls}"],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.slow
def test_the_backward_lets_go_of_what_it_has_read(kept: bool) -> None:
    init = "self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 8)"
    block = TrainingDropIn(
        HEAD.format(init=init, text="self.b(F.gelu(self.a(x)))"), torch.randn(6, 8)
    )
    x = block.args[0].requires_grad_()
    run, product = block.new._dvk_run, torch.mm
    saved: list[weakref.ref[torch.Tensor]] = []
    alive: list[int] = []

    def counted(*given: torch.Tensor) -> torch.Tensor:
        alive.append(sum(one() is not None for one in saved))
        return product(*given)

    def watched(*given: torch.Tensor) -> tuple[tuple[torch.Tensor, ...], ...]:
        made = run(*given)
        mine = {id(t) for t in (x, *block.new.parameters())}
        saved.extend(weakref.ref(t) for t in made[1] if id(t) not in mine and t._base is None)
        return made

    block.new.__dict__["_dvk_run"] = watched
    result = block.new(x).sum()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "mm", counted)
        first = torch.autograd.grad(result, x, retain_graph=kept)
    assert len(alive) == 4 and len(saved) >= 2
    assert (alive[-1] == alive[0]) is kept
    if kept:
        assert torch.equal(first[0], torch.autograd.grad(result, x)[0])
    else:
        assert alive[-1] == 0


def test_counters_that_grow_by_other_numbers_are_written_apart() -> None:
    init = (
        "self.n = nn.BatchNorm1d(6); self.register_buffer('a', torch.tensor(0)); "
        "self.register_buffer('b', torch.zeros(3)); self.register_buffer('c', torch.zeros(3))"
    )
    text = "(self.a.add_(10), self.b.add_(0.5), self.c.add_(2.0), self.n(x).relu())[3]"
    block = TrainingDropIn(HEAD.format(init=init, text=text), torch.randn(4, 6))
    for model in (block.new, block.model):
        for _ in range(3):
            model(*block.args).sum().backward()
    assert (int(block.new.a), int(block.new.n.num_batches_tracked)) == (30, 3)
    assert (float(block.new.b[0]), float(block.new.c[0])) == (1.5, 6.0)
    new, old = (list(m.state_dict().values()) for m in (block.new, block.model))
    assert differences(new, old) == []


@pytest.mark.parametrize(
    ("rows", "width", "classes", "sms", "chunk"),
    [
        (4096, 2048, 32000, 132, 2048),  # 16 × 16 tiles: two waves, and as large as the weight
        (16384, 256, 32000, 132, 8192),  # half of the rows: less than the wave of 66 × 2 tiles
        (4096, 2048, 32000, None, 512),  # a CPU has no waves
        (2048, 2048, 32000, 132, 1024),  # half of the rows
        (16384, 2048, 32000, 16, 2048),
        (65536, 256, 32000, 132, 8448),
        (300, 64, 32000, 132, 512),
    ],
)
def test_chunks_of_logits_fill_a_wave(
    rows: int, width: int, classes: int, sms: int | None, chunk: int
) -> None:
    assert rows_of_chunk(rows, width, 4 * classes, sms) == chunk
