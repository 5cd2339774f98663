"""Differences that rounding explains: rows of an output that other roundings of the same model move as far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from dvk.harness.checking.compare import Difference, ExpectedLeaf, row_length, values

MOST_TIMES = 2.0
"""A row may be off by so many times the largest error of a row that other roundings move."""
MOST_TIMES_ALONE = 2
"""Rows that no copy moves may be off, up to so many times those that one copy alone moves: the copies do not find all."""


def unexplained(
    got: torch.Tensor, want: ExpectedLeaf, others: Sequence[torch.Tensor], difference: Difference
) -> Difference | None:
    """What remains of a difference without the rows that rounding moves; None if nothing does.

    Args:
        got: the patched model's output, with the shape of `want.same`. A row is its last dimension.
        want: what is expected, with its truth.
        others: the same output of copies of the original with other roundings.
        difference: what is wrong with `got` as a whole.
    """
    truth, same = want.truth, want.same
    assert truth is not None and want.scale is not None
    others = [one for one in others if one.shape == truth.shape and bool(torch.isfinite(one).all())]
    if not others:
        return difference
    size = truth.abs() + want.scale.repeat_interleave(row_length(truth.shape)).view(truth.shape)

    def off(output: torch.Tensor) -> torch.Tensor:
        """The largest error of each row, as `values` has it."""
        error = ((output - truth).abs() / size).nan_to_num(torch.inf, torch.inf)
        return error.amax(-1) if error.dim() > 1 else error

    admitted = want.admitted.worst
    errors = torch.stack([off(one) for one in [*others, same]])
    moves = errors > admitted
    times = moves.sum(0)
    moved = times > 0
    # One rounding more: what it moves alone is what each copy moves that the others do not.
    alone = int((moves & (times == 1)).flatten(1).sum(1).max())
    mine = off(got)
    strangers = (mine > admitted) & ~moved
    if int(strangers.sum()) > max(1, MOST_TIMES_ALONE * alone):
        return difference
    if float(mine.max()) > MOST_TIMES * float(errors.max()):
        return difference
    explained = moved | strangers
    settled = torch.where(explained[..., None] if got.dim() > 1 else explained, same, got)
    return values(settled, replace(want, same=same))[1]
