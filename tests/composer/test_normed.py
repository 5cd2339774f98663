"""Matmuls of few rows behind a norm: one kernel, right under every schedule, and only where it is exact."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("triton")

from tests.composer.children import answers
from tests.composer.normed_child import CASES, brain, gated, one, program, scaled
from tests.composer.triton_cases import Function
from tests.composer.triton_programs import Program


@pytest.mark.slow
def test_every_schedule_agrees_with_torch() -> None:
    found = {a["key"]: a["wrong"] for a in answers("tests.composer.normed_child", "own")}
    assert found == dict.fromkeys(CASES, [])


@pytest.mark.parametrize("name", CASES)
def test_few_rows_are_normed_in_the_kernel_of_their_product(name: str) -> None:
    (kernel,) = program(name)[0].kernels.values()
    assert kernel.family == "product" and "rsqrt" in kernel.summary


def families(
    function: Callable[..., object], *args: torch.Tensor, device: str = "cuda"
) -> list[str]:
    return [k.family for k in Program(Function(function), list(args), device).kernels.values()]


def test_more_rows_are_normed_before_their_product() -> None:
    assert families(one, brain(2, 64), brain(64), brain(32, 64)) == ["row", "product"]


@pytest.mark.parametrize("kind", [torch.float16, torch.float32])
def test_other_types_are_normed_first(kind: torch.dtype) -> None:
    """In float16 the row without its scale may overflow."""
    args = [a.to(kind) for a in (brain(1, 64), brain(64), brain(32, 64))]
    assert families(one, *args) == ["row", "product"]


def test_a_layer_norm_is_no_scale() -> None:
    def centred(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.linear(F.layer_norm(x, (64,)), w)

    assert families(centred, brain(1, 64), brain(32, 64)) == ["row", "product"]


def test_a_row_that_is_kept_is_written_once() -> None:
    """A residual sum is a result: the kernel that writes it adds up its squares."""

    def behind(
        x: torch.Tensor, r: torch.Tensor, gain: torch.Tensor, w: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        total = x + r
        return total, F.linear(scaled(total, gain), w)

    args = [brain(1, 64), brain(1, 64), brain(64), brain(32, 64)]
    assert families(behind, *args) == ["row", "product"]


def test_a_cpu_norms_first() -> None:
    args = [brain(1, 64), brain(64), brain(32, 64), brain(32, 64)]
    assert families(gated, *args, device="cpu") == ["row", "product"]
