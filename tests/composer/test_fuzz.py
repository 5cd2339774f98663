"""A seeded slice of the fuzzer, and proof that the fuzzer detects errors."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from dvk.composer.ir.affine import Affine
from dvk.composer.ir.loops import Store
from tests.composer.fuzz import Case, Generator, cases
from tests.composer.programs import Program, compiled, out_of_bounds


def faults(seeds: range, nets: bool = False) -> list[str]:
    found: list[str] = []
    for case in cases(seeds, lambda seed, text: found.append(f"seed {seed}: {text}"), nets):
        found.extend(f"seed {case.seed}: {text}\n{case.text}" for text in case.faults())
    return found


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("nets", [False, True])
@pytest.mark.parametrize("start", range(8000, 8120, 60))
def test_hundreds_of_random_modules(start: int, nets: bool) -> None:
    """`python -m tests.composer.fuzz` runs thousands."""
    assert faults(range(start, start + 60), nets) == []


def test_equal_seeds_give_equal_modules() -> None:
    texts = {Generator(5).write().source() for _ in range(2)}
    assert len(texts) == 1 and texts != {Generator(6).write().source()}


def test_it_notices_a_wrong_index() -> None:
    case = Case(7001)
    program = case.programs[0]
    kernel = program.kernels[0]
    moved = replace(
        kernel, stores=tuple(Store(s.value, s.buffer, s.offset.shift(10**6)) for s in kernel.stores)
    )
    assert out_of_bounds(kernel) == [] and out_of_bounds(moved) != []
    beneath = replace(
        kernel,
        stores=tuple(Store(s.value, s.buffer, s.offset + Affine((), -1)) for s in kernel.stores),
    )
    assert out_of_bounds(beneath) != []


def test_it_notices_a_wrong_value() -> None:
    case = Case(7001)
    case.programs[0].cpp = case.programs[0].cpp.replace("0.2f", "0.3f")
    compiled(case.programs)
    assert any(text.startswith("default") for text in case.faults())


def test_poison_shows_elements_that_no_kernel_writes() -> None:
    program = Program(lambda x: torch.relu(x) + 1, torch.randn(4, 5))
    program.text = (
        "\n".join(line for line in program.text.splitlines() if "_dvk_m" not in line) + "\n"
    )
    compiled([program])
    assert program.run().isnan().all()
