"""Lengths of the parts of split tensors, compared with torch."""

from __future__ import annotations

import pytest
import torch

from dvk.composer.lowering.views import parts


@pytest.mark.parametrize("total", range(9))
def test_parts_are_as_long_as_torchs(total: int) -> None:
    x = torch.empty(total)
    for count in range(1, 6):
        assert parts("chunk", total, count) == [len(t) for t in x.chunk(count)]
        assert parts("split", total, count) == [len(t) for t in x.split(count)]
    assert parts("split_with_sizes", total, [total, 0]) == [total, 0]
    assert parts("tensor_split", total, [1]) is None


def test_splitting_nothing_into_nothing() -> None:
    assert parts("split", 0, 0) == [len(t) for t in torch.empty(0).split(0)]
