"""Schedules: what is listed and how it is printed stays as records hold it; what is not legal is refused with the choices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dvk.composer import CannotCompose, Plan
from dvk.composer.algorithms import algorithms
from dvk.composer.codegen.base import codegen
from dvk.composer.ir.schedules.cpp import CppProduct
from dvk.composer.ir.schedules.triton import TritonFlat
from dvk.errors import UsageError
from dvk.records import Candidate
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


if __name__ == "__main__":
    rows = [(key, value) for name in CASES for key, value in listed(name).items()]
    text = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in rows)
    LISTED.write_text("{\n" + text + "\n}\n")
