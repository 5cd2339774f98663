"""Norms in float64 of tensors of any size, some elements at a time: PyTorch would convert the whole tensor first, which takes eight bytes
an element."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from dvk.harness.checking.narrow_floats import widened

AT_ONCE = 1 << 24
"""Elements converted at a time."""


def parts(*tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Yield equal pieces of tensors of one shape, as views where all are contiguous."""
    if tensors[0].numel() > AT_ONCE and all(t.is_contiguous() for t in tensors):
        yield from zip(*(t.view(-1).split(AT_ONCE) for t in tensors), strict=True)
    else:
        yield tensors


def row_norms(rows: torch.Tensor) -> torch.Tensor:
    """Return the Euclidean norm of each row in float64.

    Args:
        rows: [rows, columns], real.
    """
    count, columns = rows.shape
    if columns > AT_ONCE:
        squares = [_norms(part).square() for part in rows.split(AT_ONCE, dim=1)]
        return torch.stack(squares).sum(0).sqrt()
    step = max(1, AT_ONCE // max(1, columns))
    return _norms(rows) if count <= step else torch.cat([_norms(p) for p in rows.split(step)])


def root_mean_square(tensor: torch.Tensor) -> float:
    """Return the root mean square of all elements."""
    squares = [
        torch.linalg.vector_norm(widened(part), dtype=torch.float64).square()
        for (part,) in parts(tensor)
    ]
    return float((torch.stack(squares).sum() / tensor.numel()).sqrt())


def _norms(rows: torch.Tensor) -> torch.Tensor:
    return torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64)
