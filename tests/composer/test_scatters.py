"""Writes at few places of each line, with their neighbours: no copy of the tensor is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from dvk.composer import applicable
from dvk.composer.compose import fuse
from tests.composer.programs import TASK, Program, capture, check, differences

INF, NAN = float("inf"), float("nan")
X, PLACES = torch.randn(6, 50), torch.tensor([3, 0, 49, 7, 7, 20])
X[0, 3], X[1, 1], X[2, 5], X[3, 7] = NAN, INF, -INF, NAN
WIDE = torch.randn(2, 5, 3, 4)
Call = tuple[Callable[..., Any], tuple[torch.Tensor, ...]]


def written(x: torch.Tensor, mask: torch.Tensor, value: float) -> torch.Tensor:
    x[mask] = value
    return x


WRITES: dict[str, Call] = {
    "the row's other maximum": (lambda x, i: x.scatter(1, i[:, None], -INF).amax(1), (X, PLACES)),
    "the label of each row": (
        lambda x, i: F.softmax(x - torch.zeros_like(x).scatter_(1, i[:, None], 0.3), -1),
        (X, PLACES),
    ),
    "source": (lambda x, i, s: x.scatter(1, i[:, None], s).exp(), (X, PLACES, torch.randn(6, 1))),
    "part of a source": (
        lambda x, i, s: x.scatter(1, i[:, None], s * 2).exp(),
        (X, PLACES, torch.randn(7, 3)),
    ),
    "source of NaN": (
        lambda x, i: x.scatter(1, i[:, None], torch.full_like(x[:, :1], NAN)) + 1,
        (X, PLACES),
    ),
    "in place": (lambda x, i: (x * 2).scatter_(1, i[:, None], 0.0).sum(1), (X, PLACES)),
    "added": (
        lambda x, i, s: (x * 2).scatter_add(1, i[:, None], s).relu(),
        (X, PLACES, torch.randn(6, 1)),
    ),
    "along the first dimension": (
        lambda x, i: x.scatter(0, i[None] % 6, 1.5) * 2,
        (X[:, :6].contiguous(), PLACES),
    ),
    "in the middle, place per element": (
        lambda x, i: x.scatter(1, i, 0.0).sum(-1),
        (WIDE, torch.randint(0, 5, (2, 1, 3, 4))),
    ),
    "several places": (
        lambda x, i: torch.zeros_like(x).scatter(1, i, 1.0) * x,
        (X, torch.randint(0, 50, (6, 4))),
    ),
    "places from topk": (
        lambda x: x.masked_fill(
            torch.ones_like(x, dtype=torch.bool).scatter(1, x.topk(2, 1).indices, False), -INF
        ),
        (X,),
    ),
    "integers": (lambda i: (i[:, None] * i).scatter(1, i[:, None] % 6, 7) + 1, (PLACES,)),
    "doubles": (lambda x, i: x.double().scatter(1, i[:, None], 0.1) * 2, (X, PLACES)),
    "halves": (lambda x, i: (x.half() * 2).scatter(1, i[:, None], 0.1) + 1, (X, PLACES)),
    "index_fill": (lambda x, i: x.index_fill(1, i, -1.0).exp(), (X, torch.tensor([-1, 4, 4]))),
    "where a mask holds": (lambda x: written(x * 2, x < 0.1, 0.5).sum(1), (X,)),
    "integers where a mask holds": (lambda i: written(i * 3, i > 2, 7) + 1, (PLACES,)),
    "one place": (lambda x: x[:, [-2]] * 2 + x[[1]], (X,)),
}


@pytest.mark.slow
def test_it_is_one_kernel_with_its_neighbours() -> None:
    made = [(name, Program(forward, *args)) for name, (forward, args) in WRITES.items()]
    topk = dict(made).pop("places from topk")
    check([(name, program) for name, program in made if program is not topk])
    assert differences(topk.run(), topk.eager()) == [] and topk.externs == ["aten.topk.default"]
    # Places that several operations compute are computed once.
    several = {"along the first dimension", "integers"}
    assert {name for name, program in made if len(program.kernels) > 1} == several


def test_the_tensor_is_read_once_and_no_copy_is_written() -> None:
    program = Program(*[WRITES["the row's other maximum"][0], X, PLACES])
    (kernel,) = program.kernels
    assert kernel.num_bytes == X.nbytes + PLACES.nbytes + 6 * 4


def test_a_place_that_does_not_exist_gives_nan_in_its_row_alone() -> None:
    """PyTorch raises; a kernel cannot."""
    x = torch.randn(6, 50)
    program = Program(lambda x, i: x.scatter(1, i[:, None], 0.0).sum(1), x, PLACES)
    wrong = PLACES.clone()
    wrong[1], wrong[4] = -1, 50
    with pytest.raises(RuntimeError):
        program.eager(x, wrong)
    assert program.run(x, wrong).isnan().tolist() == [False, True, False, False, True, False]


def test_classes_become_comparisons_on_a_gpu() -> None:
    """PyTorch's own check there is an assertion inside of a kernel; on a CPU it raises first, and the call stays."""
    graph = capture(lambda x, i: (F.one_hot(i, 50) * x).sum(1), X, PLACES)
    recipes = applicable(graph.graph, "cuda", "triton")
    assert "own_gathers" in recipes
    (kernel,) = fuse(TASK.model_copy(update={"device": "cuda"}), graph, recipes).ordered
    assert kernel.num_bytes == X.nbytes + PLACES.nbytes + 6 * 4
    assert "own_gathers" not in applicable(graph.graph, "cpu", "cpp")


def test_writes_of_other_forms_stay_calls() -> None:
    many = torch.randint(0, 50, (6, 9))
    calls: list[Call] = [
        (lambda x, i: x.scatter(1, i, 0.0), (X, many)),
        (lambda x, i: x.scatter(1, i, x[:, :9]), (X, many)),
        (lambda x, i: x.scatter(1, i[:4, :1], 0.0), (X, many)),
        (lambda x, i: x.scatter(1, i[:, :1], 2.0, reduce="multiply"), (X, many)),
    ]
    for forward, args in calls:
        assert "own_gathers" not in applicable(capture(forward, *args).graph, "cpu", "cpp")
