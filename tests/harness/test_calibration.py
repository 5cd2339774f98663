"""Tolerances from the reference's outputs, on calls whose errors are worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from dvk.harness.checking.calibration import Calibration, _sums
from dvk.harness.checking.in_float64 import InFloat64
from dvk.harness.checking.tolerance import NONE, Errors
from tests.harness.problems import cases_of, made, model, refusals

F = torch.nn.functional
FUSED = model(
    "return nn.functional.gelu(x, approximate='tanh' if torch.backends.mha.get_fastpath_enabled() else 'none')",
    "[torch.randn(64, 32)]",
    "self.attention = nn.MultiheadAttention(4, 1)",
)
"""GELU as encoder layers compute it on a GPU: PyTorch's fused functions approximate it, in float64 too."""
PADDED = model(
    "return self.encoder(x, src_key_padding_mask=mask)",
    "[torch.randn(2, 5, 8), torch.tensor([[False] * 5, [False] * 3 + [True] * 2])]",
    "self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1).eval()",
    "x, mask",
)
"""PyTorch's fused functions leave padding at 0."""


def calibration(forward: str, inputs: str) -> tuple[Calibration, tuple]:
    cases = cases_of(model(forward, inputs))
    draw = cases.fresh(0).draw
    return cases._calibration, (draw, cases.reference.run(draw))


def test_what_is_exact_has_no_error_and_admits_the_floor() -> None:
    """Doubling is exact in any format: float64 agrees to the last bit."""
    made, (draw, answer) = calibration("return 2 * x", "[torch.randn(64)]")
    (want,) = made.calibrated(draw, answer, lower=False)
    assert want.own == NONE and want.truth is not None and torch.equal(want.truth, 2 * draw.args[0])
    assert made.precision.floor.within(want.admitted) and want.admitted.within(
        made.precision.ceiling
    )


def test_the_coarser_format_errs_by_what_it_cannot_hold() -> None:
    """1 + 2^-12 has 13 significant bits; in the 11 of the format below it is 1, which is off by 2^-12 of |y| + s = 2 |y|."""
    made, (draw, answer) = calibration("return 2 * x", "[torch.randn(64)]")
    draw = replace(draw, args=[torch.full((64,), 1 + 2.0**-12)])
    (want,) = made.calibrated(draw, made.reference.run(draw), lower=True)
    assert want.lower.typical == pytest.approx(
        2.0**-13, rel=1e-3
    ) and want.lower.worst == pytest.approx(2.0**-13, rel=1e-3)


def test_another_draw_admits_the_references_own_error_on_top() -> None:
    made, (draw, answer) = calibration("return x / 3", "[torch.randn(64)]")
    (known,) = made.calibrated(draw, answer, lower=True)
    known.own = Errors(1e-6, 1e-5)
    (want,) = made.followed(draw, answer, [known])
    alone = made.precision.tolerance(known.own, known.lower, _sums(draw, want, False))
    assert want.truth is None and want.own == known.own
    assert want.admitted == Errors(alone.typical + 1.5e-6, alone.worst + 2e-5)


def test_a_followed_answer_can_be_held_against_float64_after_all() -> None:
    made, (draw, answer) = calibration("return x / 3", "[torch.randn(64)]")
    followed = made.followed(draw, answer, made.calibrated(draw, answer, lower=True))
    assert (
        made.recheck_in_float64(draw, answer.spec_text, followed) and followed[0].truth is not None
    )
    assert torch.allclose(followed[0].truth.double(), draw.args[0].double() / 3, rtol=1e-7)
    assert not made.recheck_in_float64(draw, answer.spec_text, followed), "it is already"


def test_no_less_is_admitted_than_on_the_call_it_is_like() -> None:
    made, (draw, answer) = calibration("return 2 * x", "[torch.randn(64)]")
    (like,) = made.calibrated(draw, answer, lower=False)
    like.admitted = Errors(3e-5, 4e-4)
    (want,) = made.calibrated(draw, answer, lower=False, like=[like])
    assert want.admitted == Errors(3e-5, 4e-4)


def test_where_float64_means_something_else_noise_says_how_exact_it_is() -> None:
    """The module asks for the type: its float64 run is off by a tenth, which is no rounding."""
    made, (draw, answer) = calibration(
        "return x * (1.1 if x.dtype == torch.float64 else 1.0)", "[torch.rand(64) + 1]"
    )
    (want,) = made.calibrated(draw, answer, lower=False)
    assert want.truth is None and 0 <= want.own.typical < 1e-6


def test_the_truth_is_computed_without_pytorchs_fused_functions() -> None:
    cases = cases_of(FUSED)
    case = made(cases)[0]
    (want,), x = case.expected, case.args[0]
    assert want.truth is not None and torch.allclose(want.truth.double(), F.gelu(x.double()))
    assert torch.equal(want.same, F.gelu(x, approximate="tanh")) and want.own.typical < 1e-6
    for how in ("none", "tanh"):
        assert refusals(cases, lambda _, x, how=how: F.gelu(x, approximate=how)) == {}
    assert refusals(cases, lambda _, x: x * torch.sigmoid(1.702 * x), first=True)


def test_where_padding_is_left_at_zero_the_truth_has_it_too() -> None:
    (want,) = made(cases_of(PADDED))[0].expected
    assert not want.same[1, 3:].any(), "PyTorch chooses its fused functions"
    assert want.truth is not None and want.own.typical < 1e-6
    torch.testing.assert_close(want.truth, want.same, rtol=1e-4, atol=1e-5)


def test_the_choice_of_fused_functions_is_put_back() -> None:
    choice = torch.backends.mha.get_fastpath_enabled
    before = choice()
    with InFloat64():
        assert not choice()
    with InFloat64(fused=True):
        assert choice() is before
    assert choice() is before


def test_whole_numbers_and_booleans_admit_nothing() -> None:
    made, (draw, answer) = calibration("return x > 0", "[torch.randn(64)]")
    (want,) = made.calibrated(draw, answer, lower=True)
    assert want.scale is None and want.admitted == NONE
