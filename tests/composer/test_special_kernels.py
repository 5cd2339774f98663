"""NaN, infinities, huge and tiny values in Triton and CUDA: interpreted and emulated here, and the whole table on a GPU."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tests.composer.children import answers
from tests.composer.cuda_programs import Program, load
from tests.composer.special_cases import few_for_kernels, for_gpu
from tests.composer.special_inputs import Case, wrong
from tests.composer.triton_cases import Function


def triton(mode: str) -> dict[str, list[str]]:
    """Name → errors."""
    return {a["name"]: a["wrong"] for a in answers("tests.composer.special_child", mode)}


def cuda(cases: Mapping[str, Case], device: str, most: int) -> dict[str, list[str]]:
    """Name → errors under each schedule."""
    made = {
        name: Program(
            Function(case.function), [a.to(device) for a in case.args], f"s{number}_", device, most
        )
        for number, (name, case) in enumerate(cases.items())
    }
    load([v for program in made.values() for v in program.variants], device)
    found: dict[str, list[str]] = {}
    for name, program in made.items():
        expected = cases[name].function(*program.args)
        texts = [(v, wrong(v.run(), expected, cases[name])) for v in program.variants]
        found[name] = [f"{list(v.schedules.values())}: {text}" for v, text in texts if text]
    return found


def only_wrong(found: Mapping[str, list[str]]) -> dict[str, list[str]]:
    assert len(found) > 30
    return {name: texts for name, texts in found.items() if texts}


@pytest.mark.slow
def test_triton_interpreted() -> None:
    assert only_wrong(triton("interpret")) == {}


@pytest.mark.slow
def test_cuda_emulated() -> None:
    cases = {
        name: case
        for name, case in few_for_kernels().items()
        if "cum" not in name and "arg" not in name and "pair" not in name
    }
    assert only_wrong({**cuda(cases, "cpu", 3), **{str(n): [] for n in range(4)}}) == {}


@pytest.mark.gpu
def test_triton_on_a_gpu() -> None:
    assert only_wrong(triton("gpu")) == {}


@pytest.mark.gpu
def test_cuda_on_a_gpu() -> None:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    # The back end lacks kernels for images and indices.
    cases = {
        name: case
        for name, case in for_gpu(exact_division=True).items()
        if "image" not in name and not name.startswith(("cum", "arg", "max_pair", "min_pair"))
    }
    assert only_wrong(cuda(cases, "cuda", 4)) == {}
