"""The Triton kernel of decoding against the plain formula, in Triton's interpreter or on a GPU."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

CHECK = """
import torch
from dvk.backbone.decoding import attention

device = "cuda" if torch.cuda.is_available() else "cpu"
generator = torch.Generator().manual_seed(0)
for b, heads, group, size, dtype in [(2, 2, 3, 24, torch.float32), (5, 1, 1, 16, torch.bfloat16)]:
    capacity, length = 48, 40
    q = torch.randn(b * heads, group, size, generator=generator).to(device, dtype)
    keys, values = (torch.randn(b * heads, capacity, size, generator=generator).to(device, dtype)[:, :length] for _ in "kv")
    filled = torch.tensor([39, 31, 32, 0, 7][:b]).to(device)
    mask = torch.zeros(b * heads, 1, length, dtype=dtype, device=device)
    mask.masked_fill_(torch.arange(length, device=device) > filled.repeat_interleave(heads)[:, None, None], float("-inf"))
    expected = attention.by_matmuls(q.float(), keys.float(), values.float(), filled, mask.float())
    got = attention.by_kernel(q, keys, values, filled, None)
    torch.testing.assert_close(got.float(), expected, atol=1e-5 if dtype == torch.float32 else 2e-2, rtol=1e-4)
print("equal")
"""


def run_check(**env: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHECK], capture_output=True, text=True, env=os.environ | env
    )
    assert done.stdout.strip() == "equal", done.stderr[-3000:]


@pytest.mark.slow
def test_the_kernel_equals_the_formula_in_the_interpreter() -> None:
    pytest.importorskip("triton")
    run_check(TRITON_INTERPRET="1", CUDA_VISIBLE_DEVICES="")


@pytest.mark.gpu
def test_the_kernel_equals_the_formula_on_a_gpu() -> None:
    run_check()
