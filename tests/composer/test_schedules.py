"""Schedules: what is listed and how it is printed stays as records hold it; what is not legal is refused with the choices."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from dvk.composer import CannotCompose, Plan, applicable, fuse
from dvk.composer.algorithms import algorithms
from dvk.composer.codegen.base import codegen
from dvk.composer.ir.loops import Kernel
from dvk.composer.ir.schedules.cpp import CppProduct
from dvk.composer.ir.schedules.triton import TritonFlat
from dvk.errors import UsageError
from dvk.records import Candidate
from tests.composer.programs import TASK, capture
from tests.composer.schedule_cases import CASES, kernels

LISTED = Path(__file__).with_name("schedules.json")
"""Case and back end → the printed schedules of each kernel; `python -m tests.composer.test_schedules` writes it after a change.
"""
PLAIN = ("pointwise", "row", "column")


def listed(name: str) -> dict[str, Any]:
    return {
        f"{name}, {backend} {n}": [schedule.printed() for schedule in writer.schedules(kernel)]
        for backend in ("triton", "cuda", "cpp")
        for writer in [codegen(backend)]
        for n, kernel in enumerate(kernels(name, backend))
        if writer.has_families or kernel.family in PLAIN
    }


@pytest.mark.parametrize("name", CASES)
@pytest.mark.slow
def test_listed_schedules_are_printed_as_ever(name: str) -> None:
    """In the same order, with the same keys in the same order."""
    held = json.loads(LISTED.read_text())
    for key, schedules in listed(name).items():
        assert json.dumps(schedules) == json.dumps(held[key]), key


@pytest.mark.parametrize("name", CASES)
def test_every_listed_schedule_is_legal_and_parses_as_itself(name: str) -> None:
    for backend in ("triton", "cuda", "cpp"):
        writer = codegen(backend)
        for kernel in kernels(name, backend):
            if not writer.has_families and kernel.family not in PLAIN:
                continue
            found = [*writer.schedules(kernel)]
            if backend != "cuda" and kernel.family in PLAIN:
                found += [o for options in algorithms(kernel, backend).values() for o in options]
            for schedule in found:
                assert schedule.wrong() == []
                schedule.require_family(kernel.family)
                assert writer.parse(json.loads(json.dumps(schedule.printed()))) == schedule


@pytest.mark.parametrize(
    ("backend", "printed", "message", "hint"),
    [
        ("triton", {"kind": "cooperative", "warps": 4}, "`kind`: 'cooperative'", "persistent"),
        ("triton", {"block": 64, "warps": 4}, "no `kind`", "flat, stride, tile"),
        ("triton", "flat", "not a table", "'flat'"),
        ("triton", {"kind": "flat", "block": 64, "warps": 4, "depth": 2}, "`depth`", "block"),
        ("triton", {"kind": "flat", "block": 64}, "lacks: `warps`", "kind, block, warps"),
        ("triton", {"kind": "flat", "block": 100, "warps": 4}, "not legal", "a power of two"),
        ("triton", {"kind": "flat", "block": True, "warps": 4}, "not legal", "a power of two"),
        (
            "triton",
            {"kind": "looped", "xblock": 1, "rblock": 8, "warps": 1, "evict": True, "online": "x"},
            "not legal",
            "True or False or 'moments'",
        ),
        (
            "cuda",
            {"kind": "tile", "vector": 4},
            "`kind`: 'tile'",
            "flat, persistent, looped, split",
        ),
        ("cpp", {"form": "tree", "width": 512}, "`form`: 'tree'", "flat, outer, dot, direct"),
        ("cpp", {"parallel": "all", "chunk": 8, "width": 512}, "not legal", "'rows' or 'inner'"),
        ("cpp", {"parallel": "rows", "chunk": 8, "width": 128}, "not legal", "256 or 512"),
    ],
)
def test_what_is_not_legal_is_refused_with_the_choices(
    backend: str, printed: Any, message: str, hint: str
) -> None:
    candidate = Candidate(source="", backend=backend, schedule={"k7": printed})
    with pytest.raises(UsageError) as caught:
        Plan.of(candidate)
    assert "k7" in str(caught.value) and message in str(caught.value)
    assert hint in (caught.value.hint or "")


def test_a_schedule_of_another_back_end_or_family_is_refused() -> None:
    (kernel,) = kernels("softmax", "triton")
    with pytest.raises(CannotCompose, match="CppProduct"):
        codegen("triton").render(
            kernel, CppProduct(form="dot", parallel="rows", panel=64, width=512)
        )
    with pytest.raises(CannotCompose, match="runs pointwise kernels, not row"):
        codegen("triton").render(kernel, TritonFlat(block=64, warps=4))


def on_gpu(function: Callable[..., Any], *args: torch.Tensor) -> Kernel:
    graph = capture(function, *args)
    recipes = tuple(applicable(graph.graph, "cuda", "triton"))
    (kernel,) = fuse(TASK.model_copy(update={"device": "cuda"}), graph, recipes).ordered
    return kernel


def test_no_loop_counts_beyond_32_bits() -> None:
    huge = torch.empty(1 << 16, 1 << 16, device="meta")
    kernel = on_gpu(lambda x: x.square().mean(), huge)
    found = codegen("triton").schedules(kernel)
    assert found and {s.kind for s in found} == {"split"}


def test_blocks_within_bounds_are_small() -> None:
    def shifted(x: torch.Tensor) -> torch.Tensor:
        return (x[1:] - x[:-1]).abs().mean() + (x[:, 1:] - x[:, :-1]).abs().mean()

    bounded, plain = (
        codegen("triton").schedules(on_gpu(function, torch.zeros(1, 1).expand(4096, 4096)))[0]
        for function in (shifted, lambda x: x.exp().mean())
    )
    assert (bounded.printed()["rblock"], plain.printed()["rblock"]) == (1024, 2048)


if __name__ == "__main__":
    rows = [(key, value) for name in CASES for key, value in listed(name).items()]
    text = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in rows)
    LISTED.write_text("{\n" + text + "\n}\n")
