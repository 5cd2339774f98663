"""Outputs compared some rows at a time give what the whole gives; contents are told apart without a copy."""

from __future__ import annotations

import pytest
import torch

from dvk.harness.checking import compare
from dvk.harness.checking.compare import ExpectedLeaf
from dvk.harness.checking.tolerance import Errors
from dvk.harness.supervision.digests import Digests


def leaf(same: torch.Tensor) -> ExpectedLeaf:
    scale, rms, finite = compare.scales(same)
    return ExpectedLeaf("y", same, None, scale, rms, Errors(1e-6, 1e-5), finite=finite)


SHAPES = {
    "rows": torch.Size((40, 9)),
    "one": torch.Size(()),
    "channels": torch.Size((3, 5, 4, 8)),
    "flat": torch.Size((1, 1, 37)),
}


@pytest.mark.parametrize("layout", ["dense", "channels last", "transposed"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
def test_slices_give_what_the_whole_gives(
    monkeypatch: pytest.MonkeyPatch, shape: torch.Size, layout: str
) -> None:
    torch.manual_seed(0)
    same = torch.randn(shape)
    if layout == "channels last" and same.dim() == 4:
        same = same.contiguous(memory_format=torch.channels_last)
    if layout == "transposed" and same.dim() == 2:
        same = same.t().contiguous().t()
    got = same + 1e-3 * torch.randn(shape)
    want = leaf(same)
    move, ratio = compare.ratios(got, same, want)
    whole = compare.errors(got, same, want)
    monkeypatch.setattr(compare, "CHUNK", 16)
    parts = list(compare.sliced_ratios(got, same, want))
    assert len(ratio) == 1 or len(parts) > 1
    assert torch.equal(torch.cat([m for _, m, _, _ in parts]), move)
    assert torch.equal(torch.cat([r for _, _, r, _ in parts]), ratio)
    assert [n for rows, *_ in parts for n in range(rows.start, rows.stop)] == list(
        range(len(ratio))
    )
    sliced = compare.errors(got, same, want)
    assert sliced.worst == whole.worst and sliced.typical == pytest.approx(whole.typical)
    assert compare.count_beyond(got, same, want, (1e-4,)) == [int((ratio > 1e-4).sum())]


def test_the_worst_element_is_named_whatever_slice_it_is_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compare, "CHUNK", 16)
    same = torch.ones(30, 8)
    got = same.clone()
    got[17, 3] = 5.0
    _, difference = compare.values(got, leaf(same))
    assert difference is not None and "[17, 3]: 5 instead of 1" in difference.text
    assert "1 of 240 elements" in difference.text


def test_equality_of_large_tensors_is_found_by_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "EQUAL_AT_ONCE", 8)
    for one in (torch.randn(9, 7), torch.randn(7, 9).t(), torch.randn(1, 50)):
        other = one.clone()
        assert compare.equal(one, other)
        other[-1, -1] += 1
        assert not compare.equal(one, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.uint8, torch.complex64])
def test_a_digest_changes_with_any_element(dtype: torch.dtype) -> None:
    digests = Digests()
    one = torch.arange(101).to(dtype)
    seen = digests.of(one)
    assert digests.of(one.clone()) == seen
    for place in (0, 50, 100):
        other = one.clone()
        other[place] += 1
        assert digests.of(other) != seen
    assert digests.of(one.flip(0)) != seen, "the same elements in another order"
    assert digests.of(one[1:]) != seen and digests.of(one[:0]) == 0
