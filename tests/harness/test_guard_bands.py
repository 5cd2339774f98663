"""Guard bands around tensors: their places, and that a write outside a tensor shows while one inside does not."""

from __future__ import annotations

import pytest
import torch

from dvk.harness.transport.guard_bands import ALIGNMENT, BAND, Bands, Guarded

SIZES = [100, 0, 4096, 7]


def test_tensors_lie_apart_and_aligned() -> None:
    bands = Bands(SIZES)
    ends = [offset + size for offset, size in zip(bands.offsets, SIZES, strict=True)]
    assert all(offset % ALIGNMENT == 0 for offset in bands.offsets)
    assert bands.offsets[0] >= BAND and bands.size - ends[-1] >= BAND
    assert all(start - end >= BAND for end, start in zip(ends, bands.offsets[1:], strict=False))


@pytest.mark.parametrize("start", ["paint", "flood"])
def test_out_of_bounds_writes_show(start: str) -> None:
    bands = Bands(SIZES)
    block = torch.zeros(bands.size, dtype=torch.uint8)
    getattr(bands, start)(block)
    for offset, size in zip(bands.offsets, SIZES, strict=True):
        block[offset : offset + size] = 0
    assert bands.broken(block) == []
    for place, told in (
        (bands.offsets[0] - 1, 0),
        (bands.offsets[0] + 100, 0),
        (bands.offsets[2] + 4096, 2),
        (bands.size - 1, 3),
    ):
        block[place] = 0
        assert bands.broken(block) == [told]
        bands.paint(block)
    assert bands.broken(block) == []


def test_a_guarded_tensor_looks_like_the_bare_one() -> None:
    guarded = Guarded(1 << 20)
    for like in (
        torch.empty(3, 5, dtype=torch.bfloat16),
        torch.empty(4, 6).t(),
        torch.empty(7, dtype=torch.bool),
        torch.empty(()),
    ):
        twin = guarded.twin(like)
        assert (twin.shape, twin.stride(), twin.dtype) == (like.shape, like.stride(), like.dtype)
        twin.fill_(1)
    assert guarded.broken() is None
    last = guarded.twin(torch.empty(10))
    last.as_strided((11,), (1,)).fill_(0)
    assert guarded.broken() == "float32[10]"


def test_beyond_the_room_tensors_are_bare() -> None:
    large = torch.empty(1 << 18)
    assert Guarded(1 << 20).twin(large) is large
