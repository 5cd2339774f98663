"""Steps of optimizers over lists of tensors: what happens to one tensor is one kernel."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dvk.composer.rewrites import foreach
from tests.composer.programs import Program, capture, compiled, differences, usual

SIZES = ((5, 7), (9,), (2, 3, 4))


Lists = list[torch.Tensor]


def adamw(*given: torch.Tensor) -> tuple[Lists, Lists, Lists]:
    """New weights and moments of weights, gradients, means and mean squares."""
    weights, grads, means, squares = (
        list(given[n * len(SIZES) : (n + 1) * len(SIZES)]) for n in range(4)
    )
    means = torch._foreach_lerp(means, grads, 0.1)
    squares = torch._foreach_mul(squares, 0.999)
    squares = torch._foreach_addcmul(squares, grads, grads, value=0.001)
    roots = torch._foreach_sqrt(torch._foreach_div(squares, [0.5, 0.25, 0.125]))
    steps = torch._foreach_addcdiv(
        torch._foreach_mul(weights, 0.99), means, torch._foreach_add(roots, 1e-8), value=-0.01
    )
    return steps, means, squares


def in_place(x: torch.Tensor, y: torch.Tensor) -> Any:
    made = torch._foreach_exp([x, y])
    torch._foreach_mul_(made, 2.0)
    torch._foreach_add_([x, y], made)
    return made


def norms(x: torch.Tensor, y: torch.Tensor) -> Any:
    """The second has no element-wise operator of that name and stays a call."""
    scaled = torch._foreach_mul([x, y], torch.tensor(0.5))
    return torch._foreach_norm(scaled), torch._foreach_clamp_max(scaled, [0.1, 0.2])


def operands() -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.rand(size) + 0.1 for _ in range(4) for size in SIZES]


@pytest.fixture(scope="module")
def programs() -> dict[str, Program]:
    made = {
        "adamw": Program(adamw, *operands()),
        "norms": Program(norms, torch.randn(4, 6), torch.randn(9)),
        "in place": Program(in_place, torch.randn(4, 6), torch.randn(9)),
    }
    compiled(made.values())
    return made


@pytest.mark.parametrize("name", ["adamw", "norms", "in place"])
@pytest.mark.slow
def test_results_and_writes_are_eagers(programs: dict[str, Program], name: str) -> None:
    program = programs[name]
    after = []
    for run in (program.run, program.eager):
        args = [value.clone() for value in program.args]
        after.append((run(*args), args))
    assert differences(*after) == []


def test_a_step_is_a_kernel_for_each_tensor(programs: dict[str, Program]) -> None:
    assert programs["adamw"].externs == [] and len(programs["adamw"].kernels) == len(SIZES)
    assert [op.split(".")[1] for op in programs["norms"].externs] == ["_foreach_norm"]
    stay = [op.split(".")[1] for op in programs["in place"].externs]
    assert stay == ["_foreach_exp", "_foreach_mul_", "_foreach_add_"]


def test_lists_too_long_for_launches_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = capture(adamw, *operands()).graph
    assert "lists_apart" in usual(graph)
    monkeypatch.setattr(foreach, "MOST", 2)
    assert foreach.rewrite(graph) is None
