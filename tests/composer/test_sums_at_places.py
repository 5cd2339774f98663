"""Sums at computed places on a GPU: what is added is computed where it is added, and is never written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from dvk.composer import applicable
from dvk.composer.compose import Plan, compose, fuse
from dvk.composer.ir.loops import Kernel
from tests.composer.programs import TASK, capture

NODES, EDGES, WIDTH = 7, 90, 20
X = torch.randn(NODES, WIDTH)
EDGE, WEIGHT = torch.randint(0, NODES, (2, EDGES)), torch.rand(EDGES, 1)
ON_GPU = TASK.model_copy(update={"device": "cuda"})


def messages(x: torch.Tensor, edge: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    sent = torch.relu(x[edge[0]] * weight)
    return torch.zeros_like(x).index_add(0, edge[1], sent)


def kernels(function: Callable[..., Any], *args: torch.Tensor) -> list[Kernel]:
    graph = capture(function, *args)
    return fuse(ON_GPU, graph, tuple(applicable(graph.graph, "cuda", "triton"))).ordered


def test_a_message_is_gathered_computed_and_added_in_one_kernel() -> None:
    (kernel,) = kernels(messages, X, EDGE, WEIGHT)
    assert kernel.num_bytes == 2 * X.nbytes + EDGE.nbytes + WEIGHT.nbytes


def test_what_was_there_is_added_by_the_next_kernel() -> None:
    first, second = kernels(
        lambda x, e, w: torch.tanh(x.index_add(0, e[1], x[e[0]] * w)), X, EDGE, WEIGHT
    )
    assert [k.stores[0].places != () for k in (first, second)] == [True, False]
    assert second.num_bytes == 3 * X.nbytes


def test_an_index_that_is_repeated_along_the_row_is_read_once_a_row() -> None:
    def add(x: torch.Tensor, edge: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(x).scatter_add(0, edge[1][:, None].expand_as(rows), rows)

    (kernel,) = kernels(add, X, EDGE, torch.randn(EDGES, WIDTH))
    assert kernel.num_bytes == EDGE.nbytes + EDGES * WIDTH * 4 + X.nbytes


@pytest.mark.parametrize(("columns", "counted"), [(1, WIDTH), (5, WIDTH), (WIDTH, 1)])
def test_elements_are_counted_once_a_row_where_the_index_covers_whole_rows(
    columns: int, counted: int
) -> None:
    """Where it covers some columns, nothing is added to the others."""

    def mean(x: torch.Tensor, target: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return x.scatter_reduce(0, target[:, None].expand_as(rows), rows, "mean")

    made = kernels(mean, X, EDGE[1], torch.randn(EDGES, columns))
    adding = [k for k in made if k.stores[0].places]
    assert [k.outputs[0].shape for k in adding] == [(NODES, WIDTH), (NODES, counted)]


def test_memory_starts_at_zero_and_the_order_of_sums_may_be_forbidden() -> None:
    captured = capture(messages, X, EDGE, WEIGHT)
    recipes = tuple(applicable(captured.graph, "cuda", "triton"))
    task = ON_GPU.model_copy(update={"source": "class Model: pass"})
    text = compose(task, captured, Plan(recipes), "triton").source
    assert "torch.zeros_like(x0)" in text and "tl.atomic_add" in text
    assert "and not torch.are_deterministic_algorithms_enabled()" in text


@pytest.mark.parametrize(("device", "backend"), [("cpu", "cpp"), ("cuda", "cuda")])
def test_other_back_ends_leave_it_to_pytorch(device: Any, backend: Any) -> None:
    recipes = applicable(capture(messages, X, EDGE, WEIGHT).graph, device, backend)
    assert "own_scatters" not in recipes


@pytest.mark.parametrize(
    "function",
    [
        lambda x, e, w: x.scatter_reduce(0, e[:1].t().expand(EDGES, WIDTH), w, "amax"),
        lambda x, e, w: x.index_put((e[0],), w),
        lambda x, e, w: (x > 0).index_put((e[0],), w > 0, accumulate=True),
    ],
)
def test_other_writes_stay_calls(function: Callable[..., Any]) -> None:
    graph = capture(function, X, EDGE, torch.randn(EDGES, WIDTH)).graph
    assert "own_scatters" not in applicable(graph, "cuda", "triton")
