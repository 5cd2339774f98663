"""Small modules for kernels that add at computed places, resample, or sum differences of shifted slices."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from tests.composer.triton_cases import HALF, Case, kinds, rand


def mean_of_neighbours(x: torch.Tensor, edge: torch.Tensor) -> torch.Tensor:
    source, target = edge
    total = torch.zeros_like(x)
    total.index_add_(0, target, x[source])
    degree = x.new_zeros(x.shape[0], 1)
    degree.scatter_add_(0, target[:, None], torch.ones_like(x[:1, :1]).expand(len(target), 1))
    return total / degree.clamp(min=1)


def segments(x: torch.Tensor, group: torch.Tensor, rows: torch.Tensor) -> Any:
    """The index covers all columns that are added, which may be fewer than those of x."""
    index = group[:, None].expand(-1, rows.shape[1])
    return tuple(
        x.scatter_reduce(0, index, rows, reduce=how, include_self=self)
        for how in ("sum", "mean")
        for self in (True, False)
    )


def shifted(a: torch.Tensor) -> torch.Tensor:
    across, down = a[:, :, 1:] - a[:, :, :-1], a[:, 1:] - a[:, :-1]
    return (across.square() + 1e-6).sqrt().mean() + (down.abs() * 2).exp().mean()


PLACE_CASES: dict[str, Case] = {
    "messages": Case(
        lambda x, e, w: F.silu(torch.zeros_like(x).index_add(0, e[1], torch.relu(x[e[0]] * w)) + x),
        lambda: [rand(7, 20), torch.randint(0, 7, (2, 90)), rand(90, 1)],
        4e-6,
    ),
    "degrees": Case(mean_of_neighbours, lambda: [rand(7, 20), torch.randint(0, 7, (2, 90))], 4e-6),
    "added_in_the_middle": Case(
        lambda x, i, s: (
            x.index_add(1, i, s, alpha=0.5) + x.scatter_add(1, i[:, None].expand(2, 9, 5), s)
        ),
        lambda: [rand(2, 6, 5), torch.randint(0, 6, (9,)), rand(2, 9, 5)],
        4e-6,
    ),
    "added_halves": Case(
        lambda x, i, s: x.index_add(0, i, s) * 2,
        lambda: [rand(6, 40, dtype=HALF), torch.randint(0, 6, (9,)), rand(9, 40, dtype=HALF)],
        4e-3,
    ),
    "segments": Case(
        segments, lambda: [rand(5, 3), torch.tensor([0, 3, 3, 0, 1, 3]), rand(6, 3)], 4e-6
    ),
    "segments_of_some_columns": Case(
        segments, lambda: [rand(5, 3), torch.tensor([0, 3, 3, 0, 1, 3]), rand(6, 2)], 4e-6
    ),
    "segments_of_a_column": Case(
        segments, lambda: [rand(5, 3), torch.tensor([0, 3, 3, 0, 1, 3]), rand(6, 1)], 4e-6
    ),
    "added_at_two_indices": Case(
        lambda x, i, j: (
            x.new_zeros(5, 6, 3).index_put((i, j - 6), x.sigmoid(), accumulate=True).log1p()
        ),
        lambda: [rand(40, 3), torch.randint(0, 5, (40,)), torch.randint(0, 6, (40,))],
        4e-6,
    ),
    "counted": Case(
        lambda i: torch.zeros_like(i).scatter_add(0, i % 5, i * 2),
        lambda: [torch.randint(0, 99, (300,))],
    ),
    "added_softmax": Case(
        lambda x, i: torch.zeros_like(x).index_add(0, i, x.softmax(-1)),
        lambda: [rand(9, 70), torch.randint(0, 9, (9,))],
        4e-6,
    ),
    "shifted": Case(
        shifted, lambda: [rand(5, 24, 40)], 4e-6, kinds("persistent", "looped", "split")
    ),
    "cubic": Case(
        lambda x: F.interpolate(x, scale_factor=2, mode="bicubic").clamp(-1, 1),
        lambda: [rand(2, 3, 5, 4)],
        4e-6,
    ),
    "cubic_corners": Case(
        lambda x: F.interpolate(x, size=(3, 9), mode="bicubic", align_corners=True) + 1,
        lambda: [rand(2, 3, 5, 4)],
        4e-6,
    ),
}
