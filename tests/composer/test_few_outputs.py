"""Convolutions of few channels into few outputs on a GPU: read through windows, and the outputs added up where they are computed."""

from __future__ import annotations

import os
import subprocess
import sys

import torch
import torch.nn.functional as F
from torch import Tensor

from dvk.composer.compose import fuse_graph
from tests.composer.programs import capture
from tests.composer.triton_programs import Program, nth

IMAGES, KERNELS = torch.randn(2, 1, 9, 11), torch.randn(2, 1, 3, 3)


def strength(x: Tensor, w: Tensor) -> Tensor:
    return torch.sqrt(F.conv2d(x, w).square().sum(dim=1, keepdim=True) + 1e-4)


def padded(x: Tensor, w: Tensor) -> Tensor:
    return F.conv2d(x, w, padding=1).square().sum(dim=1)


def halves(x: Tensor, w: Tensor) -> Tensor:
    return F.conv2d(x, w, None, 2).abs().sum(1)


def biased(x: Tensor, w: Tensor) -> Tensor:
    return torch.relu(F.conv2d(x, w, w[:, 0, 0, 0], padding=2, dilation=2))


def interpreted() -> None:
    """Every schedule against PyTorch; run with Triton's interpreter."""
    half = IMAGES.bfloat16(), KERNELS.bfloat16()
    whole = IMAGES, KERNELS
    for function, args in ((strength, whole), (padded, whole), (halves, half), (biased, half)):
        module = torch.nn.Module()
        module.forward = function  # type: ignore[method-assign]
        program, want = Program(module, [*args], device="cuda"), function(*args)
        for number in program.distinct():
            bound = 1e-5 if want.dtype == torch.float32 else 3e-2
            torch.testing.assert_close(program.run(nth(number)), want, rtol=bound, atol=bound)


def test_every_schedule_agrees_with_pytorch() -> None:
    command = "from tests.composer.test_few_outputs import interpreted; interpreted()"
    env = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", command], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def test_one_kernel_reads_the_image_and_writes_the_sum() -> None:
    graph = capture(strength, IMAGES, KERNELS).graph
    names = ("fuse_pointwise", "fuse_epilogue", "fuse_rowwise", "own_few_channels")
    made = fuse_graph(graph, names, "cuda")
    (kernel,) = made.ordered
    assert kernel.num_bytes <= 2 * IMAGES.nbytes + KERNELS.nbytes
    assert [i.op for i in kernel.instrs].count("reduce_sum") == 2


def test_padded_windows_are_in_the_kernel_of_their_sum() -> None:
    graph = capture(padded, IMAGES, KERNELS).graph
    names = ("fuse_pointwise", "fuse_epilogue", "fuse_rowwise", "own_few_channels")
    assert [k.family for k in fuse_graph(graph, names, "cuda").ordered] == ["window", "column"]


def test_many_outputs_stay_a_product() -> None:
    graph = capture(lambda x, w: F.conv2d(x, w), IMAGES, torch.randn(16, 1, 3, 3)).graph
    (kernel,) = fuse_graph(graph, ("own_few_channels",), "cuda").ordered
    assert kernel.family == "product"
