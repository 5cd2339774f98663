"""CUDA texts: schedules, vector widths, guards, registers, offsets, split reductions."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from dvk.composer.codegen import cuda
from dvk.composer.codegen.base import codegen
from dvk.composer.ir.schedules.cuda import CudaLooped, CudaPersistent, CudaSplit
from tests.composer.cuda_programs import FEW, Program
from tests.composer.triton_cases import CASES, Function


def kernel_of(function: Callable[..., Any], *args: torch.Tensor) -> Any:
    (kernel,) = Program(Function(function), list(args), "", "cuda", most=1).kernels
    return kernel


def default_text(kernel: Any) -> str:
    return cuda.render(kernel, cuda.default_schedule(kernel))


def meta(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(*shape, dtype=dtype, device="meta")


@pytest.mark.parametrize("name", FEW)
def test_schedules_are_few_distinct_plain_data_with_the_default_first(name: str) -> None:
    torch.manual_seed(0)
    for kernel in Program(Function(CASES[name].function), CASES[name].args(), "", most=1).kernels:
        options = cuda.schedules(kernel)
        assert 1 <= len(options) <= 12
        assert options[0] == cuda.default_schedule(kernel)
        assert len({json.dumps(o.printed(), sort_keys=True) for o in options}) == len(options)
        for option in options:
            assert codegen("cuda").parse(json.loads(json.dumps(option.printed()))) == option
            assert cuda.render(kernel, option)
            parts, _ = cuda.functions(kernel, option)
            assert all(1 <= p.threads <= 1024 and p.grid >= 1 for p in parts)


def test_accesses_are_16_bytes_wide_where_sizes_allow() -> None:
    assert "dvk_load<4>(a0" in default_text(kernel_of(lambda x: torch.relu(x) + 1, meta(256, 1024)))
    assert "dvk_load<8>(a0" in default_text(
        kernel_of(lambda x: torch.relu(x) + 1, meta(256, 1024, dtype=torch.bfloat16))
    )
    assert "dvk_load<4>(a0" in default_text(
        kernel_of(lambda x: torch.softmax(x, -1), meta(256, 1024))
    )
    odd = default_text(kernel_of(lambda x: torch.softmax(x, -1), meta(256, 1021)))
    assert "dvk_load<" not in odd
    # A row that does not start at a multiple of 16 bytes may not be read in such units.
    shifted = default_text(kernel_of(lambda x: x[:, 1:1025] * 2, meta(256, 1026)))
    assert "dvk_load<" not in shifted and "dvk_store" in shifted


def test_sizes_that_divide_need_no_guard_and_broadcasts_are_read_once_a_vector() -> None:
    even = default_text(kernel_of(lambda x, y: torch.exp(x) * y, meta(1024, 1024), meta(1024, 1)))
    assert "if (u <" not in even and "const float v" in even and "dvk_get(a1[" in even
    assert "if (u <" in default_text(kernel_of(lambda x: torch.exp(x), meta(1023, 77)))


def test_a_row_is_read_once_where_it_fits_in_registers() -> None:
    kernel = kernel_of(lambda x: torch.nn.functional.layer_norm(x, (1024,)), meta(512, 1024))
    text = default_text(kernel)
    assert (
        isinstance(cuda.default_schedule(kernel), CudaPersistent)
        and text.count("dvk_load<4>(a0") == 1
    )
    looped = cuda.render(kernel, CudaLooped(lanes=128, rows=1, vector=4))
    assert looped.count("dvk_load<4>(a0") == 3


def test_variance_and_softmax_of_a_long_row_read_it_once_for_both_reductions() -> None:
    for function, reads in ((lambda x: torch.var(x, 1), 1), (lambda x: torch.softmax(x, 1), 2)):
        kernel = kernel_of(function, meta(512, 1 << 17))
        online = next(s for s in cuda.schedules(kernel) if isinstance(s, CudaLooped) and s.online)
        assert cuda.render(kernel, online).count("dvk_load<4>(a0") == reads
        assert (
            cuda.render(kernel, replace(online, online=False)).count("dvk_load<4>(a0") == reads + 1
        )


def test_offsets_beyond_two_billion_elements_are_64_bit() -> None:
    assert "long long" not in default_text(kernel_of(lambda x: x + 1, meta(1 << 20)))
    for function in (
        lambda x: x + 1,
        lambda x: torch.softmax(x, -1),
        lambda x: x.sum(0),
        lambda x: x.sum(),
    ):
        kernel = kernel_of(function, meta(1 << 16, 1 << 16))
        for schedule in cuda.schedules(kernel):
            assert "const long long" in cuda.render(kernel, schedule), schedule


def test_a_split_reduction_allocates_its_partial_results_and_launches_a_second_kernel() -> None:
    kernel = kernel_of(lambda x: x.sum(), meta(1 << 12, 1 << 12))
    schedule = cuda.default_schedule(kernel)
    assert isinstance(schedule, CudaSplit)
    assert cuda.launch(kernel, schedule, ["x"], ["y"]) == [
        f"_k0_float32 = dvk_allocate(({schedule.splits},), (1,), torch.float32)",
        "_dvk_k0_0(x, _k0_float32)",
        "_dvk_k0_1(y, _k0_float32)",
    ]


def test_memory_shared_by_input_and_output_is_not_called_unshared() -> None:
    kernel = kernel_of(lambda x, y: torch.relu(x) * y, meta(64, 64), meta(64, 64))
    text = cuda.render(kernel, cuda.default_schedule(kernel), {0: 0})
    assert (
        "const float* a0" in text and "float* o0" in text and "const float* __restrict__ a1" in text
    )
    assert "const float* __restrict__ a0" in default_text(kernel)
