"""fp8 products with scales of blocks: right under every schedule, recognised in each form, measured and never taken for granted."""

from __future__ import annotations

import re

import pytest
import torch

pytest.importorskip("triton")

from dvk.composer import applicable
from dvk.composer.capture.export import trace_module
from dvk.composer.codegen import triton as renderer
from dvk.composer.ir.schedules.triton import TritonProduct
from dvk.composer.lowering.dispatch import BLOCK_PRODUCTS
from dvk.composer.plan_space import PlanSpace
from tests.composer.block_scales_child import CASES, codes, expanded, program, repeated, scales
from tests.composer.children import answers
from tests.composer.programs import TASK
from tests.composer.triton_cases import Function
from tests.composer.triton_programs import Program

FUSED = [name for name, case in CASES.items() if case.fused]


@pytest.mark.slow
def test_every_schedule_agrees_with_the_operands_in_float64() -> None:
    found = {a["key"]: a["wrong"] for a in answers("tests.composer.block_scales_child", "own")}
    assert found == dict.fromkeys(CASES, [])


@pytest.mark.parametrize("name", FUSED)
@pytest.mark.slow
def test_codes_are_multiplied_as_they_lie_in_memory(name: str) -> None:
    made, _ = program(name)
    *_, kernel = made.kernels.values()
    text = renderer.render(kernel, renderer.default_schedule(kernel))
    assert [k.family for k in made.kernels.values()].count("product") == 1
    assert re.search(r"acc\d+ \+= tl\.dot\(p\d+, q\d+\) \* \(v", text)
    weights = [b for b in kernel.inputs if b.dtype.startswith("float8") and len(b.shape) > 1]
    assert weights and all(not b.steps for b in kernel.inputs)


@pytest.mark.parametrize("name", sorted(CASES.keys() - set(FUSED)))
def test_smaller_blocks_at_the_end_are_left_to_other_kernels(name: str) -> None:
    made, _ = program(name)
    assert not any(prim.attrs.get("blocks") for prim in made.prims.prims)


def test_scales_of_single_elements_are_no_blocks() -> None:
    def dequantised(x: torch.Tensor, w: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        return x @ (w.float() * s).t()

    made = Program(
        Function(dequantised), [torch.randn(8, 256), codes(128, 256), scales(1, 256)], "cuda"
    )
    assert not any(prim.attrs.get("blocks") for prim in made.prims.prims)


def test_tiles_within_a_block_read_one_scale() -> None:
    made, _ = program("both")
    (kernel,) = made.kernels.values()
    for schedule in renderer.schedules(kernel):
        assert isinstance(schedule, TritonProduct)
        text = renderer.render(kernel, schedule)
        assert ("xb = " in text) is (schedule.columns <= 128)


def test_an_infinite_scale_gives_nan_as_it_does_where_it_meets_a_zero() -> None:
    made, _ = program("both")
    (kernel,) = made.kernels.values()
    text = renderer.render(kernel, renderer.default_schedule(kernel))
    assert len(re.findall(r"v(\d+) = v(\d+) \* 0\.0", text)) == 2


@pytest.mark.parametrize("written", [repeated, expanded])
def test_the_recipe_is_listed_and_measured(written: object) -> None:
    def module(x: torch.Tensor, w: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        return x @ written(w, s).to(x.dtype).t()  # type: ignore[operator]

    args = [torch.randn(16, 256).bfloat16(), codes(256, 256), scales(2, 2)]
    captured = trace_module(Function(module), args, ["x", "w", "s"])
    assert BLOCK_PRODUCTS in applicable(captured.graph, "cuda", "triton")
    assert BLOCK_PRODUCTS not in applicable(captured.graph, "cuda", "cuda")
    space = PlanSpace(TASK.model_copy(update={"device": "cuda"}), captured, "triton")
    usual, *others = (plan.recipes for plan, _ in space.structures())
    assert BLOCK_PRODUCTS not in usual and any(BLOCK_PRODUCTS in names for names in others)
    alone = next(names for names in others if BLOCK_PRODUCTS in names)
    assert [k.family for k in space.fused(alone).ordered] == ["product"]


def test_codes_without_scales_of_blocks_have_no_such_recipe() -> None:
    def module(x: torch.Tensor, w: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
        return x @ (w.float() * s).to(x.dtype).t()

    args = [torch.randn(16, 256).bfloat16(), codes(256, 256), scales(256, 1)]
    captured = trace_module(Function(module), args, ["x", "w", "s"])
    assert BLOCK_PRODUCTS not in applicable(captured.graph, "cuda", "triton")
