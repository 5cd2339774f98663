"""Operators without a rule, in the parts that PyTorch decomposes them into: values, special ones included, and how many kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dvk.composer.ir.text import spelled
from dvk.composer.lowering import whole_graph  # noqa: F401 - registers the rules
from dvk.composer.rewrites import operator_parts
from dvk.records import Graph
from tests.composer.programs import Program, capture

ROWS = torch.randn(6, 17)
ROWS[1, 3], ROWS[2, 5], ROWS[4, 0] = float("nan"), float("inf"), -float("inf")
IMAGE, PLACES = torch.randn(2, 9, 7, 8), torch.rand(2, 5, 6, 2) * 2.4 - 1.2
PLACES[0, 0, 0], PLACES[1, 2, 3, 0] = float("nan"), 3e9


def sampled(mode: str, padding: str, corners: bool) -> Callable[..., Tensor]:
    return lambda image, places: F.grid_sample(image, places, mode, padding, corners)


SAMPLED = {
    "zeros around": sampled("bilinear", "zeros", False),
    "edges around": sampled("bilinear", "border", True),
    "nearest": sampled("nearest", "zeros", False),
}
PARTS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...], int]] = {
    "diff": (lambda x: torch.diff(x, dim=0), (ROWS,), 1),
    "trapezoid": (lambda x: torch.trapezoid(x, dx=0.5, dim=-1), (ROWS,), 1),
    "cross": (torch.linalg.cross, (torch.randn(9, 3), torch.randn(9, 3)), 1),
    "aminmax": (lambda x: torch.aminmax(x, dim=1), (ROWS,), 2),
    "dot": (torch.dot, (torch.randn(50), torch.randn(50)), 1),
    "diagonal matrices": (torch.diag_embed, (ROWS,), 1),
}


@pytest.mark.parametrize("name", PARTS)
def test_parts_give_what_the_operator_gives(name: str) -> None:
    function, given, kernels = PARTS[name]
    program = Program(function, *given)
    assert "operator_parts" in program.recipes
    assert not program.externs and len(program.kernels) == kernels
    torch.testing.assert_close(program.run(), program.eager(), equal_nan=True)


@pytest.mark.parametrize("name", SAMPLED)
def test_parts_of_a_sampled_image_on_a_gpu_read_its_channels_together(name: str) -> None:
    graph = capture(SAMPLED[name], IMAGE, PLACES).graph
    parts = operator_parts.rewrite(graph, "cuda")
    assert parts is not None and operator_parts.rewrite(graph, "cpu") is None
    (image,) = (n for n in parts.nodes if n.name.endswith("_image"))
    assert image.strides == (504, 1, 72, 9)
    reads = [n for n in parts.nodes if n.op == "aten._unsafe_index.Tensor"]
    assert reads and all(n.args[0] == {"ref": image.name} for n in reads)
    places = PLACES.nan_to_num()
    torch.testing.assert_close(run(parts, IMAGE, places), SAMPLED[name](IMAGE, places))
    # As in CUDA's kernel: a NaN is no place of an image with zeros around it, and the first one of an image with edges.
    first = IMAGE[0, :, :1, 0] if name == "edges around" else torch.zeros(9, 1)
    nowhere = run(parts, IMAGE, torch.full_like(places, float("nan")))
    torch.testing.assert_close(nowhere[0], first[..., None].expand(9, 5, 6))


def run(graph: Graph, *given: Tensor) -> Tensor:
    """The graph's operators one by one, on the CPU."""
    values = dict(zip((n.name for n in graph.nodes if n.op == "input"), given, strict=True))
    for node in (n for n in graph.nodes if n.op != "input"):
        text = spelled(node, str).replace("'cuda'", "'cpu'")
        values[node.name] = eval(text, {"torch": torch, **values})
    return values[graph.outputs["ref"]]


STAYING: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "a part has no rule": (lambda x: torch.polygamma(1, x), (ROWS,)),
    "another recipe": (lambda x: torch.cdist(x, x, p=1.0), (ROWS,)),
    "NaN would show": (F.multi_margin_loss, (ROWS, torch.zeros(6, dtype=torch.long))),
    "reflected": (sampled("bilinear", "reflection", False), (IMAGE, PLACES)),
    "a recurrent layer": (torch.nn.LSTM(17, 4), (ROWS,)),
}


@pytest.mark.parametrize("name", STAYING)
@pytest.mark.slow
def test_operators_that_stay(name: str) -> None:
    function, given = STAYING[name]
    for device in ("cpu", "cuda"):
        assert operator_parts.rewrite(capture(function, *given).graph, device) is None
