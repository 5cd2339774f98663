"""Differences that rounding explains: rows of an output that other roundings of the same model move as far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from dvk.harness.checking.compare import Difference, ExpectedLeaf, errors, row_length, values
from dvk.harness.checking.tolerance import Errors

MOST_TIMES = 2.0
"""A row may be off by so many times the largest error of a row that other roundings move."""
MOST_TIMES_ALONE = 2
"""Rows that no copy moves may be off, up to so many times those that one copy alone moves: the copies do not find all."""
SPREAD = MOST_TIMES_ALONE**0.5
"""The rest of an output may be off typically by so many times the copies' largest typical error: errors of independent choices add as the
square root of their number."""


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

    worst = want.admitted.worst
    found = torch.stack([off(one) for one in [*others, same]])
    moves = found > worst
    times = moves.sum(0)
    moved = times > 0
    # One rounding more: what it moves alone is what each copy moves that the others do not.
    alone = int((moves & (times == 1)).flatten(1).sum(1).max())
    mine = off(got)
    strangers = (mine > worst) & ~moved
    if int(strangers.sum()) > max(1, MOST_TIMES_ALONE * alone):
        return difference
    if float(mine.max()) > MOST_TIMES * float(found.max()):
        return difference
    explained = moved | strangers

    def settled(output: torch.Tensor) -> torch.Tensor:
        return torch.where(explained[..., None] if got.dim() > 1 else explained, same, output)

    # What is left may be off as the copies are: a choice of few elements moves no row beyond the worst admitted error.
    typical = SPREAD * max(errors(settled(one), truth, want).typical for one in others)
    admitted = want.admitted.at_least(Errors(typical, want.admitted.worst))
    return values(settled(got), replace(want, admitted=admitted))[1]
