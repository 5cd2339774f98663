"""Plans as text: every schedule has words, what is written is read back, what cannot be read says why."""

from __future__ import annotations

from pathlib import Path

import pytest

from dvk.composer import Plan
from dvk.composer.algorithms import algorithms
from dvk.composer.capture.export import trace
from dvk.composer.codegen.base import codegen
from dvk.composer.ir.loops import Kernel
from dvk.composer.ir.schedules.triton import TritonFlat
from dvk.composer.plan_line import PlanError, read_plan, write_plan
from dvk.composer.plan_space import PlanSpace
from dvk.config import Config
from dvk.search import SearchProblem
from dvk.search.stratified import plans
from dvk.tasks import load
from tests.composer.schedule_cases import CASES, kernels

PLAIN = ("pointwise", "row", "column")
ORDER = ("fuse_pointwise", "fuse_rowwise", "own_matmul", "cuda_graph")
DEFAULT = Plan(("fuse_pointwise", "fuse_rowwise"))


@pytest.mark.parametrize("backend", ["triton", "cuda", "cpp"])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.slow
def test_every_schedule_is_read_as_it_is_written(name: str, backend: str) -> None:
    writer = codegen(backend)
    found = [k for k in kernels(name, backend) if writer.has_families or k.family in PLAIN]
    for kernel in found:
        options = [*writer.schedules(kernel)]
        if backend != "cuda" and kernel.family in PLAIN:
            options += [o for some in algorithms(kernel, backend).values() for o in some]
        for schedule in options:
            plan = Plan(DEFAULT.recipes, {kernel.name: schedule})
            text = write_plan(plan, DEFAULT)
            assert read_plan(text, DEFAULT, ORDER, lambda recipes: found, backend) == plan, text


def triton_kernels() -> list[Kernel]:
    return list(kernels("small", "triton"))


def test_a_plan_is_the_difference_from_the_default() -> None:
    flat = TritonFlat(block=256, warps=4)
    (kernel, *_) = triton_kernels()
    default = Plan(DEFAULT.recipes, {kernel.name: flat})
    assert write_plan(default, default) == "plan"
    plan = Plan(
        ("fuse_pointwise", "own_matmul"), {kernel.name: TritonFlat(block=512, warps=8), "k9": flat}
    )
    text = write_plan(plan, default)
    assert text.splitlines()[0] == "plan +own_matmul -fuse_rowwise"
    assert text.splitlines()[1:] == [
        f"{kernel.name} = flat block 512 warps 8",
        "k9 = flat block 256 warps 4",
    ]
    seen: list[tuple[str, ...]] = []

    def fused(recipes: tuple[str, ...]) -> list[Kernel]:
        seen.append(recipes)
        return triton_kernels()

    read = read_plan(text.splitlines()[0] + "\nsome kernel text", default, ORDER, fused, "triton")
    assert read == Plan(("fuse_pointwise", "own_matmul")) and seen == [read.recipes]
    both = Plan(DEFAULT.recipes, {"k0": flat, "k1": flat})
    assert write_plan(both, DEFAULT) == "plan\nk0 k1 = flat block 256 warps 4"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "first line is not `plan`"),
        ("k0 = flat block 256 warps 4", "first line is not `plan`"),
        ("plan own_matmul", "`own_matmul` is no recipe; write [+]NAME"),
        ("plan +nonsense", "is no recipe"),
        ("plan +fold_scale", "does not apply; those that do: fuse_pointwise"),
        ("plan\nk77 = flat block 256 warps 4", "line 2: no kernel `k77`; under these recipes: k0"),
        ("plan\nk0 = cooperative warps 4", "line 2: .*'cooperative'.*choose"),
        ("plan\nk0 = flat block 256", "line 2: .*lacks: `warps`"),
        ("plan\nk0 = flat block 100 warps 4", "line 2: .*a power of two"),
        ("plan\nk0 =", "line 2: "),
        (
            "plan\nk0 = looped xblock 1 rblock 512 warps 4 evict no online no",
            "line 2: that schedule runs row",
        ),
    ],
)
def test_what_is_no_plan_says_why(text: str, reason: str) -> None:
    with pytest.raises(PlanError, match=reason):
        read_plan(text, DEFAULT, ORDER, lambda recipes: triton_kernels(), "triton")


@pytest.mark.slow
def test_the_plans_of_a_task_come_back_from_their_text() -> None:
    """Whatever is measured can be said, and what was said composes to the same kernels."""
    for path in ("layernorm_gelu_residual", "mlp_head"):
        task = load(f"data/tasks/examples/{path}.py", device="cpu")
        problem = SearchProblem(task, trace(task), "cpp", (), Config())
        space = PlanSpace(task, trace(task), "cpp")
        found = plans(problem, 8, seed=0)
        assert len(found) == 8 and found[0][0] == "default"
        assert space.text(space.default) == space.text(Plan.of(found[0][1])) == "plan"
        for _, candidate in found:
            plan = Plan.of(candidate)
            said = space.text(plan)
            again = space.candidate(space.read(said), "")
            assert (again.schedule, set(again.recipes)) == (
                candidate.schedule,
                set(candidate.recipes),
            ), said
            assert again.id == candidate.id, said


def test_windows_and_scans_are_among_measured_plans(tmp_path: Path) -> None:
    path = tmp_path / "pooled.py"
    path.write_text(
        "import torch\n\n\nclass Model(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        return torch.max_pool2d(torch.softmax(x, -1), 2) + 1, torch.cumsum(x, -1) * 2\n\n\n"
        "def get_inputs():\n    return [torch.randn(2, 3, 64, 64)]\n"
    )
    task = load(str(path), device="cpu")
    found = plans(SearchProblem(task, trace(task), "triton", (), Config()), 24, seed=0)
    kinds = {one["kind"] for _, made in found for one in made.schedule.values()}
    assert len(found) > 6 and "window" in kinds and any("scan" in kind for kind in kinds)
