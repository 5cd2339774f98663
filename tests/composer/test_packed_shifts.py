"""Shifts of packed words stay in the kernel of each product, so that they are numbers there."""

from __future__ import annotations

import torch

from dvk.composer import applicable, fuse
from dvk.composer.codegen.triton.lanes import lane_form
from tests.composer.packed_cases import BRAIN, byte, rand, word, words
from tests.composer.programs import TASK, capture


def test_two_layers_with_equal_shifts_share_none() -> None:
    def layers(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        return words(words(x, *weights[:3]), *weights[3:])

    def weight(n: int, k: int) -> list[torch.Tensor]:
        return [word(n, k // 8), rand(n, k // 128, dtype=BRAIN), rand(n, k // 128, dtype=BRAIN)]

    captured = capture(layers, rand(1, 256, dtype=BRAIN), *weight(128, 256), *weight(32, 128))
    names = tuple(applicable(captured.graph, "cuda", "triton"))
    made = fuse(TASK.model_copy(update={"device": "cuda"}), captured, names)
    assert [kernel.family for kernel in made.ordered] == ["product", "product"]
    assert all(lane_form(kernel) is not None for kernel in made.ordered)


def test_shifts_in_memory_are_no_digits() -> None:
    def shifted(x: torch.Tensor, q: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
        w = ((q[..., None] >> by) & 15).flatten(1).to(x.dtype) - 8
        return x @ w.t()

    by = torch.tensor([0, 4], dtype=torch.uint8)
    captured = capture(shifted, rand(1, 256, dtype=BRAIN), byte(32, 128), by)
    names = tuple(applicable(captured.graph, "cuda", "triton"))
    made = fuse(TASK.model_copy(update={"device": "cuda"}), captured, names)
    assert all(lane_form(kernel) is None for kernel in made.ordered)
