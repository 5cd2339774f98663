"""Norms of rows whose mean is much larger than their spread: as close to real arithmetic as PyTorch's, under every schedule."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from dvk.composer.codegen.base import codegen
from dvk.composer.dropin.layouts import inplace_pairs
from tests.composer import cuda_programs
from tests.composer.large_means import NORMS, differences, inputs, shape_of
from tests.composer.programs import Function, Program, compiled, fused
from tests.composer.special_options import options

ROOT = Path(__file__).resolve().parents[2]
FAST = ["layer_norm", "down columns"]


def in_cpp(name: str, length: int) -> dict[str, str]:
    first = Program(NORMS[name], torch.randn(shape_of(name, length)))
    assert first.kernels
    count = max(len(options(k)) for k in first.kernels)
    programs = [
        first.under(lambda k, n=n: options(k)[min(n, len(options(k)) - 1)]) for n in range(count)
    ]
    compiled(programs)
    runs = {f"{n} {list(p.schedules.values())}": p.run for n, p in enumerate(programs)}
    return differences(NORMS[name], inputs(shape_of(name, length)), runs)


def in_cuda(name: str, length: int, most: int) -> dict[str, str]:
    """In the emulator."""
    made = cuda_programs.Program(
        Function(NORMS[name]), [torch.randn(shape_of(name, length))], "means", most=most
    )
    cuda_programs.load(made.variants, "cpu")

    def under(variant: cuda_programs.Variant, x: torch.Tensor) -> torch.Tensor:
        made.args = [x]
        return variant.run()  # type: ignore[no-any-return]

    runs = {
        f"{n} {list(v.schedules.values())}": lambda x, v=v: under(v, x)
        for n, v in enumerate(made.variants)
    }
    return differences(NORMS[name], inputs(shape_of(name, length)), runs)


def in_triton(names: list[str], length: int, most: int) -> dict[str, dict[str, str]]:
    """In the interpreter, which a process has from the start or not at all."""
    pytest.importorskip("triton")
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "tests.composer.triton_means",
            str(length),
            str(most),
            *names,
        ],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return {key: wrong for key, wrong in json.loads(done.stdout).items() if wrong}


@pytest.mark.parametrize("name", FAST)
def test_a_large_mean_costs_no_more_digits_than_in_pytorch(name: str) -> None:
    torch.manual_seed(0)
    assert in_cpp(name, 768) == {}


@pytest.mark.parametrize("name", FAST)
@pytest.mark.slow
def test_nor_in_cuda(name: str) -> None:
    torch.manual_seed(0)
    assert in_cuda(name, 768, 3) == {}


@pytest.mark.slow
def test_nor_do_outliers_at_the_start_of_rows_in_shifted_moments() -> None:
    assert in_triton(["layer_norm of chosen values"], 768, 0) == {}


@pytest.mark.parametrize("backend", ["cpp", "triton", "cuda"])
def test_every_schedule_centres_the_mean(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (kernel,) = fused(NORMS["layer_norm"], torch.randn(6, 300)).ordered
    writer = codegen(backend)
    schedules = writer.schedules(kernel)
    texts = [writer.render(kernel, schedule) for schedule in schedules]
    module = importlib.import_module(f"dvk.composer.codegen.{backend}")
    monkeypatch.setattr(module, "centred", lambda kernel: kernel)
    assert not set(texts) & {writer.render(kernel, schedule) for schedule in schedules}


def test_a_first_element_that_several_launches_read_is_not_overwritten() -> None:
    made = fused(
        lambda x, w: F.layer_norm(F.linear(x, w), (300,)), torch.randn(6, 8), torch.randn(300, 8)
    )
    (kernel,) = made.ordered
    alone, shared = (
        inplace_pairs(kernel, made.part, made.prims, set(), splits_rows)
        for splits_rows in (False, True)
    )
    assert alone == {0: 0} and shared == {}
    assert (
        not codegen("cpp").splits_rows
        and codegen("triton").splits_rows
        and codegen("cuda").splits_rows
    )


@pytest.mark.slow
@pytest.mark.parametrize("length", [37, 4096])
@pytest.mark.parametrize("name", NORMS)
def test_large_means_of_every_norm(name: str, length: int) -> None:
    torch.manual_seed(0)
    assert in_cpp(name, length) == {}


@pytest.mark.slow
@pytest.mark.hand
@pytest.mark.parametrize("name", NORMS)
def test_large_means_of_every_norm_in_cuda(name: str) -> None:
    torch.manual_seed(0)
    assert in_cuda(name, 4096, 99) == {}


@pytest.mark.slow
@pytest.mark.hand
def test_large_means_of_every_norm_in_triton() -> None:
    assert in_triton(list(NORMS), 1500, 99) == {}


def test_the_sum_itself_is_still_the_sum() -> None:
    x = torch.randn(5, 300) + 1000
    x[1, 0], x[2, 0], x[3, 7], x[4, 0] = torch.inf, torch.nan, -torch.inf, 3e38
    program = Program(lambda x: (x.sum(1), x.mean(1), x - x.mean(1, keepdim=True)), x)
    for got, want in zip(program.run(), program.eager(), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=3e-4, equal_nan=True)
