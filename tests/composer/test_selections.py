"""One place of a sorted line: thresholds of top-k filters, `kthvalue`, elements of `sort`, without a sort and exact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from dvk.composer import applicable
from dvk.composer.compose import fuse
from dvk.composer.lowering import selections
from dvk.composer.plan_space import PlanSpace
from tests.composer.children import answers
from tests.composer.programs import TASK, Program, capture, compiled
from tests.composer.selection_cases import below, filters, hard, places, same, sampled, written

ON_GPU = TASK.model_copy(update={"device": "cuda"})


def check(made: dict[str, Program]) -> None:
    """Every program is exactly eager, and sorts nothing."""
    compiled(made.values())
    for name, program in made.items():
        assert program.externs == [], name
        assert same(program.run(), program.eager()), name


@pytest.mark.parametrize("bits", [1, 2])
@pytest.mark.slow
def test_every_form_is_exact(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selections, "IN_REGISTERS", 1 << 20 if bits == 1 else 1)
    made = {
        f"filters {k}, {dtype}": Program(lambda x, k=k: filters(x, k), hard(37, dtype))
        for k, dtype in ((5, torch.float32), (37, torch.bfloat16), (1 + bits, torch.float16))
    }
    made["places"] = Program(
        lambda x: places(x, 4), hard(37, (torch.float32, torch.half)[bits - 1])
    )
    made["scaled"] = Program(lambda x: filters(x / 0.7, 4), hard(37, torch.bfloat16))
    made["wider"] = Program(lambda x: filters(x.float() * 3 / 0.7, 4), hard(37, torch.float16))
    check(made)


@pytest.mark.slow
def test_layouts_and_dimensions() -> None:
    x = hard(37)
    check(
        {
            "columns": Program(lambda x: below(x, x.topk(3, 0)[0][-1:]), x),
            "transposed": Program(lambda x: filters(x.t(), 3), x),
            "middle": Program(lambda x: x.kthvalue(4, 1)[0] + 1, x.view(5, 37, 2)),
            "sliced": Program(lambda x: filters(x[::2, 1::3], 4), x),
            "written": Program(written, x),
            "one": Program(lambda x: (*filters(x, 1), x.kthvalue(1)[0]), x[:, :1]),
            "long": Program(lambda x: filters(x, 50)[0], torch.randn(2, 70_001)),
        }
    )


def test_a_sampler_is_one_kernel() -> None:
    args = torch.randn(4, 5000).bfloat16(), torch.rand(4, 5000) + 0.1
    program = Program(sampled, *args)
    (kernel,) = program.kernels
    # The order of the logits in bfloat16 decides: 16 passes that read two bytes an element, not 32 of the scaled ones.
    assert kernel.family == "row" and sum(i.op == "lt" for i in kernel.instrs) == 16 + 2
    check({"sampler": program})


@pytest.mark.slow
def test_triton_is_exact() -> None:
    """Nucleus sampling included."""
    pytest.importorskip("triton")
    found = list(answers("tests.composer.selection_cases", "own"))
    assert len(found) == 11 and [(a["key"], a["wrong"]) for a in found if a["wrong"]] == []
    families = {a["key"]: a["families"] for a in found}
    assert families == {name: ["column" if name == "columns" else "row"] for name in families}
    assert {"persistent", "looped", "split"} <= {kind for a in found for kind in a["offered"]}


def returned(x: torch.Tensor) -> Any:
    values = x.topk(5)[0]
    return values, x < values[:, -1:]


NOT_COVERED: dict[str, tuple[Callable[[torch.Tensor], Any], torch.Tensor]] = {
    "values are returned": (returned, hard(37)),
    "two places": (lambda x: x.topk(5)[0][:, 2:4] + 1, hard(37)),
    "two views": (lambda x: (lambda v: v[:, 0] - v[:, 1])(x.topk(5)[0]), hard(37)),
    "another dimension": (lambda x: x.topk(5)[0][3], hard(37)),
    "indices": (lambda x: x.topk(5)[1][:, -1] + 1, hard(37)),
    "not sorted": (lambda x: x.topk(5, sorted=False)[0][:, -1], hard(37)),
    "double": (lambda x: x.topk(5)[0][:, -1], hard(37).double()),
    "integers": (lambda x: x.kthvalue(5)[0], torch.arange(40).view(4, 10)),
}


@pytest.mark.parametrize("name", NOT_COVERED)
def test_other_reads_stay_with_torch(name: str) -> None:
    function, x = NOT_COVERED[name]
    assert "own_selections" not in applicable(capture(function, x).graph, "cuda", "triton")


def test_it_is_measured_against_the_library() -> None:
    captured = capture(lambda x: filters(x, 5)[0], hard(37))
    names = tuple(applicable(captured.graph, "cuda", "triton"))
    assert "own_selections" in names
    assert "own_selections" not in applicable(captured.graph, "cuda", "cuda")
    space = PlanSpace(ON_GPU, captured, "triton")
    assert "own_selections" not in space.default.recipes
    assert any("own_selections" in plan.recipes for plan, _ in space.structures())
    without = fuse(ON_GPU, captured, space.default.recipes)
    assert "aten.topk.default" in [p.op for p in without.part.users]
