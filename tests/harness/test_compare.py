"""Comparison of outputs: errors are found and described, and precision classes are distinguished."""

from __future__ import annotations

import pytest
import torch

from dvk.harness.checking.compare import (
    SHARE,
    TINY,
    ExpectedLeaf,
    errors,
    row_length,
    same_bits,
    scales,
    structure,
    values,
)
from dvk.harness.checking.tolerance import UNKNOWN, Sums, class_of
from dvk.harness.transport.calls import describe


def expected(
    truth: torch.Tensor, precision: str = "fp32", dtype: torch.dtype = torch.float32
) -> ExpectedLeaf:
    """An output that the reference computed exactly, up to rounding it to `dtype`."""
    same = truth.to(dtype)
    scale, rms, finite = scales(same)
    want = ExpectedLeaf("y", same, truth, scale, rms, finite=finite, wide=precision == "fp64")
    own = errors(same, truth, want)
    want.admitted = class_of(precision, {str(dtype).removeprefix("torch.")}).tolerance(
        own, UNKNOWN, Sums()
    )
    return want


# ---------------------------------------------------------------- outside


def difference(got: object, want: object, exact_strides: bool = False) -> str:
    leaves, text = describe(want)
    found = structure(
        *describe(got),
        [ExpectedLeaf(f"leaf{i}", leaf) for i, leaf in enumerate(leaves)],
        text,
        exact_strides=exact_strides,
    )
    return found.text if found is not None else ""


def test_equal_structures_agree_whatever_order_a_dictionary_has() -> None:
    x = torch.randn(3, 4)
    assert (
        difference({"a": x, "b": (x, 1, None, "s", [])}, {"b": (x, 1, None, "s", []), "a": x}) == ""
    )
    assert difference(x.t()[:, :1], torch.randn(4, 1)) == "", (
        "the stride of a dimension with one element means nothing"
    )


def test_a_contiguous_output_is_as_good_as_one_with_the_references_strides() -> None:
    contiguous, transposed, channels_last = (
        torch.ones(2, 3, 4, 5),
        torch.ones(5, 4, 3, 2).permute(3, 2, 1, 0),
        torch.ones(2, 3, 4, 5),
    )
    channels_last = channels_last.contiguous(memory_format=torch.channels_last)
    assert not difference(contiguous, transposed) and not difference(contiguous, channels_last)
    assert "strides" in difference(contiguous, transposed, exact_strides=True)
    assert "strides" in difference(channels_last, contiguous) and "strides" in difference(
        channels_last, transposed
    )


@pytest.mark.parametrize(
    ("got", "want", "says"),
    [
        (None, torch.ones(2), "a NoneType instead of a tensor"),
        ([torch.ones(2)], (torch.ones(2),), "[*] instead of (*)"),
        ({"a": torch.ones(2)}, {"b": torch.ones(2)}, "{'a': *} instead of {'b': *}"),
        (torch.ones(2).half(), torch.ones(2), "dtype torch.float16 instead of torch.float32"),
        (torch.ones(1, 2), torch.ones(2), "shape (1, 2) instead of (2,)"),
        (torch.ones(4, 3).t(), torch.ones(3, 4), "strides (1, 3) instead of (4, 1)"),
        ((torch.ones(2), 1), (torch.ones(2), True), "int 1 instead of bool True"),
        ((torch.ones(2), 2.0), (torch.ones(2), 1.0), "float 2.0 instead of float 1.0"),
        (
            (torch.ones(2), object()),
            (torch.ones(2), torch.float32),
            "a object instead of a dtype torch.float32",
        ),
    ],
)
def test_what_differs_outside_is_said(got: object, want: object, says: str) -> None:
    assert says in difference(got, want)


# ---------------------------------------------------------------- elements


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 1e30, 0.0])
def test_one_bad_element_among_many_is_found(bad: float) -> None:
    truth = torch.randn(300_001, dtype=torch.float64)
    want = expected(truth)
    got = truth.float()
    got[299_999] = bad
    found, wrong = values(got, want)
    assert (
        wrong is not None
        and "1 of 300,001 elements" in wrong.text
        and "worst at [299999]" in wrong.text
    )
    assert not found.within(want.admitted)


def test_a_row_of_small_values_is_not_hidden_behind_rows_of_large_ones() -> None:
    truth = torch.randn(64, 256, dtype=torch.float64)
    truth[7] *= 0.15
    truth[7, 3] = 0.1
    want = expected(truth)
    got = truth.float()
    got[7, 3] += 1.2e-5
    assert 1.2e-5 / want.rms < want.admitted.worst, "nothing, if measured by the whole output"
    _, wrong = values(got, want)
    assert wrong is not None and "[7, 3]" in wrong.text


def test_a_row_that_is_nothing_but_rounding_is_measured_by_the_whole_output() -> None:
    truth = torch.randn(64, 256, dtype=torch.float64)
    truth[7] = 0
    want = expected(truth)
    got = truth.float()
    got[7] = 1e-7
    assert values(got, want)[1] is None
    got[7] = 1e-4
    assert values(got, want)[1] is not None


def test_scales_follow_rows_down_to_a_share_of_the_whole() -> None:
    x = torch.ones(4, 8)
    x[1] = 0.5
    x[2] = 0
    found, rms, finite = scales(x)
    assert finite and found.tolist() == pytest.approx([1, 0.5, SHARE * rms, 1])
    assert scales(torch.zeros(3, 8))[1] == TINY
    assert scales(torch.zeros(0, 8))[2]
    x[3, 0] = float("inf")
    found, _, finite = scales(x)
    assert not finite and found[0] == 1 and torch.isfinite(found).all()
    assert [row_length(torch.Size(s)) for s in [(5, 8), (5, 3, 4), (2, 2), (), (3, 100, 2)]] == [
        8,
        12,
        4,
        1,
        200,
    ]


def test_the_typical_element_counts_where_no_single_one_is_far_off() -> None:
    truth = torch.randn(100_000, dtype=torch.float64)
    want = expected(truth)
    noise = 1 + 1.5e-5 * torch.randn(100_000, dtype=torch.float64)
    found, wrong = values((truth * noise.clamp(1 - 2e-5, 1 + 2e-5)).float(), want)
    assert (
        found.worst <= want.admitted.worst and wrong is not None and "typical element" in wrong.text
    )


def test_zeros_agree_with_zeros_only() -> None:
    want = expected(torch.zeros(8, dtype=torch.float64))
    assert values(torch.zeros(8), want)[1] is None
    assert values(torch.full((8,), 1e-20), want)[1] is not None


def test_infinities_have_their_places_and_signs() -> None:
    truth = torch.randn(40, dtype=torch.float64)
    truth[3], truth[5] = float("inf"), float("nan")
    want = expected(truth)
    assert values(truth.float(), want)[1] is None
    for place, value in [(3, -float("inf")), (3, 1e30), (5, 0.0), (0, float("nan"))]:
        got = truth.float()
        got[place] = value
        _, wrong = values(got, want)
        assert wrong is not None and (
            "NaN or infinity differs at 1 of 40" in wrong.text or place == 0
        )


def test_exact_types_are_compared_exactly() -> None:
    want = ExpectedLeaf("i", torch.arange(6).reshape(2, 3))
    assert values(torch.arange(6).reshape(2, 3), want)[1] is None
    _, wrong = values(torch.tensor([[0, 1, 2], [3, 9, 5]]), want)
    assert (
        wrong is not None
        and "1 of 6 elements differ, first at [1, 1]: 9 instead of 4" in wrong.text
    )


def test_complex_outputs_are_compared_in_both_parts() -> None:
    truth = torch.randn(64, dtype=torch.complex128)
    want = expected(truth, dtype=torch.complex64)
    assert values(truth.to(torch.complex64), want)[1] is None
    assert values(truth.real.to(torch.complex64), want)[1] is not None


def test_same_bits_knows_nan_and_dtype() -> None:
    x = torch.tensor([1.0, float("nan")])
    assert same_bits(x, x.clone())
    assert not same_bits(x, torch.tensor([1.0, 2.0]))
    assert not same_bits(x, x.double())
